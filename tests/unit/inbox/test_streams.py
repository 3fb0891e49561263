"""Server-Sent Events: how they are written, when they come, and how they end."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from clarion.access.model import AppCaller, UserCaller
from clarion.errors import Forbidden, InvalidFields, MethodNotAllowed, StoreUnavailable
from clarion.http.asgi import Request, Streamed, stream
from clarion.inbox.feed import Update, UpdateType
from clarion.inbox.live import LiveClients
from clarion.inbox.streams import HEARTBEAT, RETRY, Streams, encode_end, encode_event
from tests.factories import NOW, FixedClock
from tests.unit.inbox.memory import MemoryInboxes

ANA = UserCaller(app_id="app", user_id="ana", expires_at=NOW + 600_000)
STATE = b'id: 0\nevent: state\ndata: {"type":"state","unread_count":0,"sequence":0}\n\n'


@dataclass
class Server:
    """Streams with what they read from."""

    inboxes: MemoryInboxes = field(default_factory=MemoryInboxes)
    clock: FixedClock = field(default_factory=FixedClock)
    heartbeat_s: float = 20.0
    stall_limit_s: float = 1.0

    def __post_init__(self) -> None:
        self.live = LiveClients(self.inboxes, per_user=2, total=3)
        self.streams = Streams(
            self.inboxes,
            self.live,
            self.clock,
            heartbeat_s=self.heartbeat_s,
            stall_limit_s=self.stall_limit_s,
        )

    async def open(self, caller: Any = ANA, method: str = "GET", **more: Any) -> Streamed:
        headers = [(b"last-event-id", more["last"])] if "last" in more else []
        query = more.get("query", b"")
        scope = {"method": method, "headers": headers, "query_string": query}
        return await self.streams.open(Request(scope, never, "r", caller, 0))


async def never() -> Any:
    await asyncio.Event().wait()


@pytest.fixture
async def server() -> Server:
    return Server()


def test_an_event_has_a_number_a_name_and_one_line_of_data() -> None:
    event = encode_event(Update(UpdateType.READ, 3, 17))
    assert event == b'id: 17\nevent: read\ndata: {"type":"read","unread_count":3,"sequence":17}\n\n'


def test_the_end_has_no_number() -> None:
    assert encode_end("x") == b'event: end\ndata: {"type":"end","reason":"x"}\n\n'


async def test_a_line_break_does_not_break_an_event(server: Server) -> None:
    opened = await server.open()
    await anext(opened.parts)
    server.inboxes.add(body="a\nb\r\n\u2028", title="\n\ndata: x")
    (data,) = [
        line for line in (await anext(opened.parts)).split(b"\n") if line.startswith(b"data: ")
    ]
    assert json.loads(data[6:])["item"]["body"] == "a\nb\r\n\u2028"


async def test_a_stream_begins_with_the_state(server: Server) -> None:
    opened = await server.open()
    assert await anext(opened.parts) == RETRY + STATE
    assert len(server.live) == 1
    opened.close()
    assert len(server.live) == 0


async def test_a_change_wakes_it(server: Server) -> None:
    opened = await server.open()
    await anext(opened.parts)
    waiting = asyncio.ensure_future(anext(opened.parts))
    await asyncio.sleep(0)
    assert not waiting.done()
    server.inboxes.add()
    server.live.notify("app", "ana")
    assert (await waiting).startswith(b"id: 1\nevent: notification\n")


async def test_a_quiet_stream_sends_heart_beats() -> None:
    opened = await Server(heartbeat_s=0.01).open()
    await anext(opened.parts)
    assert await anext(opened.parts) == HEARTBEAT


async def test_a_stream_ends_with_its_token(server: Server) -> None:
    opened = await server.open()
    await anext(opened.parts)
    server.clock.advance(600_000)
    assert [part async for part in opened.parts] == [encode_end("token_expired")]


@pytest.mark.parametrize("step", [-3_600_000, 601_000])
async def test_a_clock_that_is_set_does_not_end_a_stream(server: Server, step: int) -> None:
    opened = await server.open()
    await anext(opened.parts)
    server.clock.step(step)
    server.inboxes.add()
    assert (await anext(opened.parts)).startswith(b"id: 1\nevent: notification\n")
    server.clock.advance(600_000)
    assert [part async for part in opened.parts] == [encode_end("token_expired")]


async def test_a_stream_ends_with_the_server(server: Server) -> None:
    opened = await server.open()
    await anext(opened.parts)
    await server.live.stop(0)
    assert [part async for part in opened.parts] == [encode_end("restarting")]


async def test_a_stream_ends_with_its_user(server: Server) -> None:
    opened = await server.open()
    await anext(opened.parts)
    server.live.disconnect_user("app", "ana")
    assert [part async for part in opened.parts] == [encode_end("user_inactive")]


async def test_a_stream_ends_when_the_store_does_not_answer(server: Server) -> None:
    opened = await server.open()
    await anext(opened.parts)
    server.inboxes.is_broken = True
    assert [part async for part in opened.parts] == [encode_end("store_unavailable")]


async def test_a_stream_that_cannot_begin_takes_no_room(server: Server) -> None:
    server.inboxes.is_broken = True
    with pytest.raises(StoreUnavailable):
        await server.open()
    assert len(server.live) == 0


@pytest.mark.parametrize(
    ("more", "number"),
    [
        ({"last": b"7"}, b"7"),
        ({"query": b"after=8"}, b"8"),
        ({"last": b"7", "query": b"after=8"}, b"7"),
        ({"last": b"", "query": b"after=8"}, b"8"),
        ({"query": b"after=1&after=8"}, b"8"),
    ],
)
async def test_it_resumes_after_a_number(
    server: Server, more: dict[str, Any], number: bytes
) -> None:
    opened = await server.open(**more)
    assert (await anext(opened.parts)).startswith(RETRY + b"id: %s\n" % number)


@pytest.mark.parametrize("more", [{"last": b"x"}, {"query": b"after="}, {"query": b"after=-1"}])
async def test_anything_else_is_refused(server: Server, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidFields):
        await server.open(**more)
    assert len(server.live) == 0


async def test_only_users_have_streams_and_only_by_get(server: Server) -> None:
    with pytest.raises(Forbidden):
        await server.open(AppCaller(app_id="app", key_id="k", scopes=frozenset()))
    with pytest.raises(MethodNotAllowed):
        await server.open(method="HEAD")


@dataclass
class Wire:
    """Takes messages, as many as it has room for."""

    room: int = 99
    sent: list[Any] = field(default_factory=list)

    async def send(self, message: Any) -> None:
        if len(self.sent) >= self.room:
            await asyncio.Event().wait()
        self.sent.append(message)


def make_request(left: asyncio.Event) -> Request:
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for message in messages:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    return Request({"headers": []}, receive, "r", ANA, 0)


async def test_the_parts_are_sent_until_they_end() -> None:
    async def parts() -> Any:
        yield b"a"
        yield b"b"

    wire, closed = Wire(), asyncio.Event()
    await stream(wire.send, make_request(asyncio.Event()), Streamed(parts(), closed.set))
    assert [message.get("body") for message in wire.sent] == [None, b"a", b"b", b""]
    assert [message.get("more_body", False) for message in wire.sent] == [False, True, True, False]
    assert closed.is_set()


async def test_a_client_that_disconnects_ends_the_stream() -> None:
    left, ended, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def parts() -> Any:
        try:
            yield b"a"
            left.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    wire = Wire()
    await stream(wire.send, make_request(left), Streamed(parts(), closed.set))
    assert len(wire.sent) == 2
    assert ended.is_set()
    assert closed.is_set()


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    closed = asyncio.Event()

    async def parts() -> Any:
        while True:
            yield b"a"

    wire, endless = Wire(room=3), Streamed(parts(), closed.set, stalled_s=0.01)
    await stream(wire.send, make_request(asyncio.Event()), endless)
    assert len(wire.sent) == 3
    assert closed.is_set()


async def test_a_stop_does_not_wait_for_a_client_that_reads_nothing() -> None:
    server = Server(stall_limit_s=0.01)
    opened, wire = await server.open(), Wire(room=1)
    streaming = asyncio.ensure_future(stream(wire.send, make_request(asyncio.Event()), opened))
    for _ in range(9):
        await asyncio.sleep(0)
    await server.live.stop(5)
    await streaming
    assert len(server.live) == 0
