"""The plain part of Liquid, compiled: texts, values, simple ifs. Some ten times as fast.

It says only what Liquid would say. Whatever it is not sure of, in a template or in the values,
it leaves to Liquid.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Values = Mapping[str, object]
    Show = Callable[[Values], str]
    Test = Callable[[Values], bool]

# Shorter than Liquid's limit of bytes, however many bytes a character takes.
_TEXT_LIMIT = 16_384
_NUMBER = 10**15
_TOKEN = re.compile(r"(\{\{.*?\}\}|\{%.*?%\})", re.DOTALL)
_PATH = r"(?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
_SHOW = re.compile(rf"\{{\{{ *{_PATH} *(?:\| *minus: *(?P<minus>\d{{1,9}}) *)?\}}\}}", re.ASCII)
_IF = re.compile(
    rf"\{{% *if +{_PATH} *(?:(?P<compare>[<>]=?|==|!=) *(?P<number>\d{{1,9}}) *)?%\}}", re.ASCII
)
_ELSE = re.compile(r"\{% *else *%\}")
_END = re.compile(r"\{% *endif *%\}")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
# Words that mean something in Liquid, wherever they stand.
_RESERVED = frozenset(
    {
        "and",
        "as",
        "blank",
        "contains",
        "cols",
        "continue",
        "else",
        "empty",
        "false",
        "first",
        "for",
        "forloop",
        "if",
        "in",
        "last",
        "limit",
        "nil",
        "not",
        "now",
        "null",
        "offset",
        "or",
        "required",
        "reversed",
        "size",
        "today",
        "true",
        "unless",
        "with",
    }
)


class Unsure(Exception):
    """Liquid has to say."""


class _Block(NamedTuple):
    """What stands between two tags, and the tag that ends it; None at the end of the text."""

    parts: list[str | Show]
    is_solid: bool  # there is a value or a word in it, beside inner blocks
    end: str | None

    @property
    def may_vanish(self) -> bool:
        """Whether Liquid might leave it out: it does so with blocks that hold only blanks."""
        return bool(self.parts) and not self.is_solid


def compile_quickly(text: str, *, is_html: bool) -> Show | None:
    """Return a function from values to words that may raise `Unsure`; None if it is not plain."""
    try:
        block = _read_block(iter(_TOKEN.split(text)), is_html=is_html)
    except Unsure:
        return None
    if block.end is not None:
        return None

    def show(values: Values) -> str:
        words = _join(block.parts, values)
        # Liquid writes every end of a line as a line feed.
        if len(words) > _TEXT_LIMIT or "\r" in words:
            raise Unsure
        return words

    return show


def _join(parts: list[str | Show], values: Values) -> str:
    return "".join([part if type(part) is str else part(values) for part in parts])  # type: ignore[operator]


def _read_block(tokens: Iterator[str], *, is_html: bool) -> _Block:
    parts: list[str | Show] = []
    is_solid = False
    for token in tokens:
        if _ELSE.fullmatch(token) or _END.fullmatch(token):
            return _Block(parts, is_solid, token)
        if token:
            parts.append(_read_part(token, tokens, is_html=is_html))
            is_solid = is_solid or not (token.startswith("{%") or token.isspace())
    return _Block(parts, is_solid, None)


def _read_part(token: str, tokens: Iterator[str], *, is_html: bool) -> str | Show:
    if shown := _SHOW.fullmatch(token):
        return _shower(_path(shown["path"]), shown["minus"], is_html=is_html)
    if asked := _IF.fullmatch(token):
        return _read_if(asked, tokens, is_html=is_html)
    if "{{" in token or "{%" in token:
        raise Unsure
    return token


def _read_if(asked: re.Match[str], tokens: Iterator[str], *, is_html: bool) -> Show:
    test = _tester(_path(asked["path"]), asked["compare"], asked["number"])
    then = last = _read_block(tokens, is_html=is_html)
    otherwise = _Block([], is_solid=False, end=None)
    if then.end is not None and _ELSE.fullmatch(then.end):
        otherwise = last = _read_block(tokens, is_html=is_html)
    if last.end is None or _ELSE.fullmatch(last.end) or then.may_vanish or otherwise.may_vanish:
        raise Unsure
    return lambda values: _join(then.parts if test(values) else otherwise.parts, values)


def _path(text: str) -> tuple[str, ...]:
    path = tuple(text.split("."))
    if not _RESERVED.isdisjoint(path):
        raise Unsure
    return path


def _find(values: Values, path: tuple[str, ...]) -> object:
    """Return what is at a path; `KeyError` if it is missing, `Unsure` if it leads elsewhere."""
    found: object = values[path[0]]
    for key in path[1:]:
        if type(found) is not dict:
            raise Unsure
        found = found[key]
    return found


def _shower(path: tuple[str, ...], minus: str | None, *, is_html: bool) -> Show:
    less = int(minus or 0)

    def show(values: Values) -> str:
        try:
            found = _find(values, path)
        except KeyError:
            raise Unsure from None
        if type(found) is str and minus is None:
            return str(escape(found)) if is_html else found
        if type(found) is int and -_NUMBER < found < _NUMBER:
            return str(found - less)
        raise Unsure

    return show


def _tester(path: tuple[str, ...], compare: str | None, number: str | None) -> Test:
    if compare is None or number is None:
        return lambda values: _is_true(values, path)
    relation, right = _COMPARE[compare], int(number)

    def test(values: Values) -> bool:
        try:
            found = _find(values, path)
        except KeyError:
            raise Unsure from None
        if type(found) is not int:
            raise Unsure
        return relation(found, right)

    return test


def _is_true(values: Values, path: tuple[str, ...]) -> bool:
    """Everything is true but nil, false, and what is missing."""
    try:
        found = _find(values, path)
    except KeyError:
        return False
    return found is not None and found is not False
