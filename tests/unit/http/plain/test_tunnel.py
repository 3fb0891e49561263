"""HTTP/2 without TLS: requests count for the connection that was passed on."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from clarion.http.listeners import HttpListener
from clarion.http.plain.limits import Waits
from clarion.http.plain.tunnel import Tunnels
from clarion.settings.types import ListenAddress
from clarion.telemetry.limited_log import LimitedLog
from tests.factories import FixedClock
from tests.unit.http.plain.wires import Plain, listen, read_body, respond

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


@asynccontextmanager
async def listen_with_tunnels(app: Any) -> AsyncIterator[tuple[Plain, Tunnels]]:
    behind = partial(HttpListener, address=ListenAddress("127.0.0.1", 0), max_header_bytes=16_384)
    tunnels = Tunnels(app, behind, LimitedLog(FixedClock()))
    async with listen(app, tunnels) as plain:
        yield plain, tunnels


async def curl(port: int, *more: str, body: bytes = b"") -> bytes:
    command = ["curl", "-s", "--max-time", "20", "--http2-prior-knowledge", *more]
    curl = await asyncio.create_subprocess_exec(
        *command,
        f"http://127.0.0.1:{port}/p?q",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    out, _ = await curl.communicate(body)
    return out


async def test_a_request_is_that_of_the_client() -> None:
    async def show(scope: Any, _receive: Any, send: Any) -> None:
        source = int(scope["client"][1])
        about = f"{scope['http_version']} {scope['path']} {source} {scope['server'][1]}"
        await respond(send, about.encode())

    async with listen_with_tunnels(show) as (plain, _):
        out = await curl(plain.port, "-w", " %{local_port}")
        version, path, source, server, local = out.decode().split()
        assert (version, path, server) == ("2", "/p", str(plain.port))
        assert source == local


async def test_large_bodies_pass_in_both_directions() -> None:
    async def echo(_scope: Any, receive: Any, send: Any) -> None:
        await respond(send, await read_body(receive))

    body = bytes(range(256)) * 20_000
    async with listen_with_tunnels(echo) as (plain, _):
        assert await curl(plain.port, "--data-binary", "@-", body=body) == body


async def test_nobody_else_may_use_the_listener_behind() -> None:
    async def never(_scope: Any, _receive: Any, _send: Any) -> None:
        raise AssertionError

    async def nothing(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send)

    async with listen_with_tunnels(nothing) as (plain, tunnels), plain.connect() as client:
        await client.send(PREFACE, SETTINGS)
        while not tunnels._by_port:  # noqa: ASYNC110 - it is being passed on
            await asyncio.sleep(0.01)
        tunnels._app = never
        listener = await tunnels._start()
        status = await curl(listener.port, "-o", "/dev/null", "-w", "%{http_code}")
        assert status == b"403"


async def test_the_preface_may_come_in_pieces() -> None:
    async def nothing(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send)

    async with listen_with_tunnels(nothing) as (plain, _), plain.connect() as client:
        for cut in (1, 2, 10):
            await client.send(PREFACE[:cut] if cut == 1 else b"")
        await asyncio.sleep(0.02)
        await client.send(PREFACE[1:], SETTINGS)
        async with asyncio.timeout(10):
            head = await client.reader.readexactly(9)
        assert head[3] == 4  # settings


async def test_what_begins_like_the_preface_is_a_request_all_the_same() -> None:
    async def show(scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, scope["method"].encode())

    async with listen_with_tunnels(show) as (plain, _), plain.connect() as client:
        await client.send(b"P")
        await asyncio.sleep(0.02)
        await client.send(b"OST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await client.read_all()).endswith(b"POST")


async def test_a_connection_waits_and_works_with_its_requests() -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()

    async def wait(_scope: Any, _receive: Any, send: Any) -> None:
        begun.set()
        await go_on.wait()
        await respond(send)

    async with listen_with_tunnels(wait) as (plain, tunnels):
        asking = asyncio.create_task(curl(plain.port))
        await begun.wait()
        (connection,) = plain.connections._list()
        assert connection.waits is None
        go_on.set()
        await asking
        while plain.connections or tunnels._by_port:  # noqa: ASYNC110 - the end of the client is on its way
            await asyncio.sleep(0.01)


async def test_one_that_sends_no_request_is_closed_in_time() -> None:
    async with listen_with_tunnels(respond) as (plain, tunnels), plain.connect() as client:
        await client.send(PREFACE, SETTINGS)
        while not tunnels._by_port:  # noqa: ASYNC110 - it is being passed on
            await asyncio.sleep(0.01)
        (connection,) = plain.connections._list()
        assert connection.waits is Waits.RECEIVING
        now = plain.connections.time()
        plain.connections.time = lambda: now + 11
        plain.connections.expire()
        async with asyncio.timeout(10):
            while tunnels._by_port:  # noqa: ASYNC110 - both sides are closed
                await asyncio.sleep(0.01)


async def test_a_listener_that_cannot_be_reached_closes_the_connection_and_is_started_anew() -> (
    None
):
    async def nothing(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"ok")

    async with listen_with_tunnels(nothing) as (plain, tunnels):
        listener = await tunnels._start()
        real = listener.port
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            listener.port = closed.getsockname()[1]
            assert await curl(plain.port) == b""
        listener.port = real
        await listener.stop(1)
        assert await curl(plain.port) == b"ok"


async def test_the_front_reads_what_granian_would_otherwise_cut_off() -> None:
    """A response before the end of the request is followed by a reset, and curl loses it."""
    skipped: list[bool] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        skipped.append(scope["connection"].skips_bodies)
        await read_body(receive)
        await respond(send)

    async with listen_with_tunnels(note) as (plain, _):
        await curl(plain.port, "--data-binary", "@-", body=b"x" * 100_000)
        await plain.exchange(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert skipped == [False, True]


async def test_a_listener_that_cannot_start_is_tried_again_and_does_not_end_a_stop() -> None:
    failures = 1

    async def nothing(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"ok")

    def behind(app: Any) -> HttpListener:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError
        return HttpListener(app, ListenAddress("127.0.0.1", 0), max_header_bytes=16_384)

    tunnels = Tunnels(nothing, behind, LimitedLog(FixedClock()))
    async with listen(nothing, tunnels) as plain:
        assert await curl(plain.port) == b""
        assert await curl(plain.port) == b"ok"
    failures = 1
    other = Tunnels(nothing, behind, LimitedLog(FixedClock()))
    other._listener = asyncio.create_task(other._start_listener())
    await other.stop(5)
