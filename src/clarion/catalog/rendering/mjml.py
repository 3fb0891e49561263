"""MJML to HTML, with the Liquid tags in their places.

Liquid runs after it: no value of an event is ever read as MJML. It runs only in the sandbox, since
MJML that is nested deeply ends the process.
"""

from __future__ import annotations

import re

import mrml

from clarion.catalog.rendering.limits import TEXT_LIMIT_BYTES
from clarion.errors import FieldFault, InvalidFields

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_SHOWN = 60
# Nothing is included, and no font is loaded from a third party that would learn who reads.
_PARSER = mrml.ParserOptions(include_loader=mrml.noop_loader())
_RENDERER = mrml.RenderOptions(fonts={})


def convert(text: str) -> str:
    """Return the HTML of MJML; `InvalidFields` if it is invalid, or a Liquid tag would be lost."""
    try:
        html = str(mrml.to_html(text, _PARSER, _RENDERER).content)
    except (OSError, ValueError) as error:
        raise _fault(f"is not valid MJML: {error}") from error
    if len(html.encode()) > TEXT_LIMIT_BYTES:
        raise _fault(f"becomes HTML of more than {TEXT_LIMIT_BYTES:,} bytes")
    # MJML drops text where it expects none: a condition would vanish, and its text stay.
    for tag in dict.fromkeys(_TAG.findall(text)):
        if html.count(tag) < text.count(tag):
            raise _fault(f"must have {tag[:_SHOWN]} where MJML shows it, as in <mj-raw>")
    return html


def _fault(reason: str) -> InvalidFields:
    return InvalidFields(FieldFault("body", reason))
