"""The device socket of a running server: which devices are accepted, and the close codes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.e2e.conftest import Server
from tests.lanes import limit_s

HELLO = json.dumps({"type": "hello", "token": "nobody", "secret": "nothing"})
Open = Callable[[], AbstractAsyncContextManager[ClientConnection]]


@pytest.fixture
def open_socket(server: Server) -> Open:
    @asynccontextmanager
    async def opened() -> AsyncIterator[ClientConnection]:
        url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
        async with connect(url, max_size=None, compression=None, ping_interval=None) as socket:
            yield socket

    return opened


async def code_after(socket: ClientConnection, *frames: str | bytes) -> int | None:
    """Send frames and return the code with which the server closes."""
    for frame in frames:
        await socket.send(frame)
    with pytest.raises(ConnectionClosed) as raised:
        await asyncio.wait_for(socket.recv(), limit_s(15))
    return raised.value.rcvd.code if raised.value.rcvd else None


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (HELLO, 4401),
        (HELLO.encode(), 4400),
        ("nonsense", 4400),
        ("", 4400),
        ('{"type":"ping"}', 4400),
        ('{"type":"hello"}', 4400),
        (HELLO.replace("}", ', "more": 1}'), 4400),
        ("[" * 16_000, 4400),
        ("x" * 16_385, 4413),
        ("x" * 1_048_576, 4413),
    ],
    ids=lambda value: None if isinstance(value, int) else f"{len(value)}-{value[:16]!r}",
)
async def test_a_bad_frame_closes_the_connection_with_its_code(
    open_socket: Open, frame: str | bytes, code: int
) -> None:
    async with open_socket() as socket:
        assert await code_after(socket, frame) == code


async def test_a_text_that_is_no_text_is_a_bad_frame(open_socket: Open) -> None:
    async with open_socket() as socket:
        await socket.send(b'{"type":"hello","token":"\xff","secret":"s"}', text=True)
        assert await code_after(socket) in {1007, 4400}


async def test_a_frame_in_pieces_is_refused(open_socket: Open) -> None:
    async with open_socket() as socket:
        assert await code_after(socket, [HELLO[:5], HELLO[5:]]) == 4400  # type: ignore[arg-type]


@pytest.mark.parametrize("constellation", ["embedded"], indirect=True)
async def test_a_connection_without_a_hello_is_closed_after_ten_seconds(open_socket: Open) -> None:
    started = monotonic()
    async with open_socket() as socket:
        assert await code_after(socket) == 4408
    assert 9.5 < monotonic() - started < limit_s(14)


@pytest.mark.parametrize("path", ["/", "/v1/gateway/", "/v1/other", "/health"])
async def test_another_path_is_not_there(server: Server, path: str) -> None:
    with pytest.raises(InvalidStatus) as raised:
        async with connect(f"ws://127.0.0.1:{server.installation.gateway_port}{path}"):
            pass
    assert raised.value.response.status_code == 404


async def test_a_device_may_close_the_connection(open_socket: Open) -> None:
    for code in (1000, 1001, 4000):
        async with open_socket() as socket:
            await socket.close(code)
        assert socket.close_code == code


@pytest.mark.one_node("metrics are those of a node")
async def test_the_open_connections_are_counted(server: Server, open_socket: Open) -> None:
    async with open_socket(), open_socket():
        text = (await asyncio.to_thread(server.anyone.get, "/metrics")).body.decode()
    (line,) = [each for each in text.splitlines() if each.startswith("clarion_gateway_conn")]
    assert float(line.split()[1]) >= 2


async def test_a_ping_of_the_protocol_is_answered(open_socket: Open) -> None:
    async with open_socket() as socket:
        assert await asyncio.wait_for(await socket.ping(), limit_s(5)) >= 0
