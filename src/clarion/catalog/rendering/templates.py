"""Rendering and checking of templates.

`render_quickly` and `find_size_faults` take no time worth mentioning, whatever the template is.
Everything else here runs Liquid, and so only in the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial

from liquid.exceptions import LiquidError, ResourceLimitError, UndefinedError

from clarion.catalog.model import GIVEN, RenderedText, Template
from clarion.catalog.rendering import liquid, mjml
from clarion.catalog.rendering.liquid import LOOP_LIMIT, TEXT_LIMIT_BYTES, TIME_LIMIT_S
from clarion.catalog.rendering.quick import Unsupported, compile_quickly
from clarion.errors import FieldFault, InvalidFields

# A template may use it without declaring it, since not every event has one.
OPTIONAL = frozenset({"snippet"})
# Values and tags. The lexer and the parser take about 20 µs for each.
TAGS_LIMIT = 1_000
_CACHE_LIMIT = 2_000
# Tags up to whose end the lexer looks from each of them.
_VERBATIM = re.compile(r"\{%-?\s*(end)?(raw|doc)\b")
_MISSING = re.compile(r"'?([\w.-]+)'? is undefined")
_OVER_LIMIT = (
    f"exceeds a limit: at most {LOOP_LIMIT:,} loop iterations, {TEXT_LIMIT_BYTES:,} bytes and "
    f"{TIME_LIMIT_S:g} s"
)


def render_quickly(
    template: Template, context: Mapping[str, object], *, is_html: bool
) -> RenderedText | None:
    """Return the text of a simple template with simple values; None if it needs Liquid."""
    body = _compile(template.body, is_html)
    subject = None if template.subject is None else _compile(template.subject, False)  # noqa: FBT003
    if body is None or (subject is None and template.subject is not None):
        return None
    try:
        return RenderedText(subject and _one_line(subject(context)), body(context), is_html)
    except Unsupported:
        return None


def render(template: RenderedText, context: Mapping[str, object], *, is_html: bool) -> RenderedText:
    """Render a template; `InvalidFields` names what is missing, or the part that exceeds a limit.

    In HTML the values in the body are escaped. A subject is always plain text on one line.
    """
    body = _render("body", template.body, context, is_html=is_html)
    if template.subject is None:
        return RenderedText(None, body, is_html)
    subject = _render("subject", template.subject, context, is_html=False)
    return RenderedText(_one_line(subject), body, is_html)


def _one_line(subject: str) -> str:
    return subject if subject.isprintable() else " ".join(subject.split())


def check_template(
    subject: str | None, body: str, variables: Collection[str], *, is_mjml: bool = False
) -> None:
    """Raise `InvalidFields` if a template is invalid, or uses a name that it does not declare."""
    if is_mjml:
        body = mjml.convert(body)
    _check_each(subject, body, partial(_find_fault, variables=variables))


def check_size(subject: str | None, body: str) -> None:
    """Raise `InvalidFields` if a template is too large to be looked at by Liquid."""
    _check_each(subject, body, _find_size_fault)


def _check_each(subject: str | None, body: str, find: Callable[[str], str | None]) -> None:
    texts = {"subject": subject, "body": body}
    found = {field: None if text is None else find(text) for field, text in texts.items()}
    faults = [FieldFault(field, reason) for field, reason in found.items() if reason is not None]
    if faults:
        raise InvalidFields(*faults)


def _find_size_fault(text: str) -> str | None:
    if not text.strip() or "\0" in text:
        return "must not be blank, or contain zero characters"
    if len(text.encode()) > TEXT_LIMIT_BYTES:
        return f"must have at most {TEXT_LIMIT_BYTES:,} bytes"
    if text.count("{{") + text.count("{%") > TAGS_LIMIT:
        return f"must have at most {TAGS_LIMIT:,} values and tags"
    # The lexer would look for the end of each of them.
    if text.rfind("{{") > text.rfind("}}") or text.rfind("{%") > text.rfind("%}"):
        return "is not a valid template: a {{ or {% is not closed"
    for name in ("raw", "doc"):
        ends = [found[1] for found in _VERBATIM.finditer(text) if found[2] == name]
        if ends and ends[-1] is None:
            return f"is not a valid template: {name} tag was never closed"
    return None


def _find_fault(text: str, *, variables: Collection[str]) -> str | None:
    if reason := _find_size_fault(text):
        return reason
    try:
        used = liquid.parse(text, is_html=False).analyze()
    except LiquidError as error:
        return f"is not a valid template: {_first_line(error)}"
    if unknown := sorted(set(used.filters) - liquid.known_filters()):
        return f"uses unknown filters: {', '.join(unknown)}"
    if unknown := sorted(set(used.globals) - set(variables) - GIVEN - OPTIONAL):
        return f"uses {', '.join(unknown)}, which `variables` does not declare"
    return None


@lru_cache(_CACHE_LIMIT)
def _compile(text: str, is_html: bool) -> Callable[[Mapping[str, object]], str] | None:  # noqa: FBT001
    return compile_quickly(text, is_html=is_html)


def _render(field: str, text: str, context: Mapping[str, object], *, is_html: bool) -> str:
    try:
        return liquid.render(text, context, is_html=is_html)
    except UndefinedError as error:
        raise InvalidFields(_name_missing(field, _first_line(error))) from error
    except ResourceLimitError as error:
        raise InvalidFields(FieldFault(field, _OVER_LIMIT)) from error
    # Bad input can make a filter raise anything; it is the template's fault in every case.
    except Exception as error:
        reason = f"cannot be rendered: {_first_line(error)}"
        raise InvalidFields(FieldFault(field, reason)) from error


def _name_missing(field: str, message: str) -> FieldFault:
    found = _MISSING.match(message)
    if not found:
        return FieldFault(field, message)
    path = found[1]
    place = path if path.partition(".")[0] in GIVEN else f"data.{path}"
    return FieldFault(place, f"is missing, but the {field} uses it")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
