"""Finds pages by words: half a megabyte of text, which takes some milliseconds to look through."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from clarion.manual.pages import Page, read_pages
from clarion.manual.rendering import name_heading

QUERY_LENGTH = 100
_WORDS = 8
_RESULTS = 20
_AROUND = 90
_IN_TITLE, _IN_HEADING = 50, 10
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# A comment in a command begins like a heading.
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# What is for the renderer, not for the reader.
_MARKS = re.compile(r"\]\([^)]*\)|[`*\[\]|]|^#+ |-{3,}", re.MULTILINE)


class Found(NamedTuple):
    """A page with all words: the nearest heading, and the text around the first of them."""

    page: Page
    heading: str
    anchor: str
    text: str


def search(query: str) -> list[Found]:
    """Return the pages that have all words of a query, the best first, at most 20."""
    words = query.casefold().split()[:_WORDS]
    if not words:
        return []
    scores = {page: _score(page, words) for page in read_pages().values()}
    best = sorted((page for page in scores if scores[page]), key=lambda page: -scores[page])
    return [_show(page, words) for page in best[:_RESULTS]]


def _score(page: Page, words: list[str]) -> int:
    text, title, headings = _folded(page)
    if not all(word in text for word in words):
        return 0
    return sum(
        min(text.count(word), 20)
        + _IN_TITLE * (word in title)
        + _IN_HEADING * min(headings.count(word), 3)
        for word in words
    )


@cache
def _folded(page: Page) -> tuple[str, str, str]:
    headings = "\n".join(found[1] for found in _find_headings(page))
    return page.text.casefold(), page.title.casefold(), headings.casefold()


@cache
def _find_headings(page: Page) -> tuple[re.Match[str], ...]:
    plain = _CODE.sub(lambda found: " " * len(found[0]), page.text)
    return tuple(_HEADING.finditer(plain))


def _show(page: Page, words: list[str]) -> Found:
    # A heading with a word is nearer to what is asked than the first mention.
    text = page.text.casefold()
    starts = [found.start() for found in _find_headings(page)]
    titled = [at for at in starts[1:] if any(word in _line(text, at) for word in words)]
    at = titled[0] if titled else min(text.find(word) for word in words)
    before = [start for start in starts if start <= at]
    heading = _line(page.text, before[-1]).lstrip("# ") if len(before) > 1 else ""
    shown = _MARKS.sub("", page.text[max(0, at - _AROUND) : at + 2 * _AROUND])
    anchor = name_heading(heading.replace("`", "")) if heading else ""
    return Found(page, heading, anchor, " ".join(shown.split()))


def _line(text: str, at: int) -> str:
    return text[at:].partition("\n")[0]
