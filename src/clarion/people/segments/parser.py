"""The text of a filter → a `Filter`.

filter     = all { "or" all }
all        = not { "and" not }
not        = { "not" } ( "(" filter ")" | comparison )
comparison = FIELD ( = | != | < | <= | > | >= ) VALUE
           | FIELD [ "not" ] "in" "(" VALUE { "," VALUE } ")"
VALUE      = 'text' | number | true | false
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clarion.people.segments.comparisons import (
    IN,
    NOT_IN,
    Literal,
    check_field,
    check_number,
    check_text,
    make_comparison,
)
from clarion.people.segments.filters import All, AnyOf, Filter, Not
from clarion.people.segments.tokens import FilterError, Token, TokenKind, read_tokens, unquote

DEPTH_LIMIT = 16
CONDITIONS_LIMIT = 32
VALUES_LIMIT = 100
_KEYWORDS = frozenset({"and", "or", "not", "in", "true", "false"})
_VALUE = "a value: a text in single quotes, a number, true or false"
T = TypeVar("T")


def parse(text: str) -> Filter:
    """Return the filter that a text describes; `FilterError` says what is wrong, and where."""
    parser = _Parser(text)
    found = parser.read_filter()
    parser.expect_end()
    return found


class _Parser:
    """Reads tokens one after the other; none is read twice."""

    def __init__(self, text: str) -> None:
        self._tokens = read_tokens(text)
        self._next = next(self._tokens)
        self._depth = 0
        self._conditions = 0

    def read_filter(self) -> Filter:
        parts = [self._read_all()]
        while self._take_word("or"):
            parts.append(self._read_all())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def expect_end(self) -> None:
        if self._next.kind is not TokenKind.END:
            raise self._expected("and, or, or the end")

    def _read_all(self) -> Filter:
        parts = [self._read_not()]
        while self._take_word("and"):
            parts.append(self._read_not())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _read_not(self) -> Filter:
        is_negated = False
        while self._take_word("not"):
            is_negated = not is_negated
        found = self._read_group() if self._take_mark("(") else self._read_comparison()
        return Not(found) if is_negated else found

    def _read_group(self) -> Filter:
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise self._refuse(f"parentheses may be nested {DEPTH_LIMIT} levels deep")
        found = self.read_filter()
        self._expect_mark(")", "and, or, or )")
        self._depth -= 1
        return found

    def _read_comparison(self) -> Filter:
        start = self._next
        self._conditions += 1
        if self._conditions > CONDITIONS_LIMIT:
            raise self._refuse(f"a filter has at most {CONDITIONS_LIMIT} conditions")
        field = self._read_field()
        operator = self._read_operator()
        literals = self._read_list() if operator in (IN, NOT_IN) else [self._read_value()]
        return _check(start, lambda: make_comparison(field, operator, literals))

    def _read_field(self) -> str:
        token = self._next
        if token.kind is not TokenKind.WORD or token.text.lower() in _KEYWORDS:
            raise self._expected("a field, like language or attributes.plan")
        self._advance()
        return _check(token, lambda: check_field(token.text))

    def _read_operator(self) -> str:
        token = self._next
        if token.kind is TokenKind.OPERATOR:
            self._advance()
            return token.text
        is_negated = self._take_word("not")
        if not self._take_word("in"):
            raise self._expected("in" if is_negated else "one of = != < <= > >= in")
        return NOT_IN if is_negated else IN

    def _read_list(self) -> list[Literal]:
        self._expect_mark("(", "( and a list of values")
        values = [self._read_value()]
        while self._take_mark(","):
            if len(values) == VALUES_LIMIT:
                raise self._refuse(f"a list has at most {VALUES_LIMIT} values")
            values.append(self._read_value())
        self._expect_mark(")", ", or )")
        return values

    def _read_value(self) -> Literal:
        token = self._next
        self._advance()
        if token.kind is TokenKind.TEXT:
            return _check(token, lambda: check_text(unquote(token.text)))
        if token.kind is TokenKind.NUMBER:
            return _check(token, lambda: check_number(float(token.text)))
        if token.kind is TokenKind.WORD and token.text.lower() in ("true", "false"):
            return token.text.lower() == "true"
        raise FilterError(f"expected {_VALUE}, found {token}", token.position)

    def _take_word(self, word: str) -> bool:
        is_it = self._next.kind is TokenKind.WORD and self._next.text.lower() == word
        if is_it:
            self._advance()
        return is_it

    def _take_mark(self, mark: str) -> bool:
        is_it = self._next.kind is TokenKind.MARK and self._next.text == mark
        if is_it:
            self._advance()
        return is_it

    def _expect_mark(self, mark: str, expected: str) -> None:
        if not self._take_mark(mark):
            raise self._expected(expected)

    def _advance(self) -> None:
        # The last token is the end, which stays.
        self._next = next(self._tokens, self._next)

    def _expected(self, what: str) -> FilterError:
        return self._refuse(f"expected {what}, found {self._next}")

    def _refuse(self, reason: str) -> FilterError:
        return FilterError(reason, self._next.position)


def _check(token: Token, check: Callable[[], T]) -> T:
    """Return the result of a check; a fault is reported at the token."""
    try:
        return check()
    except ValueError as error:
        raise FilterError(str(error), token.position) from error
