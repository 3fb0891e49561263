"""A Web Push request: what its headers may be, and the push that it becomes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import MalformedPush
from clarion.push.apns.request import ATTEMPT_MS, MAX_TTL_MS
from clarion.push.model import PushPriority
from clarion.push.model.vapid import read_base64url
from clarion.push.webpush.model import EndpointOfDevice
from clarion.push.webpush.request import BODY_LIMIT_BYTES, parse_push, read_headers
from clarion.sockets.protocol import FRAME_LIMIT_BYTES
from tests.factories import NOW, make_device, make_push_endpoint

DEVICE = make_device()
TO = EndpointOfDevice(make_push_endpoint(DEVICE), DEVICE)


def received(body: bytes = b"body", **headers: Any) -> Any:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    push, _ = parse_push(TO, {"ttl": "60"} | given, body, NOW)
    return json.loads(push.payload)["webpush"]


@pytest.mark.parametrize(
    ("ttl", "is_stored", "expires_in", "shown"),
    [
        ("0", False, ATTEMPT_MS, 0),
        ("000", False, ATTEMPT_MS, 0),
        ("60", True, 60_000, 60),
        ("2147483648", True, MAX_TTL_MS, MAX_TTL_MS // 1000),
        ("9" * 100, True, MAX_TTL_MS, MAX_TTL_MS // 1000),
    ],
)
def test_the_time_to_live_is_taken_over(
    ttl: str, *, is_stored: bool, expires_in: int, shown: int
) -> None:
    push, ttl_s = parse_push(TO, {"ttl": ttl}, b"", NOW)
    assert (push.is_stored, push.expires_at, ttl_s) == (is_stored, NOW + expires_in, shown)


@pytest.mark.parametrize("ttl", ["", "-1", "1.5", "1 2", "x", "+1", "1,2", "٣", "9" * 101])
def test_a_time_to_live_that_is_no_number_is_refused(ttl: str) -> None:
    with pytest.raises(MalformedPush, match="TTL"):
        parse_push(TO, {"ttl": ttl}, b"", NOW)


def test_the_time_to_live_must_be_given() -> None:
    with pytest.raises(MalformedPush, match="TTL"):
        parse_push(TO, {}, b"", NOW)


@pytest.mark.parametrize(
    ("urgency", "priority"),
    [
        ({}, PushPriority.IMMEDIATE),
        ({"urgency": "high"}, PushPriority.IMMEDIATE),
        ({"urgency": "normal"}, PushPriority.IMMEDIATE),
        ({"urgency": "low"}, PushPriority.CONSIDERATE),
        ({"urgency": "very-low"}, PushPriority.LOW),
    ],
)
def test_the_urgency_is_the_priority(urgency: dict[str, str], priority: PushPriority) -> None:
    push, _ = parse_push(TO, {"ttl": "1"} | urgency, b"", NOW)
    assert push.priority is priority


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("urgency", "urgent"),
        ("urgency", "high, low"),
        ("urgency", ""),
        ("topic", ""),
        ("topic", "x" * 33),
        ("topic", "a b"),
        ("topic", "a+b"),
        ("topic", "é"),
        ("content-encoding", "gzip"),
        ("content-encoding", "aes128gcm, gzip"),
        ("content-encoding", "aesgcm"),
    ],
)
def test_a_header_that_is_not_valid_is_refused(name: str, value: str) -> None:
    with pytest.raises(MalformedPush):
        parse_push(TO, {"ttl": "1", name: value}, b"", NOW)


def test_a_topic_is_of_its_endpoint_alone() -> None:
    other = TO._replace(endpoint=make_push_endpoint(DEVICE))
    pushes = [parse_push(to, {"ttl": "1", "topic": "x" * 32}, b"", NOW)[0] for to in (TO, other)]
    assert len({push.collapse_id for push in pushes}) == 2


def test_the_body_arrives_as_it_was_sent() -> None:
    got = received(b"\x00\xff" * 3, content_encoding="aes128gcm")
    assert read_base64url(got["body"]) == b"\x00\xff" * 3
    assert (got["endpoint_id"], got["encoding"]) == (TO.endpoint.id, "aes128gcm")
    assert set(received()) == {"endpoint_id", "body"}


def test_the_key_of_the_sender_is_not_passed_on() -> None:
    keys: dict[str, Any] = {
        "encryption": "keyid=k;salt=c2FsdA",
        "crypto_key": "dh=ZGg;p256ecdsa=c2VuZGVy",
    }
    got = received(content_encoding="aesgcm", **keys)
    assert (got["encryption"], got["crypto_key"]) == ("salt=c2FsdA", "dh=ZGg")


@pytest.mark.parametrize(
    "keys",
    [
        {"encryption": "salt=a"},
        {"crypto_key": "dh=a"},
        {"encryption": "salt=?", "crypto_key": "dh=a"},
    ],
)
def test_without_its_keys_the_older_encoding_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(MalformedPush):
        received(content_encoding="aesgcm", **keys)


def test_the_largest_message_fits_into_a_frame() -> None:
    push, _ = parse_push(TO, {"ttl": "1", "topic": "x" * 32}, b"x" * BODY_LIMIT_BYTES, NOW)
    assert len(push.payload) < FRAME_LIMIT_BYTES // 4


@pytest.mark.parametrize("name", [b"ttl", b"urgency", b"topic", b"authorization"])
def test_a_header_is_given_once(name: bytes) -> None:
    with pytest.raises(MalformedPush, match="once"):
        read_headers([(name, b"1"), (b"x", b"2"), (name, b"1")])


def test_headers_that_do_not_matter_may_be_repeated() -> None:
    assert read_headers([(b"x", b"1"), (b"x", b"2"), (b"ttl", b" 3 ")]) == {"ttl": "3"}


@given(st.dictionaries(st.sampled_from(["ttl", "urgency", "topic", "encryption"]), st.text()))
def test_whatever_is_sent_it_is_read_or_refused(headers: dict[str, str]) -> None:
    try:
        push, _ = parse_push(TO, headers, b"", NOW)
    except MalformedPush:
        return
    json.loads(push.payload)
