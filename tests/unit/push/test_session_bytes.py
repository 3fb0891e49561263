"""To anything a device sends its session answers with effects and ends with a documented code."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clarion.push.session import Authorise, DeviceSession
from clarion.sockets.protocol import HELLO_LIMIT_BYTES, Close, CloseCode
from tests.factories import NOW

HELLO: dict[str, Any] = {"type": "hello", "token": "t", "secret": "s"}
FRAMES: list[dict[str, Any]] = [
    HELLO,
    HELLO | {"cursor": {"news": 1}},
    {"type": "ack", "id": "a"},
    {"type": "ack", "ids": ["a", "b"]},
    {"type": "state", "foreground": True},
    {"type": "ping"},
    {"type": "pong"},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
GOOD = st.sampled_from(FRAMES).map(lambda frame: json.dumps(frame).encode())


@st.composite
def near_frames(draw: st.DrawFn) -> bytes:
    """A good frame with a field changed, and then perhaps a byte."""
    frame = dict(draw(st.sampled_from(FRAMES)))
    frame[draw(st.sampled_from([*frame, "more"]))] = draw(JSON)
    data = bytearray(json.dumps(frame).encode())
    if draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@example([(b'{"type":"hello","token":"\xff","secret":"s"}', True)])
@example([(b'{"type":"ack","\xff":1}', True)])
@example([(b"[" * 60_000, True)])
@example([(b'{"type":' * 8_000, True)])
@example([(json.dumps(HELLO).encode(), False)])
@given(st.lists(st.tuples(st.binary() | GOOD | near_frames(), st.booleans()), max_size=5))
def test_any_frames_give_effects_and_documented_codes(frames: list[tuple[bytes, bool]]) -> None:
    session = DeviceSession(NOW)
    for data, is_text in frames:
        effects = session.receive(data, is_text=is_text, now=NOW)
        assert all(CloseCode(each.code) for each in effects if isinstance(each, Close))


def code_of(data: bytes, *, is_text: bool = True) -> CloseCode:
    (close,) = DeviceSession(NOW).receive(data, is_text=is_text, now=NOW)
    assert isinstance(close, Close)
    return close.code


def test_a_frame_beyond_the_limit_is_too_large() -> None:
    assert code_of(b" " * (HELLO_LIMIT_BYTES + 1)) is CloseCode.FRAME_TOO_LARGE
    assert code_of(b" " * HELLO_LIMIT_BYTES) is CloseCode.BAD_FRAME


def test_a_frame_of_bytes_is_a_bad_frame() -> None:
    assert code_of(json.dumps(HELLO).encode(), is_text=False) is CloseCode.BAD_FRAME


@pytest.mark.parametrize("frame", FRAMES[2:], ids=lambda frame: frame["type"])
def test_the_first_frame_must_be_a_hello(frame: dict[str, Any]) -> None:
    assert code_of(json.dumps(frame).encode()) is CloseCode.BAD_FRAME


def test_a_hello_is_to_be_authorised() -> None:
    (effect,) = DeviceSession(NOW).receive(json.dumps(HELLO).encode(), is_text=True, now=NOW)
    assert isinstance(effect, Authorise)
    assert (effect.hello.token, effect.hello.secret) == ("t", "s")
