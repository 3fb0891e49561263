"""Messages that wait to be sent to other nodes, and the frames that they are sent in."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")
# Beyond it, waiting messages are dropped.
BYTES_LIMIT = 16 << 20
# Messages that are taken at a time: a few milliseconds of work.
_NOTES_AT_A_TIME = 1_000
# About what an entry takes in addition to its data.
_ENTRY_BYTES = 100
# The size at which a frame is sent.
FRAME_BYTES = 65_536


class ForAll(msgspec.Struct, array_like=True, gc=False):
    """Messages of a node to all. A later version may add to the end of it."""

    sender: str
    messages: dict[str, list[bytes]]


class ForNode(msgspec.Struct, array_like=True, gc=False):
    """Messages of a node to another about devices. A later version may add to the end of it."""

    sender: str
    # How often it was forwarded: a device may have moved while a frame was on its way.
    hops: int
    # By subject: the devices, and the message about each of them.
    messages: dict[str, tuple[list[str], list[bytes]]]
    # Devices that the sender holds now, and since when.
    replaced: dict[str, int]


class Note(NamedTuple):
    """A message to the holder of a device."""

    subject: str
    device_id: str
    data: bytes
    hops: int = 0


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


encode = msgspec.msgpack.Encoder().encode
decode_for_all = msgspec.msgpack.Decoder(ForAll).decode
decode_for_node = msgspec.msgpack.Decoder(ForNode).decode


def pack_for_all(sender: str, messages: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield frames of at most 64 KiB, or of one message that is larger."""
    by_subject: dict[str, list[bytes]] = defaultdict(list)
    size = 0
    for subject, data in messages:
        if size + len(data) > FRAME_BYTES and by_subject:
            yield encode(ForAll(sender, by_subject))
            by_subject, size = defaultdict(list), 0
        by_subject[subject].append(data)
        size += len(data)
    if by_subject:
        yield encode(ForAll(sender, by_subject))


def pack_for_node(
    sender: str, notes: Iterable[Note], replaced: dict[str, int]
) -> Iterator[tuple[bytes, list[str]]]:
    """Yield frames of at most 64 KiB, or of one note that is larger, each with its devices."""
    messages: dict[str, tuple[list[str], list[bytes]]] = defaultdict(lambda: ([], []))
    names: list[str] = []
    size = hops = 0
    for note in notes:
        is_full = size + len(note.data) > FRAME_BYTES or note.hops != hops
        if is_full and names:
            yield encode(ForNode(sender, hops, messages, {})), names
            messages, names, size = defaultdict(lambda: ([], [])), [], 0
        devices, items = messages[note.subject]
        devices.append(note.device_id)
        items.append(note.data)
        names.append(note.device_id)
        size += len(note.data) + len(note.device_id)
        hops = note.hops
    if names or replaced:
        yield encode(ForNode(sender, hops, messages, replaced)), names
