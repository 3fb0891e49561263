"""A device that costs its process little: it finds frames and ids by their place in the bytes.

`bench.device` reads frames properly. This one is for measurements, where the devices share the
processors with the server. It knows the frames of Clarion's server as they are written.
"""

import asyncio
import base64
import socket
from array import array
from time import perf_counter
from typing import cast

from bench.device import PATH, TEXT, encode_frame

_NOTIFICATION = b'{"type":"notification","id":"'
_ID_LENGTH = 36
_KEY = base64.b64encode(bytes(16)).decode()
_UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()
# Of Linux; Python has a name for it from 3.12 on.
IP_BIND_ADDRESS_NO_PORT = 24
_PONG = encode_frame(TEXT, b'{"type":"pong"}')
# Messages that many devices get: what was found in one of them, and its acknowledgement.
_KNOWN_LIMIT = 1_000


class Inbox:
    """What all devices of a process have received, and how they acknowledge.

    With `ack_every` above one, messages to topics are acknowledged by sequence, so many at a time.
    """

    def __init__(self, ack_every: int = 1) -> None:
        self.ack_every = ack_every
        self.latencies = array("d")
        self.first_at = self.last_at = 0.0
        self.lost = 0
        self._known: dict[bytes, tuple[float, bytes]] = {}

    def look_up(self, data: bytes, start: int, end: int) -> tuple[float, bytes]:
        """Return when the message in a frame was due, and the frame that acknowledges it."""
        message_id = data[start + len(_NOTIFICATION) : start + len(_NOTIFICATION) + _ID_LENGTH]
        known = self._known.get(message_id)
        if known is None:
            if len(self._known) >= _KNOWN_LIMIT:
                del self._known[next(iter(self._known))]
            due_at = _number_after(data, b'"at":', start, end)
            known = self._known[message_id] = (
                due_at,
                self._acknowledgement(message_id, data, start, end),
            )
        return known

    def _acknowledgement(self, message_id: bytes, data: bytes, start: int, end: int) -> bytes:
        if self.ack_every == 1:
            return encode_frame(TEXT, b'{"type":"ack","id":"%s"}' % message_id)
        topic = data.split(b'"topic":"', 1)[1].split(b'"', 1)[0]
        sequence = int(_number_after(data, b'"sequence":', start, end))
        return encode_frame(TEXT, b'{"type":"ack","topic":"%s","sequence":%d}' % (topic, sequence))

    def note(self, latencies: list[float], now: float) -> None:
        """Count messages that have just come."""
        if not self.latencies:
            self.first_at = now
        self.last_at = now
        self.latencies.extend(latencies)


class LightDevice(asyncio.Protocol):
    """One connection of one device."""

    __slots__ = ("_hello", "_inbox", "_is_upgraded", "_last_ack", "_rest", "_since_ack", "ready",
                 "transport")  # fmt: skip

    def __init__(self, token: str, secret: str, inbox: Inbox) -> None:
        hello = b'{"type":"hello","token":"%s","secret":"%s"}' % (token.encode(), secret.encode())
        self.transport: asyncio.Transport
        self.ready: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        self._hello = encode_frame(TEXT, hello)
        self._inbox = inbox
        self._is_upgraded = False
        self._rest = b""
        self._since_ack = 0
        self._last_ack = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(_UPGRADE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inbox.lost += 1
        if self.ready is not None:
            self.ready.set_exception(exc or ConnectionError("the server has closed"))

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        if not self._is_upgraded:
            data = self._upgrade(data)
        at, acks, latencies, now = 0, [], [], perf_counter()
        while (found := _frame_at(data, at)) is not None:
            start, at = found
            if data.startswith(_NOTIFICATION, start):
                due_at, ack = self._inbox.look_up(data, start, at)
                latencies.append(now - due_at)
                acks.append(ack)
            elif self.ready is not None:
                self.ready.set_result(None)
                self.ready = None
            else:
                self._take_other(data[start:at])
        self._rest = data[at:]
        if latencies:
            self._acknowledge(acks)
            self._inbox.note(latencies, now)

    def acknowledge_rest(self) -> None:
        """Acknowledge what came since the last acknowledgement."""
        if self._since_ack:
            self.transport.write(self._last_ack)
            self._since_ack = 0

    def _acknowledge(self, acks: list[bytes]) -> None:
        every = self._inbox.ack_every
        if every == 1:
            self.transport.write(b"".join(acks))
            return
        before, self._since_ack = self._since_ack, (self._since_ack + len(acks)) % every
        self._last_ack = acks[-1]
        if before + len(acks) >= every:
            due = acks[every - 1 - before :: every]
            self.transport.write(b"".join(due))

    def _take_other(self, frame: bytes) -> None:
        if frame.startswith(b'{"type":"ping"'):
            self.transport.write(_PONG)

    def _upgrade(self, data: bytes) -> bytes:
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            return data
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(head.decode(errors="replace"))
        self._is_upgraded = True
        self.transport.write(self._hello)
        return rest


def _frame_at(data: bytes, at: int) -> tuple[int, int] | None:
    """Return where the payload of a frame begins and ends; None if it is not complete."""
    if len(data) < at + 4:
        return None
    size, start = data[at + 1], at + 2
    if size == 126:
        size, start = data[at + 2] << 8 | data[at + 3], at + 4
    return (start, start + size) if start + size <= len(data) else None


def _number_after(data: bytes, name: bytes, start: int, end: int) -> float:
    """Return the number that follows a name in JSON; 0 if it is not there."""
    found = data.find(name, start, end)
    if found < 0:
        return 0.0
    digits = data[found + len(name) : end]
    for last, byte in enumerate(digits):
        if byte not in b"0123456789.":
            return float(digits[:last])
    return float(digits)


async def connect(
    port: int, token: str, secret: str, inbox: Inbox, *, source: str = "127.0.0.1"
) -> LightDevice:
    """Open a connection from an address of this machine, and wait until the server is ready."""
    loop = asyncio.get_running_loop()
    opened = socket.socket()
    opened.setblocking(False)  # noqa: FBT003 - the socket's own signature
    # The port is chosen when it connects. To find one that is free for any server takes the kernel
    # a millisecond when thousands of connections have just ended.
    opened.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    opened.bind((source, 0))
    await loop.sock_connect(opened, ("127.0.0.1", port))
    _, device = await loop.create_connection(lambda: LightDevice(token, secret, inbox), sock=opened)
    if device.ready is not None:
        await device.ready
    return device
