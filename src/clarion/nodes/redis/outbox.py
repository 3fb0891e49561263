"""What waits to be sent to other nodes: bounded, and taken in portions."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from clarion.nodes.redis.frames import Note

T = TypeVar("T")
# Beyond it, what is said is dropped.
BYTES_LIMIT = 16 << 20
# What is taken at a time: a few milliseconds of work.
_NOTES_AT_A_TIME = 1_000
# What an entry takes beside its data, about.
_ENTRY_BYTES = 100


class Outbox:
    """What is to be said to all nodes, to the holders of devices, and to former holders."""

    def __init__(self, bytes_limit: int = BYTES_LIMIT) -> None:
        self._bytes_limit = bytes_limit
        self._said: deque[tuple[str, bytes]] = deque()
        self._notes: deque[Note] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._said or self._notes)

    def __len__(self) -> int:
        return len(self._said) + len(self._notes)

    def say(self, subject: str, data: bytes) -> bool:
        """Add what is for all nodes; False if there is no space."""
        if not self._has_space(data):
            return False
        self._said.append((subject, data))
        return True

    def note(self, note: Note) -> bool:
        """Add what is for the holder of a device; False if there is no space."""
        if not self._has_space(note.data):
            return False
        self._notes.append(note)
        return True

    def take_said(self) -> list[tuple[str, bytes]]:
        taken = _take(self._said)
        self._size -= sum(len(data) + _ENTRY_BYTES for _, data in taken)
        return taken

    def take_notes(self) -> list[Note]:
        taken = _take(self._notes)
        self._size -= sum(len(note.data) + _ENTRY_BYTES for note in taken)
        return taken

    def clear(self) -> int:
        """Drop everything, and return how much that was."""
        count = len(self)
        self._said.clear()
        self._notes.clear()
        self._size = 0
        return count

    def _has_space(self, data: bytes) -> bool:
        size = self._size + len(data) + _ENTRY_BYTES
        if size > self._bytes_limit:
            return False
        self._size = size
        return True


def _take(waiting: deque[T]) -> list[T]:
    if len(waiting) <= _NOTES_AT_A_TIME:
        taken = list(waiting)
        waiting.clear()
        return taken
    return [waiting.popleft() for _ in range(_NOTES_AT_A_TIME)]
