"""Text that can be written down: no control characters, no halves of characters."""

from __future__ import annotations

import unicodedata

# Control characters, one of which PostgreSQL does not take, and halves of surrogate pairs, which
# no encoding takes.
_UNWRITTEN = frozenset({"Cc", "Cs"})


def is_plain(text: str) -> bool:
    """Whether every store, log and header can take the text."""
    return not any(unicodedata.category(character) in _UNWRITTEN for character in text)
