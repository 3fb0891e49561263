"""MJML to HTML, with the Liquid tags in their places.

Liquid runs after it: no value of an event is ever read as MJML. It runs only in the sandbox, since
MJML that is nested deeply ends the process.
"""

from __future__ import annotations

import re

import mrml

from clarion.catalog.rendering.limits import TEXT_LIMIT_BYTES, show_place
from clarion.catalog.rendering.mjml_faults import explain
from clarion.errors import FieldFault, InvalidFields

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_SHOWN = 60
# Nothing is included, and no font is loaded from a third party that would learn who reads.
_PARSER = mrml.ParserOptions(include_loader=mrml.noop_loader())
_RENDERER = mrml.RenderOptions(fonts={})


def convert(text: str) -> str:
    """Return the HTML of MJML; `InvalidFields` if it is invalid, or a Liquid tag would be lost."""
    try:
        html = _parse(text)
    except (OSError, ValueError) as error:
        reason = explain(text, str(error), _find_fault)
        raise _fault(f"is not valid MJML: {reason}") from error
    if len(html.encode()) > TEXT_LIMIT_BYTES:
        raise _fault(f"becomes HTML of more than {TEXT_LIMIT_BYTES:,} bytes")
    # MJML drops text where it expects none: a condition would vanish, and its text stay.
    for tag in dict.fromkeys(_TAG.findall(text)):
        if html.count(tag) < text.count(tag):
            place = _place_lost(text, tag)
            raise _fault(f"must have {tag[:_SHOWN]} where MJML shows it, as in <mj-raw>{place}")
    return html


def _parse(text: str) -> str:
    return str(mrml.to_html(text, _PARSER, _RENDERER).content)


def _find_fault(text: str) -> str | None:
    try:
        _parse(text)
    except (OSError, ValueError) as error:
        return str(error)
    return None


def _place_lost(text: str, tag: str) -> str:
    """Return the place of the first of equal tags that is dropped: each gets a number to see it."""
    places = {
        f"{{{{place-{at.start()}-}}}}": at.start() for at in re.finditer(re.escape(tag), text)
    }
    numbered = text
    for marker, at in reversed(places.items()):
        numbered = numbered[:at] + marker + numbered[at + len(tag) :]
    try:
        html = _parse(numbered)
    except (OSError, ValueError):
        return ""
    lost = next((at for marker, at in places.items() if marker not in html), None)
    return "" if lost is None else show_place(text, lost)


def _fault(reason: str) -> InvalidFields:
    return InvalidFields(FieldFault("body", reason))
