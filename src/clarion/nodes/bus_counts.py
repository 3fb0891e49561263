"""What a bus has done since its start, for the metrics: plain numbers, read at each scrape."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum


class DropReason(StrEnum):
    """Why something that was to be told did not leave this node, or was not understood here."""

    UNAVAILABLE = "unavailable"  # nobody could be reached
    FULL = "full"  # more waited than there is space for
    UNREADABLE = "unreadable"  # another version's frame


@dataclass(slots=True)
class BusCounts:
    """Messages are what is told; frames are what they are sent in."""

    messages_sent: int = 0
    messages_received: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    rebuilds: int = 0  # times it heard again
    dropped: dict[DropReason, int] = field(default_factory=lambda: defaultdict(int))
