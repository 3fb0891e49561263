"""A round-robin TCP proxy: each new connection goes to the next of several servers.

It runs in a thread of its own, so that tests which block may use it. It forwards bytes and ends as
they come, whatever the protocol: HTTP/1.1, HTTP/2, TLS, WebSocket. A client that opens a connection
for each request meets another server each time.
"""

import asyncio
import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

HOST = "127.0.0.1"
LIMIT_S = 60.0
CHUNK_BYTES = 65_536
WAITING_CONNECTIONS = 4_096


class Balancer:
    """Listens on ports, each with the addresses of its servers, as long as the context lasts."""

    def __init__(self, targets: dict[int, Sequence[tuple[str, int]]]) -> None:
        self._turns = {port: itertools.cycle(servers) for port, servers in targets.items()}
        self._tries = {port: len(servers) for port, servers in targets.items()}
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._end: asyncio.Event
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_listening.wait(LIMIT_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        listeners = [
            socket.create_server((HOST, port), backlog=WAITING_CONNECTIONS) for port in self._turns
        ]
        for listener in listeners:
            listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
            self._loop.add_reader(listener, self._accept, listener)
        self._is_listening.set()
        await self._end.wait()
        for listener in listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        """Not awaited: a connection that is accepted at the end would be lost with its task."""
        with suppress(OSError):
            client, (address, _) = listener.accept()
            client.setblocking(False)  # noqa: FBT003 - as above
            task = self._loop.create_task(self._forward(client, listener.getsockname()[1], address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # Also that of a task which is cancelled before it has begun.
            task.add_done_callback(lambda _: client.close())

    async def _forward(self, client: socket.socket, port: int, address: str) -> None:
        if server := await self._connect(port, address):
            with server:
                await asyncio.gather(self._pump(client, server), self._pump(server, client))

    async def _connect(self, port: int, address: str) -> socket.socket | None:
        """Connect to the next server that answers, from the address from which the client came."""
        for _ in range(self._tries[port]):
            server, target = socket.socket(), next(self._turns[port])
            server.setblocking(False)  # noqa: FBT003 - as above
            try:
                if target[0] == HOST:
                    server.bind((address, 0))
                await self._loop.sock_connect(server, target)
            except OSError:
                server.close()
            except BaseException:
                server.close()
                raise
            else:
                _send_at_once(server)
                return server
        return None

    async def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Forward until the source ends; an end or a reset of it reaches the target."""
        how = socket.SHUT_WR
        try:
            while data := await self._loop.sock_recv(source, CHUNK_BYTES):
                # A server that refuses a body answers and closes while more of it comes: that is
                # read and dropped, so that the answer gets back.
                with suppress(OSError):
                    await self._loop.sock_sendall(target, data)
        except OSError:
            how = socket.SHUT_RDWR
        with suppress(OSError):
            target.shutdown(how)


def _send_at_once(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
