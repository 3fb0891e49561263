"""What a provider may send: each fault alone, each good value alone, and anything at all."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.apns.request import (
    ATTEMPT_MS,
    MAX_TTL_MS,
    SUFFIXES,
    Push,
    check_repeated,
    parse_push,
)
from clarion.push.model import PushPriority
from tests.factories import DAY, NOW

TOKEN = "ab" * 32
BODY = b'{"aps":{"alert":"hi"}}'
BUNDLE = "com.example.app"
HEADERS = {b"apns-topic": BUNDLE.encode()}
UUID = b"eabeae54-14a8-11e5-b60b-1697f925ec7b"


def parse(
    headers: dict[str, bytes] | None = None, *, token: str = TOKEN, body: bytes = BODY
) -> Push:
    given = {f"apns-{name}".encode(): value for name, value in (headers or {}).items()}
    return parse_push(HEADERS | given, token, body, NOW)


def refusal(*args: Any, **kwargs: Any) -> Reason:
    with pytest.raises(Rejected) as raised:
        parse(*args, **kwargs)
    return raised.value.reason


def of_size(size: int) -> bytes:
    return b'{"a":"%s"}' % (b"x" * (size - 8))


# What is wrong, and how it is refused. The rest of the request is good.
HEADER_FAULTS: list[tuple[str, bytes, Reason]] = [
    ("id", b"", Reason.BAD_MESSAGE_ID),
    ("id", b"1", Reason.BAD_MESSAGE_ID),
    ("id", UUID + b"\n", Reason.BAD_MESSAGE_ID),
    ("id", UUID.replace(b"-", b""), Reason.BAD_MESSAGE_ID),
    ("id", b"{%s}" % UUID, Reason.BAD_MESSAGE_ID),
    ("id", UUID[:-1] + b"g", Reason.BAD_MESSAGE_ID),
    ("push-type", b"", Reason.INVALID_PUSH_TYPE),
    ("push-type", b"alarm", Reason.INVALID_PUSH_TYPE),
    ("push-type", b"\xff", Reason.INVALID_PUSH_TYPE),
    ("topic", b"", Reason.MISSING_TOPIC),
    ("topic", b"com", Reason.BAD_TOPIC),
    ("topic", b"com..app", Reason.BAD_TOPIC),
    ("topic", b"com.exa mple", Reason.BAD_TOPIC),
    ("topic", b"com.example.\xe4pp", Reason.BAD_TOPIC),
    ("topic", b"com.example.app\n", Reason.BAD_TOPIC),
    ("priority", b"", Reason.BAD_PRIORITY),
    ("priority", b"0", Reason.BAD_PRIORITY),
    ("priority", b"11", Reason.BAD_PRIORITY),
    ("priority", b"05", Reason.BAD_PRIORITY),
    ("priority", b"high", Reason.BAD_PRIORITY),
    ("expiration", b"", Reason.BAD_EXPIRATION_DATE),
    ("expiration", b"-1", Reason.BAD_EXPIRATION_DATE),
    ("expiration", b"1.5", Reason.BAD_EXPIRATION_DATE),
    ("expiration", b"soon", Reason.BAD_EXPIRATION_DATE),
    ("expiration", b"1" * 13, Reason.BAD_EXPIRATION_DATE),
    ("collapse-id", b"", Reason.BAD_COLLAPSE_ID),
    ("collapse-id", b"x" * 65, Reason.BAD_COLLAPSE_ID),
    ("collapse-id", "ä".encode() * 33, Reason.BAD_COLLAPSE_ID),
]
TOKEN_FAULTS: list[tuple[str, Reason]] = [
    ("", Reason.MISSING_DEVICE_TOKEN),
    ("ab", Reason.BAD_DEVICE_TOKEN),
    ("a" * 63, Reason.BAD_DEVICE_TOKEN),
    ("g" * 64, Reason.BAD_DEVICE_TOKEN),
    ("ab" * 129, Reason.BAD_DEVICE_TOKEN),
    (TOKEN + "\n", Reason.BAD_DEVICE_TOKEN),
    (TOKEN[:-2] + "٣٤", Reason.BAD_DEVICE_TOKEN),
]
BODY_FAULTS: list[tuple[bytes, Reason]] = [
    (b"", Reason.PAYLOAD_EMPTY),
    (b"{}", Reason.PAYLOAD_EMPTY),
    (b"[]", Reason.PAYLOAD_EMPTY),
    (b"null", Reason.PAYLOAD_EMPTY),
    (b"aps", Reason.PAYLOAD_EMPTY),
    (b'{"a":1', Reason.PAYLOAD_EMPTY),
    (b'{"a":"\xff"}', Reason.PAYLOAD_EMPTY),
    (b'{"a":{"b":["\xed\xa0\x80"]}}', Reason.PAYLOAD_EMPTY),
    (b'{"a":' + b"[" * 4_000, Reason.PAYLOAD_EMPTY),
    (of_size(4_097), Reason.PAYLOAD_TOO_LARGE),
    (b" " * 4_097, Reason.PAYLOAD_TOO_LARGE),
]


@pytest.mark.parametrize(("name", "value", "reason"), HEADER_FAULTS)
def test_a_bad_header_is_refused_with_its_reason(name: str, value: bytes, reason: Reason) -> None:
    assert refusal({name: value}) is reason


def test_without_a_topic_a_push_is_refused() -> None:
    with pytest.raises(Rejected) as raised:
        parse_push({}, TOKEN, BODY, NOW)
    assert raised.value.reason is Reason.MISSING_TOPIC


@pytest.mark.parametrize(("token", "reason"), TOKEN_FAULTS)
def test_a_bad_token_is_refused(token: str, reason: Reason) -> None:
    assert refusal(token=token) is reason


@pytest.mark.parametrize(("body", "reason"), BODY_FAULTS, ids=lambda value: str(value)[:20])
def test_a_bad_body_is_refused(body: bytes, reason: Reason) -> None:
    assert refusal(body=body) is reason


def test_a_plain_push_means_at_once_and_kept_for_30_days() -> None:
    assert parse() == Push(
        id=None,
        token_hash=hashlib.sha256(TOKEN.encode()).digest(),
        bundle_id=BUNDLE,
        priority=PushPriority.IMMEDIATE,
        collapse_id=None,
        is_stored=True,
        expires_at=NOW + 30 * DAY,
        payload=BODY,
    )


@pytest.mark.parametrize("given", [UUID, UUID.upper()])
def test_an_id_is_kept_as_it_was_given(given: bytes) -> None:
    assert parse({"id": given}).id == given.decode()


@pytest.mark.parametrize("length", [32, 64, 100, 256])
def test_tokens_have_many_lengths_and_no_case(length: int) -> None:
    token = "aB" * (length // 2)
    assert parse(token=token).token_hash == parse(token=token.lower()).token_hash


@pytest.mark.parametrize(("push_type", "suffix"), SUFFIXES.items())
def test_the_topic_has_the_suffix_of_its_push_type(push_type: str, suffix: str) -> None:
    topic = (BUNDLE + suffix).encode()
    priority = b"5"
    named = {"topic": topic, "push-type": push_type.encode(), "priority": priority}
    assert parse(named).bundle_id == BUNDLE
    assert parse(named | {"push-type": push_type.upper().encode()}).bundle_id == BUNDLE
    assert parse({"topic": topic}).bundle_id == BUNDLE
    if suffix:
        assert refusal(named | {"topic": BUNDLE.encode()}) is Reason.BAD_TOPIC


@pytest.mark.parametrize("priority", PushPriority)
def test_there_are_three_priorities(priority: PushPriority) -> None:
    assert parse({"priority": b"%d" % priority}).priority is priority


def test_what_runs_in_the_background_is_never_urgent() -> None:
    background = {"push-type": b"background"}
    assert parse(background).priority is PushPriority.CONSIDERATE
    assert parse(background | {"priority": b"1"}).priority is PushPriority.LOW
    assert refusal(background | {"priority": b"10"}) is Reason.BAD_PRIORITY


@pytest.mark.parametrize("seconds", [0, 1, NOW // 1000 - 1, NOW // 1000])
def test_zero_or_a_time_that_has_passed_is_one_attempt(seconds: int) -> None:
    push = parse({"expiration": b"%d" % seconds})
    assert (push.is_stored, push.expires_at) == (False, NOW + ATTEMPT_MS)


@pytest.mark.parametrize("seconds", [1, 3_600, 30 * 86_400 - 1])
def test_a_time_to_come_is_when_a_push_expires(seconds: int) -> None:
    push = parse({"expiration": b"%d" % (NOW // 1000 + seconds)})
    assert (push.is_stored, push.expires_at) == (True, NOW + seconds * 1000)


def test_nothing_lives_longer_than_30_days() -> None:
    push = parse({"expiration": b"9" * 12})
    assert (push.is_stored, push.expires_at) == (True, NOW + MAX_TTL_MS)


@pytest.mark.parametrize("given", [b"x", b"x" * 64, "ä".encode() * 32])
def test_a_collapse_id_has_up_to_64_bytes(given: bytes) -> None:
    assert parse({"collapse-id": given}).collapse_id == given.decode()


def test_a_payload_has_up_to_4096_bytes_and_5120_for_voip() -> None:
    voip = {"topic": f"{BUNDLE}.voip".encode()}
    assert parse(body=of_size(4_096)).payload == of_size(4_096)
    for headers in (voip, voip | {"push-type": b"voip"}):
        assert len(parse(headers, body=of_size(5_120)).payload) == 5_120
        assert refusal(headers, body=of_size(5_121)) is Reason.PAYLOAD_TOO_LARGE


def test_a_header_may_be_there_once() -> None:
    raw = [(b"apns-topic", b"a"), (b"cookie", b"1"), (b"cookie", b"2"), (b"x", b"")]
    check_repeated(raw, dict(raw))
    with pytest.raises(Rejected) as raised:
        check_repeated([*raw, (b"x", b"")], dict(raw))
    assert raised.value.reason is Reason.DUPLICATE_HEADERS


NAMES = [b"apns-" + name for name in (b"id", b"topic", b"priority", b"push-type", b"expiration")]
NEAR = st.sampled_from(
    [UUID, BUNDLE.encode(), b"com.example.app.voip", b"voip", b"background", b"10", b"5", b"0"]
)
ANY_HEADERS = st.lists(
    st.tuples(st.sampled_from([*NAMES, b"apns-collapse-id", b"x"]), NEAR | st.binary(max_size=70))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@st.composite
def near_json(draw: st.DrawFn) -> bytes:
    """JSON, perhaps with a byte changed."""
    data = bytearray(json.dumps(draw(JSON), ensure_ascii=draw(st.booleans())).encode())
    if draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@example([(b"apns-topic", BUNDLE.encode())], TOKEN, b'{"a":"\xff"}')
@example([(b"apns-topic", BUNDLE.encode())], TOKEN, b'{"a":1e999}')
@given(
    ANY_HEADERS | ANY_HEADERS.map(lambda raw: [*HEADERS.items(), *raw]),
    st.just(TOKEN) | st.text(),
    near_json() | st.binary(),
)
def test_anything_is_a_good_push_or_refused(
    raw: list[tuple[bytes, bytes]], token: str, body: bytes
) -> None:
    try:
        check_repeated(raw, dict(raw))
        push = parse_push(dict(raw), token, body, NOW)
    except Rejected:
        return
    assert len(push.token_hash) == 32
    assert NOW < push.expires_at <= NOW + MAX_TTL_MS
    assert push.collapse_id is None or 0 < len(push.collapse_id) <= 64
    assert isinstance(json.loads(push.payload.decode()), dict)
