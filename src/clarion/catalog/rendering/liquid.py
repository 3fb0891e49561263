"""Liquid with every limit set: no loop, text or filter without end, and nothing left blank."""

from __future__ import annotations

import re
import time
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from liquid import BoundTemplate, Environment, FalsyStrictUndefined, RenderContext
from liquid.exceptions import ResourceLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from liquid import Token

TEXT_LIMIT_BYTES = 65_536
LOOP_LIMIT = 1_000
TIME_LIMIT_S = 0.1
_PARSED = 10_000
# A filter that writes one text into another many times multiplies their sizes.
_MULTIPLYING = frozenset({"join", "replace", "replace_first", "replace_last"})
_MULTIPLIER = 256
_NUMBER = 10**15
# What reads other templates, writes HTML, or is for tools alone.
_TAGS_LEFT_OUT = ("include", "render", "tablerow", "liquid", "doc")
# These would let a value into HTML as it is.
_FILTERS_LEFT_OUT = ("safe", "escapejs")
# A date format can ask for a billion blanks: only directives without a width.
_DATE_FORMAT = re.compile(r"(?:[^%]|%-?[A-Za-z%]){0,100}")


class TimeLimitError(ResourceLimitError):
    """It took too long."""


class _Timed(RenderContext):
    """Looks at the clock wherever a template reads, writes, filters or turns.

    At that of the processor: a machine that is busy elsewhere is not the fault of a template.
    """

    __slots__ = ("_ends_at",)

    def __init__(self, template: BoundTemplate, **more: Any) -> None:
        super().__init__(template, **more)
        self._ends_at = time.thread_time() + TIME_LIMIT_S

    def _check_time(self) -> None:
        if time.thread_time() > self._ends_at:
            msg = "the template takes too long"
            raise TimeLimitError(msg, token=None)

    def get(self, path: list[object], *, token: Token | None, **more: Any) -> object:
        self._check_time()
        return super().get(path, token=token, **more)

    def assign(self, key: str, val: Any) -> None:
        self._check_time()
        super().assign(key, val)

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        self._check_time()
        return super().filter(name, token)

    def raise_for_loop_limit(self, length: int = 1) -> None:
        self._check_time()
        super().raise_for_loop_limit(length)


class _BoundTemplate(BoundTemplate):
    context_class = _Timed


class _Bounded(Environment):
    block_nesting_limit = 10
    context_depth_limit = 10
    loop_iteration_limit = LOOP_LIMIT
    local_namespace_limit = TEXT_LIMIT_BYTES
    output_stream_limit = TEXT_LIMIT_BYTES
    template_class = _BoundTemplate

    def setup_tags_and_filters(self, *, extra: bool = False) -> None:
        super().setup_tags_and_filters(extra=extra)
        for tag in _TAGS_LEFT_OUT:
            self.tags.pop(tag, None)
        for name in _FILTERS_LEFT_OUT:
            self.filters.pop(name, None)
        self.filters = {name: _bound(name, each) for name, each in self.filters.items()}


def _bound(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter with what it takes and gives limited in size."""
    longest = _MULTIPLIER if name in _MULTIPLYING else TEXT_LIMIT_BYTES

    @wraps(plain)
    def bounded(value: object, *arguments: object, **named: object) -> Any:
        _check_size(value, TEXT_LIMIT_BYTES)
        for argument in arguments:
            _check_size(argument, longest)
            if name == "date" and not _DATE_FORMAT.fullmatch(str(argument)):
                raise _too_much()
        result = plain(value, *arguments, **named)
        _check_size(result, TEXT_LIMIT_BYTES)
        return result

    return bounded


def _check_size(value: object, longest: int) -> None:
    match value:
        case str():
            is_over = len(value) > longest
        case list() | tuple() | range():
            is_over = len(value) > TEXT_LIMIT_BYTES // 8
        case int() | float():
            is_over = abs(value) > _NUMBER
        case _:
            is_over = False
    if is_over:
        raise _too_much()


def _too_much() -> ResourceLimitError:
    return ResourceLimitError("a filter takes or gives too much", token=None)


# A name that was not given is an error where it is shown, and false where it is asked for.
_PLAIN = _Bounded(undefined=FalsyStrictUndefined)
_HTML = _Bounded(undefined=FalsyStrictUndefined, autoescape=True)


@lru_cache(_PARSED)
def parse(text: str, *, is_html: bool) -> BoundTemplate:
    """Return the template; a `LiquidError` if it is none."""
    return (_HTML if is_html else _PLAIN).from_string(text)


def known_filters() -> frozenset[str]:
    """Return the names of the filters that a template may use."""
    return frozenset(_PLAIN.filters)


def fill(text: str, values: Mapping[str, object], *, is_html: bool) -> str:
    """Return the text with the values in it."""
    return str(parse(text, is_html=is_html).render(values))
