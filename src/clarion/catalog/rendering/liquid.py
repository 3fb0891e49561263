"""Liquid with limits on time, loops, text and filters; undefined values are errors, not blanks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any

from liquid import BoundTemplate, Environment, FalsyStrictUndefined, RenderContext, Token
from liquid.exceptions import ResourceLimitError

from clarion.catalog.rendering.limits import LOOP_LIMIT, TEXT_LIMIT_BYTES, TIME_LIMIT_S

# Of parsed templates, which take up to 2 MB each in the sandbox's limited memory.
_CACHE_LIMIT = 64
# A filter that repeats one text inside another multiplies their sizes.
_MULTIPLYING = frozenset({"join", "replace", "replace_first", "replace_last"})
_MULTIPLIER = 256
_LARGEST_NUMBER = 10**15
# Filters that take time with the square of their input, or more than their input says.
_LENGTHS = {"uniq": 1_000, "strip_html": 4_096, "date": 100}
_DIGITS = 30
# These read other templates, write HTML, or are meant for tools.
_REMOVED_TAGS = ("include", "render", "tablerow", "liquid", "doc")
# These would insert values into HTML unescaped.
_REMOVED_FILTERS = ("safe", "escapejs")
# Only directives without a width: with one, a date format can produce a billion blanks.
_DATE_FORMAT = re.compile(r"(?:[^%]|%-?[A-Za-z%]){0,100}")


class TimeLimitError(ResourceLimitError):
    """Rendering took too long."""


class _TimedContext(RenderContext):
    """Checks the time on every read, assignment, filter and loop iteration.

    It is processor time: a template must not fail because the machine is busy with other work.
    """

    __slots__ = ("_ends_at",)

    def __init__(self, template: BoundTemplate, **more: Any) -> None:
        super().__init__(template, **more)
        self._ends_at = time.thread_time() + TIME_LIMIT_S

    def _check_time(self) -> None:
        if time.thread_time() > self._ends_at:
            msg = "rendering takes too long"
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
    context_class = _TimedContext


class _LimitedEnvironment(Environment):
    block_nesting_limit = 10
    context_depth_limit = 10
    loop_iteration_limit = LOOP_LIMIT
    local_namespace_limit = TEXT_LIMIT_BYTES
    output_stream_limit = TEXT_LIMIT_BYTES
    template_class = _BoundTemplate

    def setup_tags_and_filters(self, *, extra: bool = False) -> None:
        super().setup_tags_and_filters(extra=extra)
        for tag in _REMOVED_TAGS:
            self.tags.pop(tag, None)
        for name in _REMOVED_FILTERS:
            self.filters.pop(name, None)
        self.filters = {name: _limit_filter(name, each) for name, each in self.filters.items()}


def _limit_filter(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter with limits on the size of its input and output."""
    longest = _MULTIPLIER if name in _MULTIPLYING else TEXT_LIMIT_BYTES
    largest = _DIGITS if name == "round" else _LARGEST_NUMBER

    @wraps(plain)
    def limited(value: object, *arguments: object, **named: object) -> Any:
        _check_size(value, _LENGTHS.get(name, TEXT_LIMIT_BYTES))
        for argument in arguments:
            _check_size(argument, longest, largest)
            if name == "date" and not _DATE_FORMAT.fullmatch(str(argument)):
                raise _too_much()
        result = plain(value, *arguments, **named)
        _check_size(result, TEXT_LIMIT_BYTES)
        return result

    return limited


def _check_size(value: object, longest: int, largest: int = _LARGEST_NUMBER) -> None:
    match value:
        case str():
            is_over = len(value) > longest
        case list() | tuple() | range():
            is_over = len(value) > min(longest, TEXT_LIMIT_BYTES // 8)
        case int() | float():
            is_over = abs(value) > largest
        case _:
            is_over = False
    if is_over:
        raise _too_much()


def _too_much() -> ResourceLimitError:
    return ResourceLimitError("the input or output of a filter is too large", token=None)


# An undefined name is an error where it is shown, and false in a condition.
_PLAIN = _LimitedEnvironment(undefined=FalsyStrictUndefined)
_HTML = _LimitedEnvironment(undefined=FalsyStrictUndefined, autoescape=True)


@lru_cache(_CACHE_LIMIT)
def parse(text: str, *, is_html: bool) -> BoundTemplate:
    """Return the parsed template; `LiquidError` if it is invalid."""
    return (_HTML if is_html else _PLAIN).from_string(text)


def known_filters() -> frozenset[str]:
    return frozenset(_PLAIN.filters)


def render(text: str, context: Mapping[str, object], *, is_html: bool) -> str:
    return str(parse(text, is_html=is_html).render(context))
