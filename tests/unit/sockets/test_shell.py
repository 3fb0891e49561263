"""The shell of a socket, on a transport that records what it is given."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from picows import WSMsgType

from clarion.sockets.protocol import PING, PONG, CloseCode, SendFrame, SharedFrames
from clarion.sockets.shell import CLOSE_LIMIT_MS, FRAME_LIMIT_S, PAUSE_LIMIT_MS
from tests.factories import NOW
from tests.unit.sockets.echo import Echo, EchoEndpoint, EchoSocket


@dataclass
class Transport:
    """What picows gives to a listener, as far as it is used."""

    request: Any = field(default_factory=lambda: SimpleNamespace(path=b"/echo?x=1"))
    sent: list[bytes] = field(default_factory=list)
    closed: list[tuple[int, bytes]] = field(default_factory=list)
    is_disconnected: bool | None = None
    is_close_frame_sent: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, msg_type: WSMsgType, data: bytes) -> None:
        assert msg_type == WSMsgType.TEXT
        self.sent.append(data)

    def send_pong(self, data: bytes) -> None:
        self.sent.append(b"pong " + data)

    def send_close(self, code: int, reason: bytes = b"") -> None:
        self.closed.append((code, reason))

    def disconnect(self, *, graceful: bool = True) -> None:
        self.is_disconnected = graceful
        self.gone.set()

    async def wait_disconnected(self) -> None:
        await self.gone.wait()


def make_frame(
    msg_type: WSMsgType, data: bytes = b"", *, fin: bool = True, code: int | None = None
) -> Any:
    return SimpleNamespace(
        msg_type=msg_type,
        fin=fin,
        tail_size=0,
        payload_size=len(data) if code is None else 2,
        get_payload_as_bytes=lambda: data,
        get_close_code=lambda: code,
    )


@dataclass
class Wire:
    """A connected socket with both its ends."""

    endpoint: EchoEndpoint
    socket: EchoSocket
    transport: Any

    def receive(self, msg_type: WSMsgType, data: bytes = b"", **more: Any) -> None:
        self.socket.on_ws_frame(self.transport, make_frame(msg_type, data, **more))

    def say(self, text: str) -> None:
        self.receive(WSMsgType.TEXT, b'{"type":"say","text":"%s"}' % text.encode())

    def tick(self, milliseconds: int = 0) -> None:
        self.endpoint.time.advance(milliseconds)
        self.socket.tick(self.endpoint.clock.now())

    @property
    def code(self) -> int:
        ((code, reason),) = self.transport.closed
        assert reason
        return int(code)


def connect(endpoint: EchoEndpoint) -> Wire:
    transport: Any = Transport()
    socket = endpoint.accept()
    socket.on_ws_connected(transport)
    return Wire(endpoint, socket, transport)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = connect(EchoEndpoint())
    yield wire
    wire.socket.on_ws_disconnected(wire.transport)  # or its timer would outlive the test


def test_a_socket_has_no_dictionary(wire: Wire) -> None:
    """Ten thousand idle connections are held in memory."""
    assert not hasattr(wire.socket, "__dict__")


def test_the_endpoint_has_the_request_of_the_handshake(wire: Wire) -> None:
    assert wire.endpoint.calls == ["connected /echo?x=1"]
    assert list(wire.endpoint.sockets) == [wire.socket]


def test_frames_go_to_the_session_and_effects_are_carried_out(wire: Wire) -> None:
    wire.say("hello")
    wire.receive(WSMsgType.TEXT, PING)
    assert wire.transport.sent == [b"hello", PONG]


@pytest.mark.parametrize(
    ("msg_type", "fin"),
    [(WSMsgType.BINARY, True), (WSMsgType.TEXT, False), (WSMsgType.CONTINUATION, True)],
)
def test_bytes_and_fragments_are_bad_frames(wire: Wire, msg_type: WSMsgType, *, fin: bool) -> None:
    wire.receive(msg_type, PING, fin=fin)
    assert wire.code == CloseCode.BAD_FRAME


@pytest.mark.parametrize("msg_type", [WSMsgType.PING, WSMsgType.PONG])
def test_pings_and_pongs_of_websocket_are_signs_of_life(wire: Wire, msg_type: WSMsgType) -> None:
    wire.endpoint.time.advance(5)
    wire.receive(msg_type, b"x")
    assert wire.socket.session.received_at == NOW + 5
    assert wire.transport.sent == ([b"pong x"] if msg_type == WSMsgType.PING else [])


@pytest.mark.parametrize(
    ("given", "answered"),
    [
        (None, 1000),
        (1000, 1000),
        (1001, 1001),
        (1014, 1014),
        (3000, 3000),
        (4999, 4999),
        (0, 1002),
        (999, 1002),
        (1004, 1002),
        (1005, 1002),
        (1006, 1002),
        (1015, 1002),
        (2999, 1002),
        (5000, 1002),
        (65535, 1002),
    ],
)
def test_a_close_is_answered(wire: Wire, given: int | None, answered: int) -> None:
    wire.receive(WSMsgType.CLOSE, code=given)
    assert wire.transport.closed == [(answered, b"")]
    assert wire.transport.is_disconnected is True


def test_a_closed_session_receives_nothing_but_the_answer(wire: Wire) -> None:
    wire.socket.end(CloseCode.REVOKED, "why")
    wire.say("hello")
    assert wire.transport.sent == []
    assert wire.transport.is_disconnected is None
    wire.receive(WSMsgType.CLOSE, code=4410)
    assert wire.transport.is_disconnected is True
    assert wire.transport.closed == [(4410, b"why")]


def test_a_close_that_is_not_answered_ends_in_a_cut(wire: Wire) -> None:
    wire.say("bye")
    wire.tick(CLOSE_LIMIT_MS - 1)
    assert wire.transport.is_disconnected is None
    wire.tick(1)
    assert wire.transport.is_disconnected is False


def test_a_closed_socket_is_released_and_then_removed(wire: Wire) -> None:
    wire.socket.end(CloseCode.REVOKED, "why")
    assert wire.endpoint.calls[1:] == ["disconnected"]
    assert len(wire.endpoint.sockets) == 1
    wire.socket.on_ws_disconnected(wire.transport)
    assert len(wire.endpoint.sockets) == 0


def test_a_reason_is_cut_to_what_a_close_frame_takes(wire: Wire) -> None:
    wire.socket.end(CloseCode.REVOKED, "é" * 100)
    assert wire.transport.closed == [(4410, ("é" * 61).encode())]


def test_too_many_frames_between_two_heart_beats_are_4429(wire: Wire) -> None:
    for _ in range(2):
        for _ in range(wire.endpoint.frames_limit):
            wire.receive(WSMsgType.PONG)
        wire.tick()
        assert wire.transport.closed == []
    for _ in range(wire.endpoint.frames_limit + 1):
        wire.receive(WSMsgType.PONG)
    wire.tick()
    assert wire.code == CloseCode.TOO_SLOW_OR_FAST


def test_too_many_frames_are_noticed_before_the_heart_beat(wire: Wire) -> None:
    for _ in range(wire.endpoint.frames_limit + 1):
        wire.receive(WSMsgType.PING)
    assert wire.code == CloseCode.TOO_SLOW_OR_FAST


def test_a_client_that_does_not_read_gets_no_pongs(wire: Wire) -> None:
    """It could have as many of them kept for it as it sends pings."""
    wire.socket.pause_writing()
    wire.receive(WSMsgType.PING, b"x")
    wire.receive(WSMsgType.TEXT, PING)
    assert wire.transport.sent == []


def test_a_client_that_reads_nothing_for_too_long_is_4429(wire: Wire) -> None:
    wire.socket.pause_writing()
    assert wire.socket.session.is_paused
    wire.tick(PAUSE_LIMIT_MS)
    assert wire.transport.closed == []
    wire.tick(1)
    assert wire.code == CloseCode.TOO_SLOW_OR_FAST


def test_a_frame_that_does_not_end_is_4408(wire: Wire) -> None:
    wire.socket.unread = 1
    wire.tick()
    wire.receive(WSMsgType.PONG)  # it has ended, and another has begun
    wire.socket.unread = 1
    wire.tick(FRAME_LIMIT_S * 1000)
    wire.tick(1)
    wire.tick(FRAME_LIMIT_S * 1000 - 1)
    assert wire.transport.closed == []
    wire.tick(1)
    assert wire.code == CloseCode.TIMED_OUT


def test_a_connection_that_picows_closed_is_cut(wire: Wire) -> None:
    wire.transport.is_close_frame_sent = True
    wire.tick()
    wire.tick(CLOSE_LIMIT_MS - 1)
    assert wire.transport.is_disconnected is None
    wire.tick(1)
    assert wire.transport.is_disconnected is False


def test_a_client_that_reads_again_goes_on(wire: Wire) -> None:
    wire.socket.pause_writing()
    wire.tick(PAUSE_LIMIT_MS)
    wire.socket.resume_writing()
    wire.tick(1)
    assert wire.transport.closed == []
    assert b"resumed at %d" % (NOW + PAUSE_LIMIT_MS) in wire.transport.sent


async def test_a_restart_waits_until_the_client_has_disconnected(wire: Wire) -> None:
    ending = asyncio.ensure_future(wire.socket.end_for_restart())
    await asyncio.sleep(0)
    assert (wire.code, ending.done()) == (CloseCode.RESTARTING, False)
    wire.receive(WSMsgType.CLOSE)
    await ending


def test_the_connection_learns_once_that_the_client_has_authenticated(wire: Wire) -> None:
    wire.socket.on_authenticated = lambda: wire.endpoint.calls.append("authenticated")
    for _ in range(2):
        wire.socket.mark_authenticated()
    assert wire.endpoint.calls[1:] == ["authenticated"]


def test_before_the_handshake_there_is_nothing_to_close() -> None:
    socket = EchoEndpoint().accept()
    socket.end(CloseCode.RESTARTING, "why")
    socket.cut()
    assert socket.session.is_closed


def test_frames_that_follow_each_other_are_one_write(wire: Wire) -> None:
    written: list[bytes] = []
    wire.transport.underlying_transport = SimpleNamespace(write=written.append)
    frames = [SendFrame(b"one"), SendFrame(b"two")]
    wire.socket.carry_out([*frames])
    wire.socket.carry_out(SharedFrames([b"one", b"two"]))
    assert written == [b"\x81\x03one\x81\x03two"] * 2
    wire.transport.is_close_frame_sent = True
    wire.socket.carry_out([*frames])
    assert len(written) == 2


def test_a_shared_frame_alone_is_sent_at_once(wire: Wire) -> None:
    wire.socket.carry_out(SharedFrames([b"one"]))
    assert wire.transport.sent == [b"one"]


def test_what_is_done_between_frames_is_done_in_its_order(wire: Wire) -> None:
    wire.socket.carry_out([SendFrame(b"one"), Echo("two"), SendFrame(b"three")])
    assert wire.transport.sent == [b"one", b"two", b"three"]
