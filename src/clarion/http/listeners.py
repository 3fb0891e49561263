"""The listener with TLS, and the one for HTTP/2 without: Granian, embedded in our event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from granian._granian import ASGIWorker, CallbackScheduler, SocketHolder
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from clarion.errors import StartError
from clarion.settings.types import ListenAddress
from clarion.system.descriptors import FEW_WAITING

CONNECTIONS = 20_000
_BACKLOG = 1_024
# As Apple's. A client can open more before it knows the limit: aioapns assumes 1,000, and waits
# forever for a push that is refused beyond the limit.
_STREAMS = 1_000
# Requests that may run at a time, not counting live streams. Each takes about 7 KiB.
_RUNNING = 3_000
# Up to 600 start in arrival order. With more, connections take turns, which costs a tenth of a
# short request, and up to 5,000 wait. Of those that arrive together, 50 start in each round of the
# loop: a step of a thousand takes 100 ms.
_AT_ONCE = 600
_STARTED_TOGETHER = 50
_WAITING = 5_000
# When the queue is full, a connection that has only a few requests in it may add some more.
_FEW_ARRIVED = 10
# Connections without room that are passed over to find one that has some.
_LOOK_AHEAD = 50
# Both for the API and for APNs: the path has not been looked at.
_BUSY = (
    {
        "type": "http.response.start",
        "status": 503,
        "headers": [(b"content-type", b"application/problem+json"), (b"retry-after", b"1")],
    },
    {
        "type": "http.response.body",
        "body": b'{"type":"/docs/errors#overloaded","title":"Service Unavailable","status":503,'
        b'"code":"overloaded","detail":"Too many requests are waiting.","errors":[],'
        b'"reason":"ServiceUnavailable"}',
    },
)
_START_TIMEOUT_S = 10.0
_START_POLL_S = 0.01


class HttpListener:
    """Serves HTTP on one address."""

    def __init__(
        self,
        app: Any,
        address: ListenAddress,
        *,
        max_header_bytes: int,
        connections: int = CONNECTIONS,
        count_streams: Callable[[], int] = int,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._server = Server(
            app,
            address=address.host,
            port=address.port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=False,
            backlog=FEW_WAITING if connections < _BACKLOG else _BACKLOG,
            backpressure=connections,  # counts connections, not requests
            http1_settings=HTTP1Settings(
                header_read_timeout=10_000,  # in milliseconds
                max_buffer_size=max_header_bytes,
            ),
            http2_settings=HTTP2Settings(
                max_concurrent_streams=_STREAMS,
                max_headers_size=max_header_bytes,
                keep_alive_interval=30_000,  # in milliseconds
                keep_alive_timeout=10,  # in seconds
            ),
            log_enabled=False,
            ssl_cert=certificate,
            ssl_key=key,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        self.address = address
        self.port = address.port  # if it is 0, the one that the system has chosen
        self.count_streams = count_streams
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_failed: Callable[[str], None]) -> None:
        """Listen, and return when connections are accepted; `on_failed` is called if that ends."""

        def report(task: asyncio.Task[None]) -> None:
            if not self._is_stopping and not task.cancelled():
                on_failed(f"the listener on {self.address} stopped: {task.exception()!r}")

        serve: Any = partial(_serve, self)
        serving = self._server.serve(serve)
        self._task = asyncio.get_running_loop().create_task(serving)
        self._task.add_done_callback(report)
        async with asyncio.timeout(_START_TIMEOUT_S):
            # Granian does not report when it listens, so we try to connect.
            while not self._task.done() and not (self.port and await self._is_listening()):  # noqa: ASYNC110
                await asyncio.sleep(_START_POLL_S)

    async def _is_listening(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.address.host, self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests and wait for running ones, at most `grace_s`."""
        if self._task is None:
            return
        self._is_stopping = True
        self._server.stop()  # type: ignore[no-untyped-call]
        done, _ = await asyncio.wait([self._task], timeout=grace_s)
        if not done:
            self._task.cancel()


class _Scheduler(CallbackScheduler):
    """Passes requests from the thread of a listener to the event loop, in batches.

    Granian has no limit of its own. A client that makes the server reset its streams can start more
    requests than the limit of streams, and the loop must answer those that were reset too. So when
    many requests run, the others wait in a queue for each connection, from which they are started
    in turn: a client that sends a few is not behind one that sends thousands. Beyond a limit they
    are refused.
    """

    count_streams: Callable[[], int]  # live streams do not count

    def __init__(self, loop: asyncio.AbstractEventLoop, app: Any, *_unused: None) -> None:
        super().__init__()
        self._event_loop = loop
        self._app = app
        # Each with the first part of its body, if that is on its way.
        self._arrived: deque[tuple[Any, Any]] = deque()
        # Of the thread of the listener: the requests of each connection, once the queue is full.
        self._arrived_of: Counter[Any] | None = None
        # Of the event loop alone.
        self._running = 0
        self._waiting = ConnectionTurns()
        self._of_connection: defaultdict[Any, int] = defaultdict(int)
        self._is_draining = False
        self._schedule_fn = self._schedule

    def _schedule(self, watcher: Any) -> None:
        """Take a request. Called in the thread of the listener."""
        if len(self._arrived) >= _WAITING and not self._takes(watcher.scope["client"]):
            _refuse(watcher)
            return
        self._arrived.append((watcher, _begin_body(watcher)))
        # Set before the loop is woken and cleared before it looks: nothing is left behind.
        if not self._is_draining:
            self._is_draining = True
            self._event_loop.call_soon_threadsafe(self._drain, context=self._ctx)

    def _takes(self, connection: Any) -> bool:
        """Whether a connection may have one more request arrive before the loop has looked."""
        counts = self._arrived_of
        if counts is None:
            arrived = tuple(self._arrived)
            counts = self._arrived_of = Counter(each.scope["client"] for each, _ in arrived)
        counts[connection] += 1
        return counts[connection] <= _FEW_ARRIVED and len(self._arrived) < 2 * _WAITING

    async def _answer(self, watcher: Any, begun: Any) -> None:
        proto = watcher.proto
        receive = proto.receive if begun is None else _Begun(begun, proto.receive)
        try:
            await self._app(watcher.scope, receive, proto.send)
        except BaseException as error:  # noqa: BLE001 - Granian logs it and closes the stream
            watcher.err(error)
        else:
            watcher.done()
        finally:
            self._running -= 1
            if self._waiting.count:
                self._drain_soon()

    async def _answer_in_turn(self, connection: Any, watcher: Any, begun: Any) -> None:
        """Answer, and count it for the connection: those that run at once are few."""
        self._of_connection[connection] += 1
        try:
            await self._answer(watcher, begun)
        finally:
            self._of_connection[connection] -= 1
            if not self._of_connection[connection]:
                del self._of_connection[connection]

    def _start(self, answering: Any, watcher: Any) -> None:
        self._running += 1
        watcher.taskref(self._event_loop.create_task(answering))

    def _drain_soon(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._event_loop.call_soon(self._drain, context=self._ctx)

    def _drain(self) -> None:
        """Start some of the new and the waiting requests, one connection after the other."""
        self._is_draining = False
        self._arrived_of = None
        left = self._start_arrived(_STARTED_TOGETHER)
        while left and (taken := self._waiting.take(self._has_room)) is not None:
            connection, (watcher, begun) = taken
            self._start(self._answer_in_turn(connection, watcher, begun), watcher)
            left -= 1
        if not left and (self._waiting.count or self._arrived):
            self._drain_soon()

    def _start_arrived(self, left: int) -> int:
        """Start some of those that have arrived; if there are too many, all take turns."""
        arrived = self._arrived
        if self._waiting.count or self._running + len(arrived) > _AT_ONCE:
            self._let_arrived_wait()
        while left and arrived:
            watcher, begun = arrived.popleft()
            self._start(self._answer(watcher, begun), watcher)
            left -= 1
        return left

    def _let_arrived_wait(self) -> None:
        while self._arrived:
            request = self._arrived.popleft()
            if not self._waiting.add(request[0].scope["client"], request):
                _refuse(request[0])

    def _has_room(self, connection: Any) -> bool:
        """Whether a connection may start a request: under load, if it runs fewer than others."""
        if self._running < _RUNNING + self.count_streams():
            return True
        share = _RUNNING // (len(self._of_connection) + 1)
        return self._of_connection.get(connection, 0) < max(1, share)


class _Begun:
    """`receive` of a request whose first part was asked for when it arrived."""

    __slots__ = ("_first", "_receive")

    def __init__(self, first: Any, receive: Any) -> None:
        self._first = first
        self._receive = receive

    def __call__(self) -> Any:
        first, self._first = self._first, None
        return self._receive() if first is None else first


class ConnectionTurns:
    """Requests that wait, by connection. Those of a connection keep their order."""

    def __init__(self) -> None:
        self._queues: dict[Any, deque[Any]] = {}
        self.count = 0

    def add(self, connection: Any, request: Any) -> bool:
        """Add a request; False if there are too many, and this connection has its share of them."""
        queue = self._queues.setdefault(connection, deque())
        share = max(1, _WAITING // len(self._queues)) if self.count >= _WAITING else _STREAMS
        if len(queue) >= share:
            return False
        queue.append(request)
        self.count += 1
        return True

    def take(self, has_room: Callable[[Any], bool]) -> tuple[Any, Any] | None:
        """Return the next connection with its request, or None if none of the next may start."""
        for connection in tuple(islice(self._queues, _LOOK_AHEAD)):
            queue = self._queues.pop(connection)
            request = queue.popleft() if has_room(connection) else None
            if queue:
                self._queues[connection] = queue  # behind all the others
            if request is not None:
                self.count -= 1
                return connection, request
        return None


def _begin_body(watcher: Any) -> Any:
    """Ask for the first part of a body, so that it is there when the loop begins with the request.

    Asking later costs two more thread switches. Only for HTTP/2, whose buffers hold that part in
    any case.
    """
    scope = watcher.scope
    is_begun = scope["method"] == "POST" and scope["http_version"] == "2"
    return watcher.proto.receive() if is_begun else None


def _refuse(watcher: Any) -> None:
    for message in _BUSY:
        watcher.proto.send(dict(message))


async def _serve(
    listener: HttpListener, worker_id: int, stop: Any, app: Any, sock: Any, *options: Any
) -> None:
    """Run a listener as `Server._spawn_asgi_worker` does, with our scheduler."""
    if not listener.port:
        opened = socket.create_server((listener.address.host, 0), backlog=_BACKLOG)
        opened.setblocking(False)  # noqa: FBT003 - the socket's own signature
        listener.port = opened.getsockname()[1]
        holder: Any = SocketHolder
        sock = (None, holder(opened.detach(), False, _BACKLOG))  # noqa: FBT003 - not a Unix socket
    *threads, _, mode, http_1, http_2, websockets, files, _, tls, _ = options
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()
    stop.add_cb(lambda: loop.call_soon_threadsafe(stopped.set_result, None))
    settings = (mode, http_1, http_2, websockets, files, *tls, (None, None))
    worker: Any = ASGIWorker(worker_id, sock, None, *threads, *settings)  # type: ignore[arg-type]
    scheduler = _Scheduler(loop, app, None, None, None)
    scheduler.count_streams = listener.count_streams
    worker.serve_async(scheduler, loop, stop)
    await stopped


def check_free(addresses: Iterable[tuple[str, ListenAddress]]) -> None:
    """Raise a `StartError` that names every address that cannot be listened on."""
    faults = [fault for flag, address in addresses if (fault := _try_bind(flag, address))]
    if faults:
        raise StartError("\n".join(faults))


@contextlib.contextmanager
def reserve(addresses: Iterable[tuple[str, ListenAddress]]) -> Iterator[None]:
    """Keep addresses for listeners of other processes of this account.

    They listen with SO_REUSEPORT, and connections are spread over those that do. A socket that is
    bound and does not listen gets none; it only keeps other programs away.
    """
    addresses = list(addresses)
    check_free(addresses)
    with contextlib.ExitStack() as stack:
        for flag, address in addresses:
            try:
                for family, where in resolve(address):
                    bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    bound.bind(where)
                    # It was for connections that have just ended. Others could use it, too.
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            except OSError as error:
                raise StartError(f"{flag}: {_explain(address, error)}") from error
        yield


def resolve(address: ListenAddress) -> list[tuple[int, Any]]:
    """Return the family and the socket address of everything that an address stands for."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((each[0], each[4]) for each in found))


def _try_bind(flag: str, address: ListenAddress) -> str | None:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
    except OSError as error:
        return f"{flag}: {_explain(address, error)}"
    return None


def _explain(address: ListenAddress, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {address.port} is in use. Stop the program that uses it, or choose another port."
        )
    if error.errno == errno.EACCES:
        return f"this account may not listen on port {address.port}. Choose one above 1023."
    return f"cannot listen on {address} ({error.strerror}). Choose an address of this machine."
