"""A device on the gateway's socket: says hello, passes messages on, and acknowledges.

WebSocket by hand on plain asyncio, so that one process can be thousands of devices.
"""

import asyncio
import base64
import struct
from collections.abc import Callable, Iterator
from typing import Protocol, cast

import msgspec

PATH = "/v1/gateway"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL = 0x80
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">Q")
# A mask of zeros leaves the payload as it is, and is as good as any for a server of our own.
_NO_MASK = bytes(4)


class Ready(msgspec.Struct, tag_field="type", tag="ready"):
    """The server knows the device."""

    device_id: str
    heartbeat_s: int
    pending: int


class Notification(msgspec.Struct, tag_field="type", tag="notification"):
    """A message to the device."""

    id: str
    payload: msgspec.Raw
    priority: int
    sent_at: str
    collapse_id: str | None = None
    topic: str | None = None


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """Wants a pong."""


class Pong(msgspec.Struct, tag_field="type", tag="pong"):
    """Answers a ping."""


_decode = msgspec.json.Decoder(Ready | Notification | Ping | Pong).decode
_encode = msgspec.json.Encoder().encode


class Listener(Protocol):
    """Receives what happens on a device's connection."""

    def on_ready(self, socket: "DeviceSocket", ready: Ready) -> None:
        """The server has accepted the device."""
        ...

    def on_messages(self, socket: "DeviceSocket", messages: list[Notification]) -> None:
        """Messages have come together; `socket.acknowledge` is the listener's to call."""
        ...

    def on_closed(self, socket: "DeviceSocket", code: int | None) -> None:
        """The connection has ended; the code is None if the server sent none."""
        ...


class DeviceSocket(asyncio.Protocol):
    """One connection of one device."""

    __slots__ = ("_code", "_hello", "_is_upgraded", "_listener", "_rest", "transport")

    def __init__(self, token: str, secret: str, listener: Listener) -> None:
        self.transport: asyncio.Transport
        self._hello = _encode({"type": "hello", "token": token, "secret": secret})
        self._listener = listener
        self._is_upgraded = False
        self._rest = b""
        self._code: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        key = base64.b64encode(bytes(16)).decode()
        self.transport.write(
            f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # the reason is in the close code
        self._listener.on_closed(self, self._code)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if not self._is_upgraded and not self._upgrade():
            return
        messages: list[Notification] = []
        for opcode, payload in self._frames():
            if opcode == TEXT:
                self._take(payload, messages)
            elif opcode == CLOSE:
                self._code = _SHORT.unpack_from(payload)[0] if payload else None
                self.transport.close()
        if messages:
            self._listener.on_messages(self, messages)

    def acknowledge(self, messages: list[Notification]) -> None:
        """Acknowledge messages."""
        self.send({"type": "ack", "ids": [message.id for message in messages]})

    def send(self, frame: object) -> None:
        """Send a frame as JSON text."""
        self.transport.write(encode_frame(TEXT, _encode(frame)))

    def cut(self) -> None:
        """End the connection without a close frame."""
        self.transport.abort()

    def _upgrade(self) -> bool:
        head, found, rest = self._rest.partition(b"\r\n\r\n")
        if not found:
            return False
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(head.decode(errors="replace"))
        self._rest = rest
        self._is_upgraded = True
        self.transport.write(encode_frame(TEXT, self._hello))
        return True

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the complete frames that have come, and keep the rest."""
        data, at = self._rest, 0
        while (frame := next_frame(data, at)) is not None:
            opcode, payload, at = frame
            yield opcode, payload
        self._rest = data[at:]

    def _take(self, payload: bytes, messages: list[Notification]) -> None:
        match _decode(payload):
            case Notification() as message:
                messages.append(message)
            case Ready() as ready:
                self._listener.on_ready(self, ready)
            case Ping():
                self.send({"type": "pong"})
            case _:
                pass


def next_frame(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Return opcode, payload and end of the frame at an offset; None if it is incomplete."""
    if len(data) < at + 2:
        return None
    size, start = data[at + 1], at + 2
    if size == 126 and len(data) >= at + 4:
        size, start = _SHORT.unpack_from(data, at + 2)[0], at + 4
    elif size == 127 and len(data) >= at + 10:
        size, start = _LONG.unpack_from(data, at + 2)[0], at + 10
    elif size > 125:
        return None
    if len(data) < start + size:
        return None
    return data[at] & 0x0F, data[start : start + size], start + size


def encode_frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    """Return a frame as a client sends it."""
    first, size = opcode | (FINAL if is_final else 0), len(payload)
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65_536:
        head = bytes((first, 0x80 | 126)) + _SHORT.pack(size)
    else:
        head = bytes((first, 0x80 | 127)) + _LONG.pack(size)
    return head + _NO_MASK + payload


async def connect(
    port: int, token: str, secret: str, listener: Listener, *, host: str = "127.0.0.1"
) -> DeviceSocket:
    """Open a connection; the rest goes to the listener. OSError if nothing answers."""
    make: Callable[[], DeviceSocket] = lambda: DeviceSocket(token, secret, listener)  # noqa: E731
    _, socket = await asyncio.get_running_loop().create_connection(make, host, port)
    return socket
