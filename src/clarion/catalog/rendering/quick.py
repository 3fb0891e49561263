"""A compiler for simple Liquid: text, values, plain ifs. About ten times as fast as Liquid.

Its output is always that of Liquid. Anything it does not support, in a template or in the values,
is left to Liquid. It runs in the event loop, so its time is linear in the text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from markupsafe import escape

from clarion.catalog.model import Form, RenderedText, Template

Context = Mapping[str, object]
Render = Callable[[Context], str]
Condition = Callable[[Context], bool]
# In characters: at four bytes each, this is Liquid's limit in bytes.
_TEXT_LIMIT = 16_384
_CACHE_LIMIT = 2_000
_LARGEST_NUMBER = 10**15
# Values and tags: compiling takes about 3 µs for each.
_TAGS_LIMIT = 200
# Of blocks inside each other, as in Liquid.
_NESTING_LIMIT = 10
_OPENING = re.compile(r"\{[{%]")
_CLOSING = {"{{": "}}", "{%": "%}"}
_PATH = r"(?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
_VALUE = re.compile(rf"\{{\{{ *{_PATH} *(?:\| *minus: *(?P<minus>\d{{1,9}}) *)?\}}\}}", re.ASCII)
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
# Names with a meaning of their own in Liquid, anywhere in a path.
_RESERVED = frozenset(
    """
    and as blank cols contains continue else empty false first for forloop if in last limit nil
    not now null offset or required reversed size today true unless with
    """.split()  # noqa: SIM905 - as a literal it takes a line for each name
)


class Unsupported(Exception):
    """Only Liquid can render this."""


class _Block(NamedTuple):
    """The parts between two tags, and the tag that ends them; None at the end of the template."""

    parts: list[str | Render]
    has_text: bool  # there is a value or visible text in it, apart from inner blocks
    end: str | None

    @property
    def may_vanish(self) -> bool:
        """Whether Liquid might omit it, as it does with blocks that hold only whitespace."""
        return bool(self.parts) and not self.has_text


def render_quickly(
    template: Template, context: Mapping[str, object], *, is_html: bool
) -> RenderedText | None:
    """Return the text of a simple template with simple values; None if it needs Liquid."""
    body = _compile(template.body, is_html)
    subject = None if template.subject is None else _compile(template.subject, False)  # noqa: FBT003
    if body is None or (subject is None and template.subject is not None):
        return None
    try:
        return RenderedText(subject and one_line(subject(context)), body(context), is_html)
    except Unsupported:
        return None


def is_quick(template: Template) -> bool:
    """Whether a template is rendered here, unless a value is not a simple one."""
    is_html = template.form is not Form.TEXT
    texts = ((template.body, is_html), (template.subject or "", False))
    return template.form is not Form.MJML and all(_compile(*each) is not None for each in texts)


def one_line(subject: str) -> str:
    return subject if subject.isprintable() else " ".join(subject.split())


@lru_cache(_CACHE_LIMIT)
def _compile(text: str, is_html: bool) -> Render | None:  # noqa: FBT001
    return compile_quickly(text, is_html=is_html)


def compile_quickly(text: str, *, is_html: bool) -> Render | None:
    """Return a function that renders, or raises `Unsupported`; None if Liquid is needed anyway."""
    if len(text) > _TEXT_LIMIT or text.count("{{") + text.count("{%") > _TAGS_LIMIT:
        return None
    try:
        block = _read_block(_split(text), _NESTING_LIMIT, is_html=is_html)
    except Unsupported:
        return None
    if block.end is not None:
        return None

    def render(context: Context) -> str:
        rendered = "".join(_fill(block.parts, context))
        # Liquid turns every line break into a line feed.
        if len(rendered) > _TEXT_LIMIT or "\r" in rendered:
            raise Unsupported
        return rendered

    return render


def _split(text: str) -> Iterator[str]:
    """Yield text, values and tags in turn; Liquid handles those that are not closed."""
    end = 0
    while opening := _OPENING.search(text, end):
        yield text[end : opening.start()]
        end = text.find(_CLOSING[opening[0]], opening.end()) + 2
        if end == 1:
            raise Unsupported
        yield text[opening.start() : end]
    yield text[end:]


def _fill(parts: list[str | Render], context: Context) -> list[str]:
    filled: list[str] = []
    size = 0
    for part in parts:
        text = part if type(part) is str else part(context)  # type: ignore[operator]
        size += len(text)
        # Many long values would be much more before they are together.
        if size > _TEXT_LIMIT:
            raise Unsupported
        filled.append(text)
    return filled


def _read_block(tokens: Iterator[str], nesting: int, *, is_html: bool) -> _Block:
    if nesting < 0:
        raise Unsupported
    parts: list[str | Render] = []
    has_text = False
    for token in tokens:
        if _ELSE.fullmatch(token) or _END.fullmatch(token):
            return _Block(parts, has_text, token)
        if token:
            parts.append(_read_part(token, tokens, nesting, is_html=is_html))
            has_text = has_text or not (token.startswith("{%") or token.isspace())
    return _Block(parts, has_text, None)


def _read_part(token: str, tokens: Iterator[str], nesting: int, *, is_html: bool) -> str | Render:
    if value := _VALUE.fullmatch(token):
        return _compile_value(_path(value["path"]), value["minus"], is_html=is_html)
    if condition := _IF.fullmatch(token):
        return _read_if(condition, tokens, nesting - 1, is_html=is_html)
    if "{{" in token or "{%" in token:
        raise Unsupported
    return token


def _read_if(tag: re.Match[str], tokens: Iterator[str], nesting: int, *, is_html: bool) -> Render:
    condition = _compile_condition(_path(tag["path"]), tag["compare"], tag["number"])
    then = last = _read_block(tokens, nesting, is_html=is_html)
    otherwise = _Block([], has_text=False, end=None)
    if then.end is not None and _ELSE.fullmatch(then.end):
        otherwise = last = _read_block(tokens, nesting, is_html=is_html)
    if last.end is None or _ELSE.fullmatch(last.end) or then.may_vanish or otherwise.may_vanish:
        raise Unsupported
    return lambda context: "".join(
        _fill(then.parts if condition(context) else otherwise.parts, context)
    )


def _path(text: str) -> tuple[str, ...]:
    path = tuple(text.split("."))
    if not _RESERVED.isdisjoint(path):
        raise Unsupported
    return path


def _find(context: Context, path: tuple[str, ...]) -> object:
    """Return the value at a path; None if it is nil or undefined."""
    found = context.get(path[0])
    for key in path[1:]:
        if found is None:
            return None
        if type(found) is not dict:
            raise Unsupported
        found = found.get(key)
    return found


def _compile_value(path: tuple[str, ...], minus: str | None, *, is_html: bool) -> Render:
    less = int(minus or 0)

    def render(context: Context) -> str:
        found = _find(context, path)
        if type(found) is str and minus is None:
            return str(escape(found)) if is_html else found
        if type(found) is int and -_LARGEST_NUMBER < found < _LARGEST_NUMBER:
            return str(found - less)
        raise Unsupported

    return render


def _compile_condition(path: tuple[str, ...], compare: str | None, number: str | None) -> Condition:
    if compare is None or number is None:
        return lambda context: _is_true(_find(context, path))
    relation, right = _COMPARE[compare], int(number)

    def condition(context: Context) -> bool:
        found = _find(context, path)
        if type(found) is not int:
            raise Unsupported
        return relation(found, right)

    return condition


def _is_true(value: object) -> bool:
    # Unlike in Python, 0 and empty text are true.
    return value is not None and value is not False
