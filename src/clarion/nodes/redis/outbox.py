"""Messages that wait to be sent to other nodes: bounded, and taken in portions."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from clarion.nodes.redis.frames import Note

T = TypeVar("T")
# Beyond it, messages are dropped.
BYTES_LIMIT = 16 << 20
# Messages that are taken at a time: a few milliseconds of work.
_NOTES_AT_A_TIME = 1_000
# About what an entry takes in addition to its data.
_ENTRY_BYTES = 100


class Outbox:
    """Messages to all nodes, and to the holders of devices."""

    def __init__(self, bytes_limit: int = BYTES_LIMIT) -> None:
        self._bytes_limit = bytes_limit
        self._messages: deque[tuple[str, bytes]] = deque()
        self._notes: deque[Note] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._messages or self._notes)

    def __len__(self) -> int:
        return len(self._messages) + len(self._notes)

    def add(self, subject: str, data: bytes) -> bool:
        """Add a message to all nodes; False if there is no space."""
        if not self._has_space(data):
            return False
        self._messages.append((subject, data))
        return True

    def add_note(self, note: Note) -> bool:
        """Add a message to the holder of a device; False if there is no space."""
        if not self._has_space(note.data):
            return False
        self._notes.append(note)
        return True

    def take(self) -> list[tuple[str, bytes]]:
        taken = _take(self._messages)
        self._size -= sum(len(data) + _ENTRY_BYTES for _, data in taken)
        return taken

    def take_notes(self) -> list[Note]:
        taken = _take(self._notes)
        self._size -= sum(len(note.data) + _ENTRY_BYTES for note in taken)
        return taken

    def clear(self) -> int:
        """Drop everything; return the number of messages."""
        count = len(self)
        self._messages.clear()
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
