"""An email as a preview may show it: with a placeholder for each image that it would load."""

from __future__ import annotations

import re

_PLACEHOLDER = (
    "data:image/svg+xml,"
    "%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 width=%22120%22 height=%2260%22%3E"
    "%3Crect width=%22100%25%22 height=%22100%25%22 fill=%22%23ccc%22/%3E%3C/svg%3E"
)
_LINKS = re.compile(r"<link\b[^>]*>", re.IGNORECASE)
_TAGS = re.compile(r"<(?!script\b)\w[^>]*>", re.IGNORECASE)
_SOURCES = re.compile(
    r"\b(src|background|poster)\s*=\s*"
    r"(?:\"(?!data:)[^\"]*\"|'(?!data:)[^']*'|(?![\"']|data:)[^\s>]+)",
    re.IGNORECASE,
)
_SETS = re.compile(r"\bsrcset\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>]+)", re.IGNORECASE)
_STYLES = re.compile(r"@import[^;]*;?|url\(\s*(?![\"']?data:)[^)]*\)", re.IGNORECASE)


def hide_remote(html: str) -> str:
    """Return the document with grey boxes instead of images, and without styles from elsewhere.

    For tidiness alone: the policy of the frame keeps it from loading anything, and the browser
    would report each attempt.
    """
    html = _TAGS.sub(lambda tag: _hide_sources(tag[0]), _LINKS.sub("", html))
    return _STYLES.sub(lambda found: "" if found[0][0] == "@" else "none", html)


def _hide_sources(tag: str) -> str:
    return _SOURCES.sub(lambda found: f'{found[1]}="{_PLACEHOLDER}"', _SETS.sub("", tag))
