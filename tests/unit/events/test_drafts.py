"""What an event must be before it is stored, and what is stored of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from clarion.catalog.model import Channel, Priority
from clarion.events.drafts import (
    DATA_LIMIT_BYTES,
    EventDraft,
    find_faults,
    find_timeless_faults,
    make_event,
)
from clarion.events.model import Audience, AudienceKind, Event, EventStatus
from tests.factories import NOW

MOMENT = datetime.fromtimestamp(NOW / 1000, UTC)
HOUR_MS = 3_600_000
NO_OFFSET = datetime(2099, 1, 1)  # noqa: DTZ001 - that is its fault


def make_draft(**changes: Any) -> EventDraft:
    values: dict[str, Any] = {"type": "ORDER", "recipient": {"user_id": "ana"}} | changes
    return msgspec.convert(values, EventDraft)


def make(**changes: Any) -> Event:
    return make_event(make_draft(**changes), "app", "e1", NOW, priority=Priority.HIGH)


def faults(**changes: Any) -> list[str]:
    return [each.field for each in find_faults(make_draft(**changes), NOW)]


def after(**more: float) -> datetime:
    return MOMENT + timedelta(**more)


@pytest.mark.parametrize(
    "recipient",
    [
        {"user_id": "ana"},
        {"user_id": "a" * 128},
        {"user_id": "a|b:c@d=e+f~g_h-i.1"},
        {"user_ids": ["ana"] * 10_000},
        {"topic": "a" * 200},
        {"topic": "a.b_c~d=e-f:g"},
        {"all": True},
    ],
)
def test_these_are_recipients(recipient: dict[str, Any]) -> None:
    assert faults(recipient=recipient) == []


@pytest.mark.parametrize(
    ("recipient", "field"),
    [
        ({}, "recipient"),
        ({"user_id": "ana", "all": True}, "recipient"),
        ({"user_id": "ana", "all": False}, "recipient"),
        ({"user_id": ""}, "recipient.user_id"),
        ({"user_id": "x" * 129}, "recipient.user_id"),
        ({"user_id": "a/b"}, "recipient.user_id"),
        ({"user_id": "a\n"}, "recipient.user_id"),
        ({"user_id": "ä"}, "recipient.user_id"),
        ({"user_ids": []}, "recipient.user_ids"),
        ({"user_ids": ["ana", "a b", "ä"]}, "recipient.user_ids[1]"),
        ({"user_ids": ["x"] * 10_001}, "recipient.user_ids"),
        ({"topic": "x" * 201}, "recipient.topic"),
        ({"topic": "a/b"}, "recipient.topic"),
        ({"topic": ""}, "recipient.topic"),
        ({"segment": "a b"}, "recipient.segment"),
        ({"all": False}, "recipient.all"),
    ],
)
def test_these_are_none(recipient: dict[str, Any], field: str) -> None:
    assert faults(recipient=recipient) == [field]


@pytest.mark.parametrize(
    ("times", "fields"),
    [
        ({"scheduled_at": after(seconds=1)}, []),
        ({"scheduled_at": MOMENT}, ["scheduled_at"]),
        ({"scheduled_at": after(days=366)}, []),
        ({"scheduled_at": after(days=366, seconds=1)}, ["scheduled_at"]),
        ({"scheduled_at": NO_OFFSET}, ["scheduled_at"]),
        ({"expires_at": MOMENT}, ["expires_at"]),
        ({"expires_at": after(hours=1), "ttl_s": 1}, ["expires_at"]),
        ({"expires_at": after(hours=1), "scheduled_at": after(hours=1)}, ["expires_at"]),
        ({"expires_at": after(hours=1), "scheduled_at": after(minutes=59)}, []),
        (
            {"expires_at": NO_OFFSET, "scheduled_at": MOMENT},
            ["expires_at", "scheduled_at"],
        ),
    ],
)
def test_times_must_make_sense(times: dict[str, Any], fields: list[str]) -> None:
    assert faults(**times) == fields


def test_what_is_asked_about_another_time_may_be_over() -> None:
    draft = make_draft(scheduled_at=after(days=-9), expires_at=after(days=-8))
    assert list(find_timeless_faults(draft)) == []


def test_data_has_a_size() -> None:
    room = DATA_LIMIT_BYTES - len(b'{"a":""}')
    assert faults(data={"a": "x" * room}) == []
    assert faults(data={"a": "x" * (room + 1)}) == ["data"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"data": {"a": ["\0"]}}, "data"),
        ({"data": {"\0": 1}}, "data"),
        ({"data": {"a": "\\\0"}}, "data"),
        ({"deeplink": "a\0"}, "deeplink"),
        ({"image_url": "a\0"}, "image_url"),
        ({"dedupe_key": "\0"}, "dedupe_key"),
        ({"actor": {"name": "\0"}}, "actor.name"),
        ({"target": {"id": "\0"}}, "target.id"),
    ],
)
def test_zero_characters_are_found_wherever_they_are(change: dict[str, Any], field: str) -> None:
    assert faults(**change) == [field]


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "u0000", "\x01"])
def test_what_only_looks_like_one_is_kept(text: str) -> None:
    assert faults(data={"a": text}) == []


def test_all_faults_are_found_at_once() -> None:
    found = faults(recipient={}, scheduled_at=MOMENT, data={"a": "\0"}, deeplink="\0")
    assert found == ["recipient", "deeplink", "data", "scheduled_at"]


def test_an_event_is_what_the_draft_says() -> None:
    event = make(
        data={"a": 1},
        actor={"name": "Bo"},
        target={"id": "p1"},
        channels=["in_app", "stub", "in_app"],
        dedupe_key="k",
        deeplink="app://p1",
    )
    assert (event.id, event.app_id, event.type, event.dedupe_key) == ("e1", "app", "ORDER", "k")
    assert (event.status, event.remaining) == (EventStatus.PENDING, 1)
    assert event.content.channels == (Channel.IN_APP, Channel.STUB)
    assert (event.content.actor.name, event.content.target.id) == ("Bo", "p1")  # type: ignore[union-attr]
    assert (event.content.data, event.content.deeplink) == ({"a": 1}, "app://p1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, Priority.HIGH), ("low", Priority.LOW), (0, Priority.LOW), (3, Priority.CRITICAL)],
)
def test_a_priority_is_a_word_or_a_number(given: str | int | None, expected: Priority) -> None:
    assert make(priority=given).priority is expected


@pytest.mark.parametrize(
    ("recipient", "audience"),
    [
        ({"user_id": "ana"}, Audience(AudienceKind.USER, ("ana",))),
        ({"user_ids": ["ana", "ana"]}, Audience(AudienceKind.USER, ("ana",))),
        ({"user_ids": ["bo", "ana", "bo"]}, Audience(AudienceKind.USERS, ("bo", "ana"))),
        ({"topic": "news"}, Audience(AudienceKind.TOPIC, topic="news")),
        ({"all": True}, Audience(AudienceKind.ALL)),
    ],
)
def test_who_is_named_twice_is_meant_once(recipient: dict[str, Any], audience: Audience) -> None:
    assert make(recipient=recipient).audience == audience


def test_a_life_begins_when_it_is_told() -> None:
    assert make(ttl_s=60).expires_at == NOW + 60_000
    scheduled = make(ttl_s=60, scheduled_at=after(hours=1))
    assert scheduled.status is EventStatus.SCHEDULED
    assert scheduled.scheduled_at == NOW + HOUR_MS
    assert scheduled.expires_at == NOW + HOUR_MS + 60_000
    assert make(expires_at=after(hours=1)).expires_at == NOW + HOUR_MS
    assert make().expires_at is None


@pytest.mark.parametrize("place", ["actor.id", "actor.name", "target.id", "target.type"])
def test_no_control_character_comes_into_an_actor_or_a_target(place: str) -> None:
    r"""It would end a header of an email: `Bo\r\nBcc: everyone@example.com`."""
    outer, inner = place.split(".")
    for character in map(chr, (*range(32), *range(127, 160))):
        assert faults(**{outer: {inner: f"Bo{character}Bcc: all@example.com"}}) == [place]


def test_names_in_any_script_are_taken() -> None:
    assert faults(actor={"id": "Ünï|1", "name": "Ana 👩‍👩‍👧 O’Neil, Jr. <ana>"}) == []
