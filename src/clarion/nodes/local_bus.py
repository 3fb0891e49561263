"""The bus between the processes of one machine: a socket for each pair of them.

The parent of the processes creates the sockets and passes one end to each (`processes/`). They have
no name, so no other program can connect. A socket lasts as long as both processes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

import msgspec

from clarion.nodes.receivers import Receivers

_HEADER_BYTES = 4
# Messages of one turn of the loop are sent at its end, or when they have this size.
_FRAME_BYTES = 64 * 1024
# What a process may leave unread. Then nothing is sent to it until it has read most of it, and the
# next frame says that it missed something.
OUTBOX_BYTES = 8 * 1024 * 1024
_READ_AGAIN_BYTES = 1024 * 1024
# A larger frame is not ours.
_LONGEST_FRAME_BYTES = 64 * 1024 * 1024
# Devices in a frame when all that are held are sent.
_HELD_AT_ONCE = 5_000
# A process that ends may have a commit in progress.
_SETTLE_S = 1.0
# How long `settle` waits for a process that does not answer.
_SEEN_S = 0.5
_CLOSE_S = 1.0


class Frame(msgspec.Struct, array_like=True):
    """What one process sends to another at a time."""

    # When each connection was opened; None for released ones.
    held: dict[str, int | None] = {}
    # By subject.
    messages: dict[str, list[bytes]] = {}
    # Whether `held` is complete: the receiver forgets what it knew of this process.
    is_all: bool = False
    # Whether the receiver missed something.
    has_missed: bool = False
    # A number that the receiver sends back when it has seen this frame; and one that is sent back.
    asked: int = 0
    seen: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class _Link(asyncio.Protocol):
    """The socket to one other process, and the data that waits to be sent."""

    def __init__(
        self,
        number: int,
        receive: Callable[[_Link, Frame], None],
        on_lost: Callable[[_Link], None],
        on_room: Callable[[_Link], None],
    ) -> None:
        self.number = number
        self.is_first_read = False
        self.ended = asyncio.get_running_loop().create_future()
        self._receive, self._on_lost, self._on_room = receive, on_lost, on_room
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._next = Frame()
        self._next_bytes = 0
        self.is_full = False
        self._has_dropped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=OUTBOX_BYTES, low=_READ_AGAIN_BYTES)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)
        self.ended.set_result(None)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._has_dropped:
            self._has_dropped = False
            self._on_room(self)

    def data_received(self, data: bytes) -> None:
        self._read += data
        start = 0
        while len(self._read) - start >= _HEADER_BYTES:
            size = int.from_bytes(self._read[start : start + _HEADER_BYTES], "big")
            if size > _LONGEST_FRAME_BYTES:
                self.close()
                return
            end = start + _HEADER_BYTES + size
            if len(self._read) < end:
                break
            frame = _decode(memoryview(self._read)[start + _HEADER_BYTES : end])
            start = end
            self._receive(self, frame)
            self.is_first_read = True
        del self._read[:start]

    def add(self, subject: str, data: bytes) -> None:
        self._next.messages.setdefault(subject, []).append(data)
        self._next_bytes += len(data)
        if self._next_bytes >= _FRAME_BYTES:
            asked, self._next.asked = self._next.asked, 0
            self.flush()
            self._next.asked = asked  # at the end of the turn

    def set_held(self, device_id: str, since: int | None) -> None:
        """Add to the next frame; of several entries for a device the last one counts."""
        self._next.held[device_id] = since

    def ask(self, number: int) -> None:
        """Have a number sent back when the next frame was seen."""
        self._next.asked = number

    def answer(self, number: int) -> None:
        """Send a number back, with the next frame."""
        self._next.seen = number

    def flush(self) -> None:
        """Send the next frame, if it is not empty."""
        frame = self._next
        if frame.held or frame.messages or frame.asked or frame.seen:
            self._next, self._next_bytes = Frame(), 0
            self.send(frame)

    def send(self, frame: Frame) -> None:
        """Send a frame; drop it if too much waits."""
        if self.is_full or self._transport is None:
            self._has_dropped = True
            return
        content = _encode(frame)
        self._transport.write(len(content).to_bytes(_HEADER_BYTES, "big") + content)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Settling(NamedTuple):
    """The processes that have not yet confirmed a number."""

    links: set[_Link]
    done: asyncio.Future[None]


class LocalBus:
    """The `Bus` port between processes of one machine. Each publishes which devices it holds.

    `is_connected` is true only if no other machine uses the database: this bus reaches none.
    """

    def __init__(self, number: int, *, is_alone: bool = False) -> None:
        self.number = number
        self.is_connected = is_alone
        self._links: list[_Link] = []
        self._first_frame = asyncio.Event()
        self._receivers = Receivers()
        self.subscribe = self._receivers.subscribe
        self.on_gap = self._receivers.on_gap
        self.on_replaced = self._receivers.on_replaced
        self._held: dict[str, int] = {}
        self._elsewhere: dict[str, tuple[int, _Link]] = {}
        self._asked = 0
        self._settling: dict[int, _Settling] = {}
        self._is_flushing = False
        self._is_asking = False
        self._is_closed = False

    # The port.

    def publish(self, subject: str, data: bytes) -> None:
        for link in self._links:
            link.add(subject, data)
        self._flush_soon()

    def send_to_holder(self, subject: str, device_id: str, data: bytes) -> None:
        if found := self._elsewhere.get(device_id):
            found[1].add(subject, data)
            self._flush_soon()

    def hold(self, device_id: str, since: int) -> None:
        found = self._elsewhere.get(device_id)
        if found and (found[0], found[1].number) > (since, self.number):
            asyncio.get_running_loop().call_soon(self._receivers.replace, [device_id])
            return
        self._elsewhere.pop(device_id, None)
        self._held[device_id] = since
        self._publish_held(device_id, since)

    def release(self, device_id: str) -> None:
        if self._held.pop(device_id, None) is not None:
            self._publish_held(device_id, None)

    async def settle(self) -> None:
        if not self._is_asking:
            self._ask()
        if settling := self._settling.get(self._asked):
            await asyncio.shield(settling.done)

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        return frozenset(each for each in device_ids if each in self._elsewhere)

    # The processes.

    @property
    def others(self) -> list[int]:
        """The numbers of the processes to which there is a socket."""
        return [each.number for each in self._links]

    def send_to_process(self, number: int, subject: str, data: bytes) -> None:
        """Send a message to one process."""
        for link in self._links:
            if link.number == number:
                link.add(subject, data)
        self._flush_soon()

    async def join(self, number: int, end: socket.socket) -> None:
        """Exchange frames with another process over a socket, until one of the two ends."""
        end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        on_room = partial(self._publish_all_held, has_missed=True)
        link = _Link(number, self._receive, self._lose, on_room)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: link, sock=end)
        self._links.append(link)
        self._publish_all_held(link)

    async def wait_for_first_frames(self, limit_s: float) -> None:
        """Wait until every other process has sent which devices it holds, at most `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                while not all(link.is_first_read for link in self._links):
                    self._first_frame.clear()
                    await self._first_frame.wait()
        except TimeoutError:
            pass  # it hangs, or has ended: messages for it are in the store

    async def close(self) -> None:
        """Send waiting data, and close all sockets."""
        self._is_closed = True
        links = tuple(self._links)
        for link in links:
            link.flush()
            link.close()
        ends = [link.ended for link in links]
        if ends and (await asyncio.wait(ends, timeout=_CLOSE_S))[1]:
            for link in links:
                link.abort()  # the other process does not read
            await asyncio.wait(ends)

    def _publish_held(self, device_id: str, since: int | None) -> None:
        for link in self._links:
            link.set_held(device_id, since)
        self._flush_soon()

    def _publish_all_held(self, link: _Link, *, has_missed: bool = False) -> None:
        held: Iterator[tuple[str, int | None]] = iter(self._held.items())
        first = dict(islice(held, _HELD_AT_ONCE))
        link.send(Frame(held=first, is_all=True, has_missed=has_missed))
        while some := dict(islice(held, _HELD_AT_ONCE)):
            link.send(Frame(held=some))

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = self._is_asking = False
        for link in self._links:
            link.flush()

    def _ask(self) -> None:
        """Ask all others whether they have received the data sent at the end of this turn."""
        links = {link for link in self._links if not link.is_full}
        if not links:
            return
        loop = asyncio.get_running_loop()
        self._asked += 1
        self._is_asking = True
        self._settling[self._asked] = _Settling(links, loop.create_future())
        for link in links:
            link.ask(self._asked)
        loop.call_later(_SEEN_S, self._end_settling, self._asked)
        self._flush_soon()

    def _note_seen(self, link: _Link, number: int) -> None:
        for asked in [each for each in self._settling if each <= number]:
            self._settling[asked].links.discard(link)
            if not self._settling[asked].links:
                self._end_settling(asked)

    def _end_settling(self, number: int) -> None:
        settling = self._settling.pop(number, None)
        if settling is not None and not settling.done.done():
            settling.done.set_result(None)

    def _receive(self, link: _Link, frame: Frame) -> None:
        if frame.is_all:
            self._forget(link)
        self._receivers.replace(list(self._note_held(link, frame.held)))
        for subject, messages in frame.messages.items():
            self._receivers.receive(subject, messages)
        if frame.has_missed:
            self._receivers.miss()
        if frame.asked:
            link.answer(frame.asked)
            self._flush_soon()
        if frame.seen:
            self._note_seen(link, frame.seen)
        self._first_frame.set()

    def _note_held(self, link: _Link, held: dict[str, int | None]) -> Iterable[str]:
        """Store which devices another process holds; yield those that it took from this one."""
        for device_id, since in held.items():
            known = self._elsewhere.get(device_id)
            if since is None:
                if known and known[1] is link:
                    del self._elsewhere[device_id]
                continue
            ours = self._held.get(device_id)
            if ours is not None and (ours, self.number) > (since, link.number):
                continue  # that process receives ours
            if known is None or (known[0], known[1].number) <= (since, link.number):
                self._elsewhere[device_id] = (since, link)
            if ours is not None:
                del self._held[device_id]
                yield device_id

    def _forget(self, link: _Link) -> None:
        self._elsewhere = {
            device_id: known for device_id, known in self._elsewhere.items() if known[1] is not link
        }

    def _lose(self, link: _Link) -> None:
        if link in self._links:
            self._links.remove(link)
        self._forget(link)
        self._first_frame.set()
        self._note_seen(link, self._asked)
        if not self._is_closed:
            asyncio.get_running_loop().call_later(_SETTLE_S, self._receivers.miss)
