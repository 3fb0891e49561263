"""What connected devices are compared with: picows alone, which sends, counts, and stores nothing.

`python -m bench.bare_sockets PORT CONTROL_PORT`. Devices connect to the first port. A line on the
second, `MESSAGES WINDOW RATE`, has it send so many messages to all devices, each acknowledged; at
most WINDOW messages are on their way, or as many as RATE says go out in a second.
"""

import asyncio
import socket
import sys
import uuid
from time import perf_counter

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

_READY = b'{"type":"ready","device_id":"","heartbeat_s":30,"pending":0}'


class Peers:
    """All connections, and how many frames have come from them."""

    def __init__(self) -> None:
        self.open: list[WSTransport] = []
        self.frames = 0
        self._wanted = 0
        self._are_enough = asyncio.Event()

    def note(self) -> None:
        """Count a frame."""
        self.frames += 1
        if self.frames == self._wanted:
            self._are_enough.set()

    async def send(self, messages: int, window: int, rate: float) -> None:
        """Send messages to everybody, and wait until all are acknowledged."""
        began_at, before = perf_counter(), self.frames
        for number in range(messages):
            due = began_at + number / rate if rate else perf_counter()
            await asyncio.sleep(max(0.0, due - perf_counter()))
            await self._wait_for(before + (number - window + 1) * len(self.open))
            self._send_one(due if rate else perf_counter())
        await self._wait_for(before + messages * len(self.open))

    async def _wait_for(self, frames: int) -> None:
        if self.frames < frames:
            self._wanted = frames
            self._are_enough.clear()
            await self._are_enough.wait()

    def _send_one(self, due_at: float) -> None:
        message_id = str(uuid.uuid4()).encode()
        frame = (
            b'{"type":"notification","id":"%s","payload":{"aps":{"alert":'
            b'"The harbour is closed today"},"at":%.6f},"priority":10,"topic":"news","sequence":1,'
            b'"sent_at":"2026-01-01T00:00:00.000Z"}' % (message_id, due_at)
        )
        for transport in self.open:
            transport.send(WSMsgType.TEXT, frame)


class Peer(WSListener):
    """One connection: the first frame is its hello, the others are acknowledgements."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._is_known = False

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        elif not self._is_known:
            self._is_known = True
            self._peers.open.append(transport)
            transport.send(WSMsgType.TEXT, _READY)
        else:
            frame.get_payload_as_bytes()
            self._peers.note()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if transport in self._peers.open:
            self._peers.open.remove(transport)


async def serve(port: int, control_port: int) -> None:
    """Serve until killed."""
    peers = Peers()

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            messages, window, rate = line.split()
            await peers.send(int(messages), int(window), float(rate))
            writer.write(b"done\n")

    await asyncio.start_server(control, "127.0.0.1", control_port)
    server = await ws_create_server(
        lambda _: Peer(peers), "127.0.0.1", port, backlog=1024, use_aiofastnet=False,
        read_buffer_init_size=1024,
    )  # fmt: skip
    await server.serve_forever()


class Control:
    """The other end of the control port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def send(self, messages: int, *, window: int = 1, rate: float = 0.0) -> None:
        """Have messages sent to all devices; returns when all are acknowledged."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(b"%d %d %f\n" % (messages, window, rate))
            connection.recv(16)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
