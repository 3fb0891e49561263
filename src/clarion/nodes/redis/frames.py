"""What one node says to another in one message: everything that waited, by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

# A frame is sent when it has so many bytes.
FRAME_BYTES = 65_536


class ForAll(msgspec.Struct, array_like=True, gc=False):
    """What a node says to all. A later version may add to the end of it."""

    sender: str
    said: dict[str, list[bytes]]


class ForNode(msgspec.Struct, array_like=True, gc=False):
    """What a node says to another about devices. A later version may add to the end of it."""

    sender: str
    # How often it was passed on: a device may have moved while a frame was on its way.
    hops: int
    # By subject: the devices, and what is said about each of them.
    said: dict[str, tuple[list[str], list[bytes]]]
    # Devices that the sender holds now, and since when.
    replaced: dict[str, int]


class Note(NamedTuple):
    """What is to be said to the holder of a device."""

    subject: str
    device_id: str
    data: bytes
    hops: int = 0


encode = msgspec.msgpack.Encoder().encode
decode_for_all = msgspec.msgpack.Decoder(ForAll).decode
decode_for_node = msgspec.msgpack.Decoder(ForNode).decode


def pack_for_all(sender: str, said: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield frames of at most 64 KiB, or of one item that is larger."""
    by_subject: dict[str, list[bytes]] = defaultdict(list)
    size = 0
    for subject, data in said:
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
    said: dict[str, tuple[list[str], list[bytes]]] = defaultdict(lambda: ([], []))
    names: list[str] = []
    size = hops = 0
    for note in notes:
        is_full = size + len(note.data) > FRAME_BYTES or note.hops != hops
        if is_full and names:
            yield encode(ForNode(sender, hops, said, {})), names
            said, names, size = defaultdict(lambda: ([], [])), [], 0
        devices, items = said[note.subject]
        devices.append(note.device_id)
        items.append(note.data)
        names.append(note.device_id)
        size += len(note.data) + len(note.device_id)
        hops = note.hops
    if names or replaced:
        yield encode(ForNode(sender, hops, said, replaced)), names
