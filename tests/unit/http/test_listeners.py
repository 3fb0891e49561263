"""Which addresses can be listened on, and which requests wait when there are many."""

import asyncio
import socket
from typing import Any

import pytest

from clarion.errors import StartError
from clarion.http import listeners
from clarion.http.listeners import check_free, reserve
from clarion.settings.types import ListenAddress
from tests.processes import free_port


def test_free_addresses_are_fine() -> None:
    port = free_port()
    check_free([("--listen", ListenAddress("127.0.0.1", port))])
    with socket.create_server(("127.0.0.1", port)) as listener:
        assert listener.getsockname()[1] == port


def test_every_address_that_cannot_be_used_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError) as raised:
            check_free(
                [
                    ("--listen", ListenAddress("127.0.0.1", port)),
                    ("--tls-listen", ListenAddress("127.0.0.1", free_port())),
                    ("--gateway-listen", ListenAddress("192.0.2.1", 8081)),
                    ("--gateway-tls-listen", ListenAddress("no.such.host.invalid", 8082)),
                ]
            )
    lines = raised.value.detail.splitlines()
    assert lines[0] == (
        f"--listen: port {port} is in use. Stop the program that uses it, or choose another port."
    )
    assert [line.split(":")[0] for line in lines] == [
        "--listen",
        "--gateway-listen",
        "--gateway-tls-listen",
    ]


def test_a_reserved_address_is_for_those_who_share_it() -> None:
    port = free_port()
    address = ("127.0.0.1", port)
    with reserve([("--listen", ListenAddress(*address))]):
        with socket.create_server(address, reuse_port=True) as one:
            with (
                socket.create_server(address, reuse_port=True),
                pytest.raises(OSError, match="use"),
            ):
                socket.create_server(address)
            with socket.create_connection(address, timeout=30), one.accept()[0] as accepted:
                assert accepted.getsockname() == address
        # Nobody listens, as if all processes had ended.
        with pytest.raises(OSError, match="use"):
            socket.create_server(address)
        with pytest.raises(StartError, match=f"--listen: port {port} is in use"):
            check_free([("--listen", ListenAddress(*address))])
    check_free([("--listen", ListenAddress(*address))])


class Watcher:
    """A request as the listener hands it over; `responses` are the statuses it was sent."""

    def __init__(self, connection: str) -> None:
        self.scope = {"client": connection, "method": "GET", "http_version": "1.1"}
        self.proto = self
        self.responses: list[int] = []

    def send(self, message: dict[str, Any]) -> None:
        if "status" in message:
            self.responses.append(message["status"])


async def test_a_flood_of_one_connection_leaves_room_for_others() -> None:
    """The requests of all were refused while those of one waited to be looked at."""
    scheduler = listeners._Scheduler(asyncio.get_running_loop(), None, None, None, None)
    flood = [Watcher("flood") for _ in range(listeners._WAITING + 1)]
    for each in flood:
        scheduler._schedule(each)
    other, many = Watcher("other"), [Watcher(str(n)) for n in range(2 * listeners._WAITING)]
    scheduler._schedule(other)
    assert [each.responses for each in (*flood[-2:], other)] == [[], [503], []]
    for each in many:
        scheduler._schedule(each)
    assert len(scheduler._arrived) == 2 * listeners._WAITING
    scheduler._arrived.clear()


class Asked(Watcher):
    """A request that is answered."""

    is_answered = False

    def taskref(self, task: asyncio.Task[None]) -> None:
        self.task = task

    async def receive(self) -> None:
        """Never called."""

    def done(self) -> None:
        self.is_answered = True


class Sent(Asked):
    """A request over HTTP/2 with a body in two parts."""

    def __init__(self, method: str) -> None:
        super().__init__("client")
        self.scope |= {"method": method, "http_version": "2"}
        self.asked = 0

    async def receive(self) -> Any:
        self.asked += 1
        return self.asked


@pytest.mark.parametrize(("method", "is_begun"), [("POST", True), ("GET", False)])
async def test_the_body_is_asked_for_when_a_request_arrives(method: str, *, is_begun: bool) -> None:
    """It is there when the loop begins with it; each part is given once, in order."""
    given: list[Any] = []
    begun = asyncio.Event()

    async def answer(_scope: Any, receive: Any, _send: Any) -> None:
        given.extend([await receive(), await receive()])
        begun.set()

    scheduler = listeners._Scheduler(asyncio.get_running_loop(), answer, None, None, None)
    scheduler.count_streams = lambda: 0
    sent = Sent(method)
    scheduler._schedule(sent)
    ((_, first),) = scheduler._arrived
    assert (first is not None) == is_begun
    async with asyncio.timeout(10):
        await begun.wait()
    assert given == [1, 2]


async def test_the_requests_of_a_moment_wake_the_loop_once() -> None:
    """They are started in parts, and if there are many, one connection after the other."""
    asked = [Asked("flood") for _ in range(listeners._AT_ONCE)]
    asked.append(Asked("other"))
    order: list[str] = []
    all_begun = asyncio.Event()

    async def answer(scope: Any, _receive: Any, _send: Any) -> None:
        order.append(scope["client"])
        if len(order) == len(asked):
            all_begun.set()

    loop = CountingLoop(asyncio.get_running_loop())
    scheduler = listeners._Scheduler(loop, answer, None, None, None)  # type: ignore[arg-type]
    scheduler.count_streams = lambda: 0
    for each in asked:
        scheduler._schedule(each)
    await asyncio.wait_for(all_begun.wait(), 10)
    await asyncio.gather(*(each.task for each in asked))
    assert all(each.is_answered for each in asked)
    assert order.index("other") <= listeners._STARTED_TOGETHER + 1
    assert (loop.woken, scheduler._running) == (1, 0)


class CountingLoop:
    """The event loop; counts how often another thread wakes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.woken = 0
        self.create_task = loop.create_task
        self.call_soon = loop.call_soon

    def call_soon_threadsafe(self, *called: Any, **context: Any) -> None:
        self.woken += 1
        self._loop.call_soon_threadsafe(*called, **context)
