"""The payload of a push says all that fits into its limit, and never more."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.catalog.model import Priority
from clarion.channels.fcm import build_fcm_message
from clarion.channels.payloads import (
    PAYLOAD_LIMIT_BYTES,
    SMALLEST_LIMIT_BYTES,
    apns_priority,
    build_push_payload,
    collapse_id,
)
from clarion.history.model import Content, Target
from tests.factories import NOW
from tests.outgoing import make_outgoing
from tests.peers.fcm import check_message

TEXTS = st.text(max_size=3000)
LONG_TEXTS = st.builds(lambda part, times: part * times, st.text(min_size=1), st.integers(1, 600))
SHORT = st.text(min_size=1, max_size=100)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3),
    max_leaves=5,
)
CONTENTS = st.builds(
    Content,
    data=st.dictionaries(SHORT, JSON, max_size=3),
    target=st.none() | st.builds(Target, id=st.none() | st.text(max_size=256)),
    deeplink=st.none() | st.text(max_size=2048),
    image_url=st.none() | st.text(max_size=2048),
    collapse_key=st.none() | st.text(min_size=1, max_size=256),
)


def read(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload.decode())
    return found


def test_it_says_everything() -> None:
    message = make_outgoing(
        "ab",
        id="m1",
        count=3,
        content=Content(
            data={"order": 7},
            target=Target(id="table-4", type="table"),
            deeplink="app://orders/7",
            image_url="https://img.example/7.png",
        ),
        type="order",
        priority=Priority.HIGH,
    )
    shown = message.notification
    assert read(build_push_payload(message)) == {
        "aps": {
            "alert": {"title": "Bo", "body": "said something"},
            "category": "order",
            "thread-id": "table-4",
            "sound": "default",
            "mutable-content": 1,
        },
        "notification_id": shown.id,
        "event_id": shown.event_id,
        "type": "order",
        "category": "social",
        "deeplink": "app://orders/7",
        "image_url": "https://img.example/7.png",
        "count": 3,
        "data": {"order": 7},
    }


def test_what_is_absent_is_left_out() -> None:
    message = make_outgoing("ab", subject=None, content=Content(), priority=Priority.LOW)
    payload = read(build_push_payload(message))
    assert payload.keys() == {"aps", "notification_id", "event_id", "type", "category"}
    assert payload["aps"] == {
        "alert": {"body": "said something"},
        "category": "comment",
        "interruption-level": "passive",
    }


def make_large(**sizes: int) -> dict[str, Any]:
    """Return the payload of a message whose parts have these sizes."""
    sizes = {"data": 1, "image_url": 1, "deeplink": 1, "subject": 1, "body": 1} | sizes
    content = Content(
        data={"text": "d" * sizes["data"]},
        image_url="i" * sizes["image_url"],
        deeplink="l" * sizes["deeplink"],
    )
    message = make_outgoing(
        "ab", subject="t" * sizes["subject"], body="b" * sizes["body"], content=content
    )
    encoded = build_push_payload(message)
    assert len(encoded) <= PAYLOAD_LIMIT_BYTES
    return read(encoded)


@pytest.mark.parametrize(
    ("sizes", "missing"),
    [
        ({"data": 3000}, set()),
        ({"data": 4000}, {"data"}),
        ({"data": 9, "image_url": 4000}, {"data", "image_url"}),
        ({"deeplink": 4000}, {"data", "image_url", "deeplink"}),
        ({"deeplink": 500, "body": 4000}, {"data", "image_url"}),
    ],
)
def test_the_least_important_part_is_left_out_first(
    sizes: dict[str, int], missing: set[str]
) -> None:
    payload = make_large(**sizes)
    assert {"data", "image_url", "deeplink"} - payload.keys() == missing
    assert payload.get("truncated", False) == bool(missing)


def test_then_the_body_is_shortened_and_then_the_title() -> None:
    alert = make_large(body=9000)["aps"]["alert"]
    assert alert["title"] == "t"
    assert alert["body"].endswith("bbb…")
    assert len(alert["body"]) > 3500
    alert = make_large(body=9000, subject=9000)["aps"]["alert"]
    assert alert["body"] == "…"
    assert alert["title"].endswith("ttt…")
    assert len(alert["title"]) > 3500


@pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦", "e\u0301", "👍🏽"])
def test_what_is_shown_as_one_character_is_not_cut_in_two(text: str) -> None:
    for before in range(len(text.encode())):
        payload = read(build_push_payload(make_outgoing("ab", body="x" * before + text * 2000)))
        body = payload["aps"]["alert"]["body"]
        assert body.removesuffix("…").lstrip("x").replace(text, "") == ""
        assert len(body) > 100


@given(TEXTS | LONG_TEXTS, st.none() | TEXTS | LONG_TEXTS, CONTENTS, SHORT, st.integers(0, 10**6))
def test_a_payload_is_json_within_its_limit_whatever_it_is_made_of(
    body: str, subject: str | None, content: Content, name: str, count: int
) -> None:
    message = make_outgoing(
        "t" * 200, subject=subject, body=body, content=content, type=name, count=count
    )
    for limit in (SMALLEST_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES):
        encoded = build_push_payload(message, limit)
        assert len(encoded) <= limit
        payload = read(encoded)
        assert payload["notification_id"] == message.notification.id
        if "truncated" not in payload:
            assert payload["aps"]["alert"]["body"] == body
            assert payload.get("data", {}) == content.data
    check_message(read(build_fcm_message(message, NOW))["message"])


@pytest.mark.parametrize(
    ("priority", "expected"),
    [(Priority.CRITICAL, 10), (Priority.HIGH, 10), (Priority.MEDIUM, 5), (Priority.LOW, 1)],
)
def test_priorities_are_those_of_apns(priority: Priority, expected: int) -> None:
    assert apns_priority(priority) == expected


def test_a_collapse_id_is_of_a_type_and_a_key() -> None:
    def named(key: str | None, name: str = "order") -> str | None:
        return collapse_id(make_outgoing("ab", content=Content(collapse_key=key), type=name))

    assert named(None) is None
    assert named("x") == named("x")
    assert len({named("x"), named("y"), named("x", "other"), named("ü" * 256)}) == 4
    assert all(len(named(key) or "") == 32 for key in ("x", "ü" * 256))
