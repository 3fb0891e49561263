"""What every session does: limits of frames, hello, heart-beat, one end."""

import pytest

from clarion.sockets.protocol import (
    FRAME_LIMIT_BYTES,
    HEARTBEAT_S,
    HELLO_LIMIT_BYTES,
    PING,
    PONG,
    SILENCE_LIMIT_MS,
    Close,
    CloseCode,
    Effects,
    SendFrame,
    SharedFrames,
    to_wire,
)
from tests.factories import NOW
from tests.unit.sockets.echo import Echo, EchoSession

BEAT_MS = HEARTBEAT_S * 1000


@pytest.fixture
def session() -> EchoSession:
    return EchoSession(NOW)


def code_of(effects: Effects[Echo]) -> CloseCode:
    (close,) = effects
    assert isinstance(close, Close)
    assert close.reason
    return close.code


def test_a_frame_is_decoded_and_handled(session: EchoSession) -> None:
    assert session.receive(b'{"type":"say","text":"x"}', is_text=True, now=NOW) == [Echo("x")]
    assert session.receive(PING, is_text=True, now=NOW) == [SendFrame(PONG)]


@pytest.mark.parametrize(
    ("data", "is_text", "code"),
    [
        (b" " * (HELLO_LIMIT_BYTES + 1), True, CloseCode.FRAME_TOO_LARGE),
        (b" " * HELLO_LIMIT_BYTES, True, CloseCode.BAD_FRAME),
        (PING, False, CloseCode.BAD_FRAME),
        (b'{"type":"say","text":"\xff"}', True, CloseCode.BAD_FRAME),
        (b'{"type":"say","text":"x","more":1}', True, CloseCode.BAD_FRAME),
        (b"[" * 16_000, True, CloseCode.BAD_FRAME),
    ],
)
def test_a_bad_frame_has_its_code(
    session: EchoSession, data: bytes, code: CloseCode, *, is_text: bool
) -> None:
    assert code_of(session.receive(data, is_text=is_text, now=NOW)) is code
    assert session.is_closed


@pytest.mark.parametrize(
    ("size", "code"),
    [(FRAME_LIMIT_BYTES, CloseCode.BAD_FRAME), (FRAME_LIMIT_BYTES + 1, CloseCode.FRAME_TOO_LARGE)],
)
def test_a_client_that_has_authenticated_may_send_larger_frames(
    session: EchoSession, size: int, code: CloseCode
) -> None:
    session.is_ready = True
    assert code_of(session.receive(b"[" * size, is_text=True, now=NOW)) is code


def test_a_connection_without_a_hello_is_timed_out(session: EchoSession) -> None:
    assert code_of(session.time_out_hello()) is CloseCode.TIMED_OUT


def test_a_client_whose_hello_could_not_be_answered_comes_back(session: EchoSession) -> None:
    session.receive(PING, is_text=True, now=NOW)
    assert code_of(session.time_out_hello()) is CloseCode.RESTARTING


def test_a_quiet_client_is_pinged_once_each_heart_beat(session: EchoSession) -> None:
    assert session.tick(NOW + BEAT_MS - 1) == []
    assert session.tick(NOW + BEAT_MS) == [SendFrame(PING)]
    assert session.tick(NOW + 2 * BEAT_MS - 1) == []


def test_a_silent_client_is_disconnected_once(session: EchoSession) -> None:
    assert code_of(session.tick(NOW + SILENCE_LIMIT_MS)) is CloseCode.TIMED_OUT
    assert session.tick(NOW + SILENCE_LIMIT_MS) == []


def test_any_frame_is_a_sign_of_life(session: EchoSession) -> None:
    session.receive(PONG, is_text=True, now=NOW + SILENCE_LIMIT_MS - 1)
    assert session.tick(NOW + SILENCE_LIMIT_MS) == []


@pytest.mark.parametrize("code", CloseCode)
def test_a_session_ends_once(session: EchoSession, code: CloseCode) -> None:
    assert session.end(code, "why") == [Close(code, "why")]
    assert session.end(code, "why") == []


@pytest.mark.parametrize("code", [close for close in CloseCode if close > 3000])
def test_our_codes_are_those_for_private_use(code: CloseCode) -> None:
    assert 4000 <= code <= 4999


def test_a_session_has_no_dictionary(session: EchoSession) -> None:
    """Ten thousand idle connections are held in memory."""
    assert not hasattr(session, "__dict__")


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, "8100"),
        (125, "817d"),
        (126, "817e007e"),
        (65_535, "817effff"),
        (65_536, "817f0000000000010000"),
    ],
)
def test_frames_are_written_as_the_standard_says(size: int, header: str) -> None:
    frame = bytes.fromhex(header) + bytes(size)
    assert to_wire([SendFrame(bytes(size))]) == frame
    assert SharedFrames([bytes(size), b"x"]).wire == frame + b"\x81\x01x"
