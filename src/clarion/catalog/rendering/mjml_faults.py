"""What is wrong with MJML, and where, if that is certain.

The parser names a place for some faults only, in bytes. It compares the number of start and end
tags but not their names, so that it notices much later that one is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from clarion.catalog.rendering.limits import show_place

_UNREADABLE = "unable to parse next template"
_ENDED = "unexpected end of stream"
_WHERE = re.compile(r"(?P<what>.*?) in root template(?: at position (?P<start>\d+):(?P<end>\d+))?")
_NAME = r"[^\W\d][\w.:-]*"
_VALUE = r"\"[^\"]*\"|'[^']*'"
_MARKUP = re.compile(
    rf"<!--\[if[^<>]*>|<!\[(?:if|endif)[^<>]*>|<!--(?!>|->)(?:(?!--).)*-->|"
    rf"<(?P<start>{_NAME})(?:\s+{_NAME}(?:\s*=\s*(?:{_VALUE}))?)*\s*(?P<empty>/?)>|"
    rf"</(?P<end>{_NAME})\s*>",
    re.DOTALL,
)
_BRANCH = re.compile(
    r"\{%-?\s*(?:(?P<end>end)?(?P<block>if|unless|case|for)|(?P<other>else|elsif|when))\b"
)
# The elements of HTML that have no end tag.
_VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input"),
        *("link", "meta", "param", "source", "track", "wbr"),
    )
)
_SHOWN = 60


def explain(text: str, message: str, parse: Callable[[str], str | None]) -> str:
    """Return what the parser says in words, with line and column if they are certain.

    `parse` returns the message of the parser, or None for a text without a fault.
    """
    if not (found := _WHERE.fullmatch(message)):
        return message
    if found["what"] == _UNREADABLE:
        return _find_unreadable(text, parse) or "some of it cannot be parsed"
    start = int(found["start"] or -1)
    at = len(text) if start < 0 else len(text.encode()[:start].decode(errors="replace"))
    # The parser notices at a later tag that one is missing or surplus.
    if (unpaired := _find_unpaired(text)) and unpaired[1] <= at:
        return f"{unpaired[0]}{show_place(text, unpaired[1])}"
    if start < 0 or text.startswith("</", at):
        return found["what"]
    token = text.encode()[start : int(found["end"])].decode(errors="replace")
    return f"{found['what']} {token[:_SHOWN]}{show_place(text, at)}"


def _find_unreadable(text: str, parse: Callable[[str], str | None]) -> str | None:
    """Return the tag that cannot be parsed; the parser confirms that all before it can be."""
    at = text.find("<")
    while at >= 0:
        if not (found := _MARKUP.match(text, at)):
            return _show_unreadable(text, at) if _is_confirmed(text, at, parse) else None
        at = text.find("<", found.end())
    return None


def _is_confirmed(text: str, at: int, parse: Callable[[str], str | None]) -> bool:
    following = text.find("<", at + 1)
    until = text if following < 0 else text[:following]
    return _ENDED in (parse(text[:at]) or "") and _UNREADABLE in (parse(until) or "")


def _show_unreadable(text: str, at: int) -> str:
    shown = re.compile(r"<[^<>\n]*>?").match(text, at)
    tag = shown[0][:_SHOWN].rstrip() if shown else "<"
    return f"{tag} cannot be parsed{show_place(text, at)}"


def _find_unpaired(text: str) -> tuple[str, int] | None:
    """Return what is wrong with the first tag whose counterpart is missing, and its index."""
    opened: list[tuple[str, int]] = []
    for name, at, is_end in _tags(text):
        if not is_end:
            opened.append((name, at))
        elif opened and opened[-1][0] == name:
            opened.pop()
        elif not _is_inside(opened, name):
            return f"</{name}> closes no element", at
        elif not _is_mjml(name) and _leaves_branch(text[opened[-1][1] : at]):
            # Elements of HTML overlap here, and the parser allows it.
            return None
        else:
            break
    return (f"<{opened[-1][0]}> is not closed", opened[-1][1]) if opened else None


def _tags(text: str) -> Iterator[tuple[str, int, bool]]:
    for found in _MARKUP.finditer(text):
        if name := found["end"]:
            yield name, found.start(), True
        elif (name := found["start"]) and not found["empty"] and name not in _VOID:
            yield name, found.start(), False


def _is_mjml(name: str) -> bool:
    return name.startswith("mj")


def _is_inside(opened: list[tuple[str, int]], name: str) -> bool:
    """Return whether an element is open; one of HTML does not reach beyond one of MJML."""
    for other, _at in reversed(opened):
        if other == name or (_is_mjml(other) and not _is_mjml(name)):
            return other == name
    return False


def _leaves_branch(text: str) -> bool:
    """Return whether a text begins and ends in different branches of Liquid."""
    depth = 0
    for found in _BRANCH.finditer(text):
        if found["block"]:
            depth += -1 if found["end"] else 1
        if depth < 0 or (depth == 0 and found["other"]):
            return True
    return depth != 0
