"""The sockets of users on a running server: updates in one direction, actions in the other."""

import asyncio
import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.live_clients import InboxUser, Socket
from tests.lanes import limit_s


@pytest.fixture
def ana(server: Server) -> InboxUser:
    return InboxUser(server)


async def add(user: InboxUser, count: int = 1) -> list[str]:
    return await asyncio.to_thread(user.add, count)


async def code_of(socket: Socket) -> tuple[int, str]:
    """Return how the server closes."""
    try:
        while True:
            await socket.take()
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (0, "")


@pytest.mark.parametrize("by", ["header", "hello"])
async def test_a_socket_sends_every_change(ana: InboxUser, by: str) -> None:
    (made,) = await add(ana)
    hello = {"type": "hello", "token": ana.token} if by == "hello" else None
    async with ana.listen(hello) as socket:
        assert await socket.take() == {"type": "state", "unread_count": 1, "sequence": 1}
        changed = await asyncio.to_thread(ana.apply, "read", made)
        frame = await socket.take()
        assert changed.pop("unread_count") == 0
        assert frame == {"type": "read", "unread_count": 0, "sequence": 2, "item": changed}


async def test_an_action_on_one_socket_is_sent_to_all_clients(ana: InboxUser) -> None:
    (made,) = await add(ana)
    with ana.watch() as stream:
        async with ana.listen() as here, ana.listen() as there:
            assert (await here.take())["type"] == (await there.take())["type"] == "state"
            assert (await asyncio.to_thread(stream.take)).name == "state"
            for action, update_type in (
                ("read", "read"),
                ("unread", "notification"),
                ("dismiss", "dismissed"),
            ):
                await here.send(type=action, id=made)
                first = await here.take()
                assert first["type"] == update_type
                assert await there.take() == first
                assert (await asyncio.to_thread(stream.take)).data == first


async def test_an_action_on_an_unknown_notification_is_answered(ana: InboxUser) -> None:
    async with ana.listen() as socket:
        await socket.take()
        await socket.send(type="read", id="nothing")
        assert await socket.take() == {"type": "error", "id": "nothing", "code": "not_found"}
        await socket.send(type="ping")
        assert await socket.take() == {"type": "pong"}


async def test_a_socket_resumes_without_a_gap(ana: InboxUser) -> None:
    made = await add(ana, 3)
    await asyncio.to_thread(ana.apply, "dismiss", made[0])
    async with ana.listen({"type": "hello", "token": ana.token, "after": 1}) as socket:
        frames = [await socket.take() for _ in range(4)]
    assert [(frame["type"], frame["sequence"]) for frame in frames] == [
        ("state", 1),
        ("notification", 2),
        ("notification", 3),
        ("dismissed", 4),
    ]


async def test_a_client_without_a_valid_token_is_4401(server: Server, ana: InboxUser) -> None:
    for token in ("nothing", "", server.first["app"]["api_key"], ana.make_token(-60)):
        async with ana.listen({"type": "hello", "token": token}) as socket:
            code, reason = await code_of(socket)
            assert code == 4401
            assert reason


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"type": "ping"}, 4400),
        ({"type": "read", "id": "x"}, 4400),
        ({"type": "hello", "token": "x", "after": -1}, 4400),
        ({"type": "hello", "token": "x", "more": 1}, 4400),
        ({"type": "hello", "token": "x" * 65_536}, 4413),
    ],
)
async def test_a_bad_first_frame_has_its_code(
    ana: InboxUser, frame: dict[str, Any], code: int
) -> None:
    async with ana.listen(frame) as socket:
        assert (await code_of(socket))[0] == code


async def test_a_bad_after_in_the_path_is_4400_with_the_reason(ana: InboxUser) -> None:
    url = f"ws://127.0.0.1:{ana.server.installation.gateway_port}/v1/me/socket?after=x"
    headers = {"Authorization": f"Bearer {ana.token}"}
    async with connect(url, additional_headers=headers) as connection:
        code, reason = await code_of(Socket(connection))
        assert (code, reason) == (4400, "after: must be the sequence of an update")


async def test_a_client_without_a_hello_is_4408_after_ten_seconds(ana: InboxUser) -> None:
    url = f"ws://127.0.0.1:{ana.server.installation.gateway_port}/v1/me/socket"
    began = monotonic()
    async with connect(url) as connection:
        assert (await code_of(Socket(connection)))[0] == 4408
    assert 9 < monotonic() - began < limit_s(15)


async def test_another_user_receives_nothing(server: Server, ana: InboxUser) -> None:
    (made,) = await add(ana)
    bo = InboxUser(server)
    async with bo.listen() as socket:
        assert (await socket.take())["unread_count"] == 0
        await asyncio.to_thread(ana.apply, "read", made)
        await socket.send(type="dismiss", id=made)
        assert (await socket.take())["code"] == "not_found"


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    installation = Installation(tmp_path_factory.mktemp("small"), user_streams="1", grace_s="8")
    first = installation.initialise()
    with installation:
        yield Server(installation, first)


async def test_there_is_a_limit_and_a_stop_closes_with_1012(small: Server) -> None:
    ana = InboxUser(small)
    async with ana.listen() as socket:
        assert (await socket.take())["type"] == "state"
        async with ana.listen() as other:
            assert (await code_of(other))[0] == 4429
        assert small.installation.process is not None
        small.installation.process.terminate()
        assert await code_of(socket) == (1012, "the server restarts")
    assert await asyncio.to_thread(small.installation.process.wait, limit_s(5)) == 0


async def test_garbage_of_an_open_socket_has_its_code(ana: InboxUser) -> None:
    for data in ("nonsense", json.dumps({"type": "read"}), b"bytes", "[" * 60_000):
        async with ana.listen() as socket:
            await socket.take()
            await socket.connection.send(data)
            assert (await code_of(socket))[0] == 4400
