"""A child process that is spoken to over a socket: each message is its length, then its bytes.

The child ends when the server closes the socket or dies. `open_child` and the asynchronous side are
the server's; `send` and `receive` are the child's.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import asyncio

_HEADER_BYTES = 4


class Child(NamedTuple):
    """A process, and the server's end of its socket."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def open_child(module: str, *arguments: str, **options: Any) -> Child:
    """Start a module as a process; its first argument is the descriptor of its socket."""
    import asyncio  # noqa: PLC0415 - the child does without: it is half of what it would import

    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(theirs.fileno()),
            *arguments,
            pass_fds=[theirs.fileno()],
            stdin=asyncio.subprocess.DEVNULL,
            **options,
        )
    ours.setblocking(False)  # noqa: FBT003 - the socket's own signature
    reader, writer = await asyncio.open_connection(sock=ours)
    return Child(process, reader, writer)


def write(writer: asyncio.StreamWriter, message: bytes) -> None:
    """Write a message to the child."""
    # In one call: the length alone would wake the child, only to wait for the rest.
    writer.writelines((len(message).to_bytes(_HEADER_BYTES, "big"), message))


async def read(reader: asyncio.StreamReader) -> bytes:
    """Read a message of the child; `EOFError` if it ended."""
    size = int.from_bytes(await reader.readexactly(_HEADER_BYTES), "big")
    return await reader.readexactly(size)


def send(channel: socket.socket, message: bytes) -> None:
    """Send a message to the server."""
    channel.sendall(len(message).to_bytes(_HEADER_BYTES, "big") + message)


def receive(channel: socket.socket) -> bytes:
    """Return the next message of the server, or nothing if it ended, also in the middle of one."""
    header = _receive_exactly(channel, _HEADER_BYTES)
    return _receive_exactly(channel, int.from_bytes(header, "big")) if header else b""


def _receive_exactly(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)
