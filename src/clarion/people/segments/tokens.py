"""The text of a filter → its tokens, in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from clarion.fields import is_plain

LENGTH_LIMIT = 4_096
_SHOWN = 20
# Nothing is read twice: a text that does not end is refused at once.
_TEXT = r"'(?:[^']|'')*+'"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n]+)
    | (?P<text>{_TEXT})
    | (?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<word>[A-Za-z_]\w*(?:\.(?:[\w-]+|{_TEXT}))?)
    | (?P<operator>!=|<=|>=|=|<|>)
    | (?P<mark>[(),])""",
    re.VERBOSE | re.ASCII,
)


class FilterError(ValueError):
    """A filter that is not valid; the message names the character where reading stopped."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        where = "" if position is None else f"character {position}: "
        super().__init__(f"{where}{reason}")


class TokenKind(Enum):
    """The kind of a token."""

    TEXT = "text"
    NUMBER = "number"
    WORD = "word"
    OPERATOR = "operator"
    MARK = "mark"
    END = "end"


class Token(NamedTuple):
    """A token, its position (the first character is 1), and its value."""

    kind: TokenKind
    position: int
    text: str

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return "the end"
        return self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"


def read_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a filter, and one for its end; `FilterError` if it has others."""
    if len(text) > LENGTH_LIMIT:
        raise FilterError(f"must have at most {LENGTH_LIMIT:,} characters")
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise FilterError(_explain(text[position]), position + 1)
        kind = found.lastgroup
        if kind != "space":
            _check_plain(found[0], position)
            yield Token(TokenKind(kind), position + 1, found[0])
        position = found.end()
    yield Token(TokenKind.END, len(text) + 1, "")


def unquote(text: str) -> str:
    """Return the value of a text token."""
    return text[1:-1].replace("''", "'")


def _check_plain(text: str, start: int) -> None:
    if not is_plain(text):
        raise FilterError("must not contain control characters", start + 1)


def _explain(character: str) -> str:
    if character == "'":
        return "this text has no closing quote"
    if character in "+-.0123456789":
        return "expected a number, like 12 or -0.5"
    shown = character if is_plain(character) else "a control character"
    return f"did not expect {shown}"
