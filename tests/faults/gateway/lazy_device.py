"""A device that reads only when it is asked to."""

import asyncio
import json
import socket
import struct

from bench.device import CLOSE, PATH, TEXT, encode_frame, next_frame
from bench.installation import secret_of, token_of

PATIENCE_S = 60.0


class LazyDevice:
    """A device that says hello and then reads only when the test asks for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""

    @classmethod
    async def connect(cls, port: int) -> "LazyDevice":
        """Connect with the smallest of buffers, so that the server notices soon."""
        narrow = socket.socket()
        narrow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.setblocking(False)  # noqa: FBT003 - the socket's own signature
        await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", port))
        device = cls(*await asyncio.open_connection(sock=narrow, limit=1024))
        device._writer.write(
            f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await device._reader.readuntil(b"\r\n\r\n")
        return device

    async def send_hello(self, number: int = 0) -> None:
        hello = {"type": "hello", "token": token_of(number), "secret": secret_of(number)}
        await self.send(hello)
        opcode, payload = await self.read_frame()
        assert (opcode, json.loads(payload)["type"]) == (TEXT, "ready")

    async def send(self, frame: object) -> None:
        self._writer.write(encode_frame(TEXT, json.dumps(frame).encode()))
        await self._writer.drain()

    async def read_frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while (frame := next_frame(self._rest, 0)) is None:
                data = await self._reader.read(65_536)
                if not data:
                    raise EOFError
                self._rest += data
        opcode, payload, end = frame
        self._rest = self._rest[end:]
        return opcode, payload

    async def read_to_the_end(self) -> int | None:
        """Read all there is and return the code of the close; None if it ends without one."""
        try:
            while True:
                opcode, payload = await self.read_frame()
                if opcode == CLOSE:
                    (code,) = struct.unpack_from(">H", payload)
                    return int(code)
        except (EOFError, ConnectionError):
            return None

    def leave(self) -> None:
        self._writer.transport.abort()
