"""Rendering and checking of templates by Liquid: only the sandbox does it, or imports it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial

from liquid.exceptions import LiquidError, ResourceLimitError, UndefinedError

from clarion.catalog.model import GIVEN, RenderedText
from clarion.catalog.rendering import liquid, mjml
from clarion.catalog.rendering.limits import (
    LOOP_LIMIT,
    TEXT_LIMIT_BYTES,
    TIME_LIMIT_S,
    check_each,
    find_size_fault,
    show_place,
)
from clarion.catalog.rendering.quick import one_line
from clarion.errors import FieldFault, InvalidFields

# A template may use it without declaring it, since not every event has one.
OPTIONAL = frozenset({"snippet"})
_MISSING = re.compile(r"'?([\w.-]+)'? is undefined")
_PLACE = re.compile(r" \(line \d+, column \d+\)$")
_OVER_LIMIT = (
    f"exceeds a limit: at most {LOOP_LIMIT:,} loop iterations, {TEXT_LIMIT_BYTES:,} bytes and "
    f"{TIME_LIMIT_S:g} s"
)


def render(template: RenderedText, context: Mapping[str, object], *, is_html: bool) -> RenderedText:
    """Render a template; `InvalidFields` names what is missing, or the part that exceeds a limit.

    In HTML the values in the body are escaped. A subject is always plain text on one line.
    """
    body = _render("body", template.body, context, is_html=is_html)
    if template.subject is None:
        return RenderedText(None, body, is_html)
    subject = _render("subject", template.subject, context, is_html=False)
    return RenderedText(one_line(subject), body, is_html)


def check_template(
    subject: str | None, body: str, variables: Collection[str], *, is_mjml: bool = False
) -> None:
    """Raise `InvalidFields` if a template is invalid, or uses a name that it does not declare."""
    find = partial(_find_fault, variables=variables)
    find_in_body = partial(_find_in_mjml, find=find) if is_mjml else find
    check_each(subject, body, find, find_in_body)


def _find_in_mjml(text: str, *, find: Callable[[str], str | None]) -> str | None:
    """Return the fault of MJML, or of the HTML that it becomes with the place in the MJML."""
    try:
        reason = find(mjml.convert(text))
    except InvalidFields as error:
        return error.faults[0].reason
    if reason is None:
        return None
    without, in_text = _PLACE.sub("", reason), find(text) or ""
    return in_text if _PLACE.sub("", in_text) == without else without


def _find_fault(text: str, *, variables: Collection[str]) -> str | None:
    if reason := find_size_fault(text):
        return reason
    try:
        used = liquid.parse(text, is_html=False).analyze()
    except LiquidError as error:
        at = error.token.start_index if error.token else -1
        place = show_place(text, at if at >= 0 else len(text))
        return f"is not a valid template: {_first_line(error)}{place}"
    if unknown := sorted(set(used.filters) - liquid.known_filters()):
        place = show_place(text, used.filters[unknown[0]][0].index)
        return f"uses unknown filters: {', '.join(unknown)}{place}"
    if unknown := sorted(set(used.globals) - set(variables) - GIVEN - OPTIONAL):
        place = show_place(text, used.globals[unknown[0]][0].span.index)
        return f"uses {', '.join(unknown)}, which `variables` does not declare{place}"
    return None


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
