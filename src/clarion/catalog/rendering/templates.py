"""A template and values → words; a template → whether it can be one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from liquid.exceptions import LiquidError, ResourceLimitError, UndefinedError

from clarion.catalog.model import GIVEN, RenderedText
from clarion.catalog.rendering import liquid
from clarion.catalog.rendering.liquid import LOOP_LIMIT, TEXT_LIMIT_BYTES, TIME_LIMIT_S
from clarion.catalog.rendering.quick import Unsure, compile_quickly
from clarion.errors import FieldFault, InvalidFields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from clarion.catalog.model import Template

# A template may ask for it without declaring it: not every event brings one.
OPTIONAL = frozenset({"snippet"})
_COMPILED = 20_000
_MISSING = re.compile(r"'?([\w.-]+)'? is undefined")
_TOO_MUCH = (
    f"does too much: at most {LOOP_LIMIT:,} turns of loops, {TEXT_LIMIT_BYTES:,} bytes, and "
    f"{TIME_LIMIT_S:g} s"
)


def render(
    template: Template, values: Mapping[str, object], *, is_html: bool = False
) -> RenderedText:
    """Return the words; `InvalidFields` names what is missing, or the part that does too much.

    In HTML the values in the body are escaped; a subject is always plain, and one line.
    """
    body = _fill("body", template.body, values, is_html=is_html)
    if template.subject is None:
        return RenderedText(None, body)
    subject = _fill("subject", template.subject, values, is_html=False)
    return RenderedText(subject if subject.isprintable() else " ".join(subject.split()), body)


def check_template(subject: str | None, body: str, variables: Collection[str]) -> None:
    """Raise `InvalidFields` if it cannot be read, or uses what it does not declare."""
    faults = []
    for field, text in (("subject", subject), ("body", body)):
        reason = None if text is None else _find_fault(text, variables)
        if reason is not None:
            faults.append(FieldFault(field, reason))
    if faults:
        raise InvalidFields(*faults)


def _find_fault(text: str, variables: Collection[str]) -> str | None:
    if len(text.encode()) > TEXT_LIMIT_BYTES:
        return f"must have at most {TEXT_LIMIT_BYTES:,} bytes"
    try:
        used = liquid.parse(text, is_html=False).analyze()
    except LiquidError as error:
        return f"is not a template that can be read: {_first_line(error)}"
    if unknown := sorted(set(used.filters) - liquid.known_filters()):
        return f"uses a filter that there is not: {', '.join(unknown)}"
    if unknown := sorted(set(used.globals) - set(variables) - GIVEN - OPTIONAL):
        return f"uses {', '.join(unknown)}, which `variables` does not declare"
    return None


@lru_cache(_COMPILED)
def _compile(text: str, is_html: bool) -> Callable[[Mapping[str, object]], str]:  # noqa: FBT001
    quick = compile_quickly(text, is_html=is_html)

    def fill(values: Mapping[str, object]) -> str:
        if quick is not None:
            try:
                return quick(values)
            except Unsure:
                pass
        return liquid.fill(text, values, is_html=is_html)

    return fill


def _fill(field: str, text: str, values: Mapping[str, object], *, is_html: bool) -> str:
    try:
        return _compile(text, is_html)(values)
    except UndefinedError as error:
        raise InvalidFields(_name_missing(field, _first_line(error))) from error
    except ResourceLimitError as error:
        raise InvalidFields(FieldFault(field, _TOO_MUCH)) from error
    # A filter may fail in any way that its input makes it: all of them are the template's.
    except Exception as error:
        raise InvalidFields(FieldFault(field, f"cannot be filled: {_first_line(error)}")) from error


def _name_missing(field: str, message: str) -> FieldFault:
    found = _MISSING.match(message)
    if not found:
        return FieldFault(field, message)
    path = found[1]
    place = path if path.partition(".")[0] in GIVEN else f"data.{path}"
    return FieldFault(place, f"is missing, and the {field} shows it")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
