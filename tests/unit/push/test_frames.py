"""The frames of the device socket, written and read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.push import frames
from clarion.push.frames import ACK_IDS_LIMIT, Ack, Hello, State
from clarion.push.model import PushPriority
from clarion.sockets.protocol import PING, PONG, Ping, Pong
from tests.factories import NOW, make_broadcast, make_message


def read(frame: dict[str, Any]) -> frames.Frame:
    return frames.decoder.decode(json.dumps(frame).encode())


def test_a_hello_has_credentials_and_cursors() -> None:
    hello = read({"type": "hello", "token": "t", "secret": "s", "cursor": {"news": 7}})
    assert hello == Hello(token="t", secret="s", cursor={"news": 7})
    assert read({"type": "hello", "token": "t", "secret": "s"}) == Hello(token="t", secret="s")


@pytest.mark.parametrize("cursor", [-1, 2**63, 10**30, 1.5, "1", None])
def test_a_cursor_is_a_sequence(cursor: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read({"type": "hello", "token": "t", "secret": "s", "cursor": {"news": cursor}})


def test_an_ack_names_one_or_many() -> None:
    assert Ack(id="a").all_ids() == ["a"]
    assert Ack(ids=["a", "b"]).all_ids() == ["a", "b"]
    assert Ack(id="a", ids=["b"]).all_ids() == ["a", "b"]
    assert Ack().all_ids() == []


def test_an_ack_names_up_to_a_thousand() -> None:
    assert isinstance(read({"type": "ack", "ids": ["a"] * ACK_IDS_LIMIT}), Ack)
    with pytest.raises(msgspec.ValidationError):
        read({"type": "ack", "ids": ["a"] * (ACK_IDS_LIMIT + 1)})


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"type": "state"}, State()),
        ({"type": "state", "foreground": False}, State(foreground=False)),
        ({"type": "state", "enabled": True}, State(enabled=True)),
        ({"type": "ping"}, Ping()),
        ({"type": "pong"}, Pong()),
    ],
)
def test_a_frame_is_read_by_its_type(frame: dict[str, Any], expected: frames.Frame) -> None:
    assert read(frame) == expected


@pytest.mark.parametrize("frame", [{}, {"type": "bye"}, {"type": "ping", "more": 1}, {"id": "a"}])
def test_another_frame_is_an_error(frame: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(frame)


def test_ready_says_which_device_and_how_much_waits() -> None:
    ready = {"type": "ready", "device_id": "d", "heartbeat_s": 30, "pending": 7}
    assert json.loads(frames.encode_ready("d", 30, 7)) == ready


def test_ping_and_pong_are_frames_of_the_protocol() -> None:
    assert frames.decoder.decode(PING) == Ping()
    assert frames.decoder.decode(PONG) == Pong()


def test_a_message_without_more_has_these_fields() -> None:
    message = make_message(payload=b'{"aps": 1}', priority=PushPriority.CONSIDERATE)
    assert json.loads(frames.encode_message(message)) == {
        "type": "notification",
        "id": message.id,
        "payload": {"aps": 1},
        "priority": 5,
        "sent_at": "2026-01-01T00:00:00.000Z",
    }


PAYLOADS = st.dictionaries(st.text(), st.text() | st.integers(), min_size=1)


@given(message_id=st.text(), payload=PAYLOADS, collapse_id=st.text(), topic=st.text())
def test_a_message_goes_out_as_json_with_its_payload_untouched(
    message_id: str, payload: dict[str, Any], collapse_id: str, topic: str
) -> None:
    raw = json.dumps(payload, indent=1).encode()
    message = make_broadcast(topic, id=message_id, payload=raw, collapse_id=collapse_id)
    data = frames.encode_message(message)
    assert raw in data
    assert json.loads(data) == {
        "type": "notification",
        "id": message_id,
        "payload": payload,
        "priority": 10,
        "collapse_id": collapse_id,
        "topic": topic,
        "sent_at": "2026-01-01T00:00:00.000Z",
    }
    assert message.created_at == NOW
