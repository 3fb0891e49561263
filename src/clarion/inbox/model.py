"""The state of an inbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InboxState:
    """How many unread, and the number of the last change."""

    unread_count: int
    sequence: int
