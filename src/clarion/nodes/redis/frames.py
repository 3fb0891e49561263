"""The frames of the bus: all messages that waited, by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

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
