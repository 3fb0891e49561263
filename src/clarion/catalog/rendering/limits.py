"""The limits of templates, and the check of their size, which is cheap for any template."""

from __future__ import annotations

import re
from collections.abc import Callable

from clarion.errors import FieldFault, InvalidFields

TEXT_LIMIT_BYTES = 65_536
LOOP_LIMIT = 1_000
TIME_LIMIT_S = 0.1
# Values and tags. The lexer and the parser take about 20 µs for each.
TAGS_LIMIT = 1_000
# Tags up to whose end the lexer looks from each of them.
_VERBATIM = re.compile(r"\{%-?\s*(end)?(raw|doc)\b")

_Find = Callable[[str], str | None]


def check_size(subject: str | None, body: str) -> None:
    """Raise `InvalidFields` if a template is too large to be looked at by Liquid."""
    check_each(subject, body, find_size_fault, find_size_fault)


def check_each(subject: str | None, body: str, find: _Find, find_in_body: _Find) -> None:
    """Raise `InvalidFields` with the faults that are found in the subject and the body."""
    found = {
        "subject": None if subject is None else find(subject),
        "body": find_in_body(body),
    }
    faults = [FieldFault(field, reason) for field, reason in found.items() if reason is not None]
    if faults:
        raise InvalidFields(*faults)


def find_size_fault(text: str) -> str | None:
    if not text.strip() or "\0" in text:
        return "must not be blank, or contain zero characters"
    if len(text.encode()) > TEXT_LIMIT_BYTES:
        return f"must have at most {TEXT_LIMIT_BYTES:,} bytes"
    if text.count("{{") + text.count("{%") > TAGS_LIMIT:
        return f"must have at most {TAGS_LIMIT:,} values and tags"
    # The lexer would look for the end of each of them.
    for start, end in (("{{", "}}"), ("{%", "%}")):
        if (at := text.rfind(start)) > text.rfind(end):
            return f"is not a valid template: a {{{{ or {{% is not closed{show_place(text, at)}"
    for name in ("raw", "doc"):
        tags = [found for found in _VERBATIM.finditer(text) if found[2] == name]
        if tags and tags[-1][1] is None:
            place = show_place(text, tags[-1].start())
            return f"is not a valid template: {name} tag was never closed{place}"
    return None


def show_place(text: str, index: int) -> str:
    """Return where a character is, as editors count: from line 1 and column 1."""
    line = text.count("\n", 0, index) + 1
    return f" (line {line}, column {index - text.rfind(chr(10), 0, index)})"
