"""The text of HTML, for readers without it: links as `text (url)`, one line for each block.

Its time is linear in any HTML, because it runs in the event loop. The parser of the
standard library takes quadratic time for tags that are not closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape

_TOKEN = re.compile(r"<[^<>]*+>|[^<]++|<")
_TAG = re.compile(r"<\s*(/?)\s*([a-zA-Z][a-zA-Z0-9]*)")
_HREF = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_LINK = re.compile(r"(?:https?://|mailto:)\S+", re.IGNORECASE)
# More digits are no character, and Python refuses to read thousands of them.
_LONG_NUMBER = re.compile(r"&#x?[0-9a-f]{8,}+;?", re.IGNORECASE)
_HIDDEN = frozenset({"head", "script", "style", "title"})
_BLOCKS = frozenset(
    """
    address article blockquote br dd div dl dt fieldset footer form h1 h2 h3 h4 h5 h6 header hr
    li main nav ol p pre section table tbody tr ul
    """.split()  # noqa: SIM905 - as a literal it takes a line for each name
)
_CELLS = frozenset({"td", "th"})


class _Writer:
    """Takes the tokens of HTML in turn, and collects their text."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._hidden = ""  # the element whose content is not shown
        self._link = ""
        self._link_from = 0

    def add_text(self, text: str) -> None:
        if not self._hidden:
            self.parts.append(" ".join(_read(text).splitlines()))

    def add_tag(self, name: str, tag: str, *, is_end: bool) -> None:
        if self._hidden:
            self._hidden = "" if is_end and name == self._hidden else self._hidden
        elif name in _HIDDEN:
            self._hidden = "" if is_end else name
        elif name == "a":
            self._end_link()
            self._link = "" if is_end else _find_link(tag)
        elif name in _BLOCKS:
            self.parts.append("\n- " if name == "li" and not is_end else "\n")
        elif name in _CELLS:
            self.parts.append(" ")

    def _end_link(self) -> None:
        if self._link and self._link != "".join(self.parts[self._link_from :]).strip():
            self.parts.append(f" ({self._link})")
        self._link, self._link_from = "", len(self.parts)


def to_plain_text(html: str) -> str:
    """Return the text of HTML."""
    writer = _Writer()
    for token in _TOKEN.findall(_drop_comments(html)):
        if found := _TAG.match(token):
            writer.add_tag(found[2].lower(), token, is_end=bool(found[1]))
        elif token[:2] not in ("<!", "<?"):
            writer.add_text(token)
    lines = (" ".join(line.split()) for line in "".join(writer.parts).split("\n"))
    return "\n".join(_join_blank(lines)).strip() + "\n"


def _drop_comments(html: str) -> str:
    parts, end = [], 0
    while (start := html.find("<!--", end)) >= 0:
        parts.append(html[end:start])
        end = html.find("-->", start) + 3
        if end < start:  # it is not closed: nothing after it is shown
            return "".join(parts)
    parts.append(html[end:])
    return "".join(parts)


def _join_blank(lines: Iterable[str]) -> list[str]:
    """Return the lines with at most one blank one in a row."""
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    return kept


def _find_link(tag: str) -> str:
    found = _HREF.search(tag)
    link = _read(next(filter(None, found.groups()), "")).strip() if found else ""
    return link if _LINK.fullmatch(link) else ""


def _read(text: str) -> str:
    return unescape(_LONG_NUMBER.sub("", text))
