"""Text in a header: UTF-8, or encoded words (RFC 2047), which clients use for non-ASCII text."""

from __future__ import annotations

import base64
import binascii
import re

_WORD = re.compile(r"=\?([A-Za-z0-9-]{1,20})(?:\*[A-Za-z-]{1,20})?\?([bBqQ])\?([!->@-~]*)\?=")
# White space between two encoded words separates them, and is no part of the text.
_BETWEEN = re.compile(r"(?<=\?=)[ \t]+(?==\?[A-Za-z0-9*-]{1,41}\?[bBqQ]\?)")
_CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1"})
_QUOTED = re.compile(rb"=([0-9A-Fa-f]{2})")


def read_text(value: bytes) -> str:
    """Return the text of a header; `ValueError` if it is not encoded correctly."""
    try:
        text = value.decode().strip()
    except UnicodeDecodeError:
        raise ValueError("must be UTF-8, or encoded words (RFC 2047)") from None
    return _WORD.sub(_decode, _BETWEEN.sub("", text)) if "=?" in text else text


def _decode(word: re.Match[str]) -> str:
    charset, encoding, content = word[1].lower(), word[2].lower(), word[3]
    if charset not in _CHARSETS:
        raise ValueError(f"must be encoded in UTF-8, not in {charset}")
    try:
        raw = base64.b64decode(content, validate=True) if encoding == "b" else _unquote(content)
        return raw.decode(charset)
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("has an encoded word (RFC 2047) that is not valid") from None


def _unquote(content: str) -> bytes:
    plain = content.replace("_", " ").encode()
    return _QUOTED.sub(lambda found: bytes([int(found[1], 16)]), plain)
