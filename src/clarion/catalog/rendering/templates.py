"""Rendering and checking of templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from liquid.exceptions import LiquidError, ResourceLimitError, UndefinedError

from clarion.catalog.model import GIVEN, RenderedText, Template
from clarion.catalog.rendering import liquid
from clarion.catalog.rendering.liquid import LOOP_LIMIT, TEXT_LIMIT_BYTES, TIME_LIMIT_S
from clarion.catalog.rendering.quick import Unsupported, compile_quickly
from clarion.errors import FieldFault, InvalidFields

# A template may use it without declaring it, since not every event has one.
OPTIONAL = frozenset({"snippet"})
_CACHE_LIMIT = 20_000
_MISSING = re.compile(r"'?([\w.-]+)'? is undefined")
_OVER_LIMIT = (
    f"exceeds a limit: at most {LOOP_LIMIT:,} loop iterations, {TEXT_LIMIT_BYTES:,} bytes and "
    f"{TIME_LIMIT_S:g} s"
)


def render(
    template: Template, context: Mapping[str, object], *, is_html: bool = False
) -> RenderedText:
    """Render a template; `InvalidFields` names what is missing, or the part that exceeds a limit.

    In HTML the values in the body are escaped. A subject is always plain text on one line.
    """
    body = _render("body", template.body, context, is_html=is_html)
    if template.subject is None:
        return RenderedText(None, body)
    subject = _render("subject", template.subject, context, is_html=False)
    return RenderedText(subject if subject.isprintable() else " ".join(subject.split()), body)


def check_template(subject: str | None, body: str, variables: Collection[str]) -> None:
    """Raise `InvalidFields` if a template is invalid, or uses a name that it does not declare."""
    faults = []
    for field, text in (("subject", subject), ("body", body)):
        reason = None if text is None else _find_fault(text, variables)
        if reason is not None:
            faults.append(FieldFault(field, reason))
    if faults:
        raise InvalidFields(*faults)


def _find_fault(text: str, variables: Collection[str]) -> str | None:
    if not text.strip() or "\0" in text:
        return "must not be blank, or contain zero characters"
    if len(text.encode()) > TEXT_LIMIT_BYTES:
        return f"must have at most {TEXT_LIMIT_BYTES:,} bytes"
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
def _compile(text: str, is_html: bool) -> Callable[[Mapping[str, object]], str]:  # noqa: FBT001
    quick = compile_quickly(text, is_html=is_html)

    def render_text(context: Mapping[str, object]) -> str:
        if quick is not None:
            try:
                return quick(context)
            except Unsupported:
                pass
        return liquid.render(text, context, is_html=is_html)

    return render_text


def _render(field: str, text: str, context: Mapping[str, object], *, is_html: bool) -> str:
    try:
        return _compile(text, is_html)(context)
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
