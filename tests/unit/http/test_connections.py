"""Connections that are silent, idle, stalled or too many are closed; no others are."""

import asyncio
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clarion.http.budgets import Receiving
from clarion.http.connections import Client, Closed, HttpConnections, Requests

Connect = Callable[[], socket.socket]


class Listener:
    """A listening socket, and both ends of every connection to it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self.ours: list[socket.socket] = []
        self.theirs: list[socket.socket] = []

    def connect(self, count: int = 1, source_port: int = 0) -> None:
        for _ in range(count):
            client = socket.socket()
            # Several connections may have one port of the client, to different ports of ours.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind(("127.0.0.1", source_port))
            client.connect(("127.0.0.1", self.port))
            self.theirs.append(client)
            self.ours.append(self._listener.accept()[0])

    def client(self, number: int) -> Client:
        host, port = self.theirs[number].getsockname()
        return host, str(port), str(self.port)

    @property
    def closed(self) -> list[int]:
        """The numbers of the connections whose client has read the end."""
        return [number for number, end in enumerate(self.theirs) if _is_closed(end)]

    def close(self) -> None:
        for each in (self._listener, *self.ours, *self.theirs):
            each.close()


def _is_closed(end: socket.socket) -> bool:
    end.settimeout(0)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def watch(listener: Listener, **changes: Any) -> HttpConnections:
    return HttpConnections(
        **{
            "ports": {listener.port},
            "limit": 1_000,
            "address_limit": 1_000,
            "descriptor_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "receiving": Receiving(),
            **changes,
        }
    )


def ask(connections: HttpConnections, client: Client) -> Requests:
    """Send a request and get its response."""
    requests = connections.begin(client)
    connections.end(requests)
    return requests


async def test_a_connection_without_a_request_is_closed_after_ten_seconds(
    listener: Listener,
) -> None:
    connections = watch(listener)
    listener.connect()
    await connections.check(9.9)
    assert (listener.closed, len(connections)) == ([], 1)
    await connections.check(0.2)
    assert listener.closed == [0]
    assert connections.closed == {Closed.SILENT: 1}


async def test_one_that_has_sent_a_request_is_closed_when_it_is_idle(listener: Listener) -> None:
    connections = watch(listener)
    listener.connect()
    ask(connections, listener.client(0))
    await connections.check(70)
    assert listener.closed == []
    ask(connections, listener.client(0))
    await connections.check(70)
    assert listener.closed == []
    await connections.check(6)
    assert listener.closed == [0]
    assert connections.closed == {Closed.IDLE: 1}


async def test_one_with_a_running_request_is_left_alone(listener: Listener) -> None:
    connections = watch(listener)
    listener.connect()
    connections.begin(listener.client(0))
    for _ in range(3):
        await connections.check(3_600)
    assert listener.closed == []


async def test_a_provider_may_be_idle_for_an_hour(listener: Listener) -> None:
    connections = watch(listener)
    listener.connect()
    ask(connections, listener.client(0)).is_provider = True
    await connections.check(3_599)
    assert listener.closed == []
    await connections.check(2)
    assert listener.closed == [0]


async def test_one_that_does_not_read_its_response_is_closed(listener: Listener) -> None:
    connections = watch(listener)
    listener.connect(2)
    ask(connections, listener.client(0)).is_stalled = True
    ask(connections, listener.client(1))
    await connections.check(1)
    assert listener.closed == [0]
    assert connections.closed == {Closed.STALLED: 1}


async def test_beyond_the_limit_of_an_address_the_silent_ones_are_closed(
    listener: Listener,
) -> None:
    connections = watch(listener, address_limit=3, is_exempt=lambda _: False)
    listener.connect(6)
    for number in (1, 3, 5):
        ask(connections, listener.client(number))
    await connections.check(1)
    assert listener.closed == [0, 2, 4]
    assert connections.closed == {Closed.ADDRESS: 3}


async def test_this_machine_has_no_limit_as_an_address(listener: Listener) -> None:
    connections = watch(listener, address_limit=3)
    listener.connect(6)
    await connections.check(1)
    assert listener.closed == []


async def test_during_a_stop_those_without_a_running_request_have_two_seconds(
    listener: Listener,
) -> None:
    connections = watch(listener)
    listener.connect(3)
    connections.begin(listener.client(0))
    ask(connections, listener.client(1)).is_provider = True
    await connections.check(5)
    connections.stop()
    await connections.check(1.9)
    assert listener.closed == []
    await connections.check(0.2)
    assert listener.closed == [1, 2]


async def test_a_full_listener_makes_room(listener: Listener) -> None:
    connections = watch(listener, limit=10)
    listener.connect(12)
    running = connections.begin(listener.client(0))
    ask(connections, listener.client(1))
    ask(connections, listener.client(2)).is_provider = True
    await connections.check(0.01)
    assert len(listener.closed) == 3
    assert not {0, 1, 2} & set(listener.closed)
    assert running.running == 1


async def test_those_that_have_sent_nothing_have_a_moment_while_a_listener_is_full(
    listener: Listener,
) -> None:
    connections = watch(listener, limit=12)
    listener.connect(9)
    listener.theirs[3].sendall(b"G")
    await connections.check(0.9)
    assert listener.closed == []
    listener.connect()
    await connections.check(0.06)
    # Only Linux says how much was received.
    silent = [*range(3), *range(4, 10)] if sys.platform == "linux" else []
    assert listener.closed == silent


async def test_a_client_may_use_one_port_for_both_listeners(listener: Listener) -> None:
    """The silent one of the two was taken for one that had sent a request."""
    other = Listener()
    try:
        connections = watch(listener, ports={listener.port, other.port})
        listener.connect()
        other.connect(source_port=int(listener.client(0)[1]))
        ask(connections, listener.client(0))
        await connections.check(11)
        assert (listener.closed, other.closed) == ([], [0])
    finally:
        other.close()


async def test_a_connection_is_not_taken_for_an_earlier_one_from_its_port(
    listener: Listener,
) -> None:
    connections = watch(listener)
    listener.connect()
    ask(connections, listener.client(0)).is_provider = True
    for _ in range(3):
        await connections.check(1)
    port = int(listener.client(0)[1])
    listener.theirs[0].setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )  # no TIME_WAIT
    listener.theirs[0].close()
    listener.ours[0].close()
    listener.connect(source_port=port)
    await connections.check(1)
    await connections.check(10)
    assert _is_closed(listener.theirs[1])


async def test_connections_elsewhere_are_not_touched(listener: Listener) -> None:
    other = Listener()
    try:
        connections = watch(listener)
        other.connect()
        await connections.check(1)
        await connections.check(3_600)
        assert (other.closed, len(connections)) == ([], 0)
    finally:
        other.close()


async def test_what_is_known_to_be_of_others_is_not_looked_at_but_counts(
    listener: Listener,
) -> None:
    listener.connect(2)
    theirs = {listener.ours[0].fileno()}
    connections = watch(listener, others=[theirs])
    for _ in range(2):  # after the first, it holds descriptors of its own
        await connections.check(1)
    assert len(connections) == 1
    with_theirs = connections._count_descriptors()
    # Its number is that of a connection to the listener now.
    theirs.clear()
    await connections.check(1)
    assert (len(connections), connections._count_descriptors()) == (2, with_theirs)


async def test_a_descriptor_that_has_become_another_socket_is_not_closed(
    listener: Listener,
) -> None:
    """The listener closed the connection, and a later one got its number."""
    connections = watch(listener)
    listener.connect(2)
    await connections.check(9.9)
    # Between the look and the closing: number 0 now means the connection of number 1.
    chosen = [each async for each in connections._list()]
    os.dup2(listener.ours[1].fileno(), listener.ours[0].fileno())
    for each in chosen:
        if each.client == listener.client(0):
            connections._close(each, Closed.SILENT)
    assert listener.closed == [0]  # by dup2 itself, which closed it
    assert not connections.closed


async def test_connections_are_closed_also_when_no_descriptor_is_free(listener: Listener) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    listener.connect(3)
    spare = os.dup(0)
    os.close(spare)
    limit = spare + 2
    connections = watch(listener, descriptor_limit=limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    held: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012
            while True:
                held.append(os.dup(0))
        await connections.check(11)
        await connections.check(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)
    assert listener.closed == [0, 1, 2]


async def test_what_is_known_of_a_client_is_forgotten_with_its_connection(
    listener: Listener,
) -> None:
    connections = watch(listener)
    for port in range(100):
        ask(connections, ("192.0.2.7", str(port), "8080"))
    listener.connect()
    ask(connections, listener.client(0)).is_provider = True
    for _ in range(3):
        await connections.check(1)
    assert list(connections._requests) == [listener.client(0)]


async def test_a_pass_lets_the_loop_go_on(listener: Listener) -> None:
    connections = watch(listener)
    listener.connect(90)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await connections.check(11)
    counting.cancel()
    assert len(listener.closed) == 90
    assert turns > 90
