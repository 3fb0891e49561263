"""Regressions of the pipeline, each by itself, on both engines."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from clarion.catalog.model import Channel, Digest, Priority
from clarion.events.outcome_writer import TRIES
from clarion.events.worker import CLAIMS
from clarion.history.model import DeliveryStatus, ReasonCode
from clarion.store.opening import migrate
from tests.contract.pipeline_model import HOUR, MINUTE, NEVER_QUIET, ModelUser
from tests.contract.pipeline_world import TEXT, TYPES, Store, World
from tests.pipeline import LEASE
from tests.replacing import replace

ALWAYS_QUIET = (True,) * 24
DAILY = Digest(daily_at="09:00")
MANY = 100


@pytest.fixture
def ana() -> ModelUser:
    return ModelUser("ana", "UTC", quiet=NEVER_QUIET)


@pytest.fixture
def world(database_url: str, ana: ModelUser) -> Iterator[World]:
    asyncio.run(migrate(database_url))
    store = Store(database_url)
    yield store.make_world([ana])
    store.close()


def send(world: World, name: str, **more: Any) -> str:
    return world.send({"type": name, "recipient": {"user_id": "ana"}, **more})


def status_of(world: World, event_id: str) -> str:
    return {each: status for each, status, _, _ in world.events()}[event_id]


def test_a_job_that_kills_its_workers_is_a_dead_letter_and_can_be_replayed(
    world: World, ana: ModelUser
) -> None:
    event_id = send(world, "PLAIN")
    for _ in range(CLAIMS):
        world.restart()
        world.clock.advance(LEASE)
        world.claim()
    world.clock.advance(LEASE)
    world.drain()
    assert world.count_jobs() == (0, 1)
    assert status_of(world, event_id) == "failed"
    assert world.replay(event_id, Priority.MEDIUM)
    world.drain()
    assert [each.event_id for each in world.inbox(ana)] == [event_id]
    assert (world.count_jobs(), status_of(world, event_id)) == ((0, 0), "completed")


def test_a_job_that_makes_progress_is_never_a_dead_letter(world: World, ana: ModelUser) -> None:
    """A held job is decided again at every change of preferences, however many there are."""
    ana.quiet = ALWAYS_QUIET
    world.change(ana)
    send(world, "PLAIN")
    for _ in range(CLAIMS + 5):
        world.drain()
        world.change(ana)
    assert world.count_jobs() == (1, 0)
    ana.quiet = NEVER_QUIET
    world.change(ana)
    world.drain()
    assert len(world.provider.messages) == 1


@pytest.mark.parametrize("name", ["FEW", "ONCE", "LIKES"])
def test_many_events_for_a_user_are_decided_at_once(
    world: World, ana: ModelUser, name: str
) -> None:
    """No job waits for a lease to expire: that would take a minute for every few of them."""
    for _ in range(MANY):
        send(world, name, dedupe_key="same")
    world.drain()
    assert world.count_jobs() == (0, 0)
    assert len(list(world.notifications())) == MANY
    expected = {"FEW": [1, 1], "ONCE": [1], "LIKES": [MANY]}
    assert [each.count for each in world.inbox(ana)] == expected[name]


def test_a_digest_is_sent_at_its_time_despite_changes_before(world: World, ana: ModelUser) -> None:
    send(world, "LETTER")
    world.drain()
    world.clock.advance(HOUR)
    world.change(ana)
    send(world, "LETTER")
    world.drain()
    assert world.provider.messages == []
    world.clock.advance(HOUR)
    world.drain()
    assert [(message.count, at) for message, at, _ in world.provider.messages] == [
        (2, world.clock.now())
    ]


def test_a_digest_leaves_out_what_has_expired(world: World) -> None:
    first = send(world, "LETTER")
    world.drain()
    send(world, "LETTER", ttl_s=60)
    world.drain()
    world.clock.advance(2 * HOUR)
    world.drain()
    (sent,) = world.provider.messages
    ids = dict(world.notifications())
    assert (sent[0].notification.id, sent[0].count) == (ids[first, "ana"], 1)


@pytest.fixture
def collect(world: World) -> Callable[..., list[str]]:
    """Return a function that collects a part for each number; then the text divides by it."""

    def collect(*numbers: int, name: str = "LETTER") -> list[str]:
        events = []
        for number in numbers:
            events.append(send(world, name, data={"n": number}))
            world.drain()
        world.write_text(name, "{{ count }}/{{ 1 | divided_by: n }}", "n")
        world.clock.advance(2 * HOUR)
        try_all(world)
        return events

    return collect


def try_all(world: World) -> None:
    """Do what is due until nothing is tried again."""
    for _ in range(TRIES):
        world.drain()
        world.clock.advance(MINUTE)


def outcome_of(world: World, event_id: str, channel: Channel) -> tuple[str, str]:
    (delivery,) = world.deliveries(find(world, event_id), channel)
    return delivery.status.value, delivery.reason.value


@pytest.mark.parametrize(
    ("numbers", "lead"), [((1, 1, 0), 1), ((1, 0, 0), 0), ((0, 1, 1), 2), ((0, 1, 0), 1)]
)
def test_a_part_that_cannot_be_rendered_stops_no_digest(
    world: World, collect: Callable[..., list[str]], numbers: tuple[int, ...], lead: int
) -> None:
    events = collect(*numbers)
    ((message, _, _),) = world.provider.messages
    assert (message.notification.event_id, message.count) == (events[lead], lead + 1)
    found = [outcome_of(world, each, Channel.STUB) for each in events]
    assert found[: lead + 1] == [("folded", "joins_digest")] * lead + [("delivered", "allowed")]
    assert set(found[lead + 1 :]) <= {("failed", "attempts_exhausted")}
    apart = events[lead + 1 :]
    assert {each for each, status, _, _ in world.events() if status == "failed"} == set(apart)
    assert world.count_jobs() == (0, len(apart))
    world.write_text("LETTER", TEXT)
    for each in apart:
        assert world.replay(each, Priority.MEDIUM)
    world.drain()
    assert [sent.count for sent, _, _ in world.provider.messages[1:]] == [1] * len(apart)
    assert (world.count_jobs(), status_of(world, events[-1])) == ((0, 0), "completed")


def test_all_parts_of_a_digest_that_cannot_be_rendered_are_sent_when_it_is_repaired(
    world: World, collect: Callable[..., list[str]]
) -> None:
    events = collect(0, 0, 0)
    found = {outcome_of(world, each, Channel.STUB) for each in events}
    assert (found, world.count_jobs()) == ({("collected", "joins_digest")}, (0, 1))
    world.write_text("LETTER", TEXT)
    assert world.replay(events[0], Priority.MEDIUM)
    world.drain()
    assert [sent.count for sent, _, _ in world.provider.messages] == [3]
    assert world.count_jobs() == (0, 0)


def test_a_digest_that_is_sent_with_a_later_part_is_no_failure_any_more(
    world: World, collect: Callable[..., list[str]]
) -> None:
    events = collect(0, 0)
    assert [status_of(world, each) for each in events] == ["failed", "completed"]
    events.append(send(world, "LETTER", data={"n": 1}))
    world.drain()
    world.clock.advance(2 * HOUR)
    world.drain()
    assert [sent.count for sent, _, _ in world.provider.messages] == [3]
    assert {status_of(world, each) for each in events} == {"completed"}


def test_a_part_that_cannot_be_rendered_stops_no_digest_of_the_inbox(
    world: World, ana: ModelUser, collect: Callable[..., list[str]]
) -> None:
    """Of this type one is sent in an hour, and what exceeds that joins a digest."""
    first, *_, lead, apart = collect(1, 1, 1, 0, name="HEAP")
    assert [(each.event_id, each.count) for each in world.inbox(ana)] == [(lead, 2), (first, 1)]
    assert outcome_of(world, apart, Channel.IN_APP) == ("held", "joins_digest")
    assert outcome_of(world, apart, Channel.STUB) == ("failed", "attempts_exhausted")
    assert (world.count_jobs(), status_of(world, apart)) == ((0, 2), "failed")
    world.write_text("HEAP", TEXT)
    assert world.replay(apart, Priority.MEDIUM)
    world.drain()
    assert {each.event_id: each.count for each in world.inbox(ana)} == {first: 1, lead: 2, apart: 1}
    assert [sent.count for sent, _, _ in world.provider.messages] == [1, 2, 1]
    assert world.count_jobs() == (0, 0)


def test_a_digest_that_is_held_at_its_second_try_is_sent_whole_later(
    world: World, ana: ModelUser
) -> None:
    """The second try falls into quiet hours: it is held, and keeps its count."""
    ana.stub = "retry 1"
    world.change(ana)
    for _ in range(3):
        send(world, "LETTER")
    world.drain()
    world.clock.advance(2 * HOUR)
    world.drain()
    ana.quiet = ALWAYS_QUIET
    world.change(ana)
    world.clock.advance(MINUTE)
    world.drain()
    ana.quiet = NEVER_QUIET
    world.change(ana)
    world.drain()
    assert [message.count for message, _, _ in world.provider.messages] == [3, 3]
    assert world.count_jobs() == (0, 0)


def find(world: World, event_id: str) -> str:
    return dict(world.notifications())[event_id, "ana"]


def settings(world: World, ana: ModelUser, quiet: tuple[bool, ...]) -> None:
    ana.quiet = quiet
    world.change(ana)
    world.drain()


def hold(world: World, ana: ModelUser, name: str) -> str:
    """Send an event that is in the inbox, and held on the other channel; return its id."""
    settings(world, ana, ALWAYS_QUIET)
    event_id = send(world, name)
    world.drain()
    return event_id


@pytest.mark.parametrize("verb", ["read", "dismiss"])
def test_what_is_held_is_dropped_if_it_was_read(world: World, ana: ModelUser, verb: str) -> None:
    notification_id = find(world, hold(world, ana, "PLAIN"))
    world.act(verb, ana, notification_id)
    settings(world, ana, NEVER_QUIET)
    (delivery,) = world.deliveries(notification_id, Channel.STUB)
    assert (delivery.status, delivery.reason, delivery.rule) == (
        DeliveryStatus.DROPPED,
        ReasonCode.ALREADY_READ,
        "read",
    )
    assert (world.provider.messages, world.count_jobs()) == ([], (0, 0))


def test_what_is_unread_again_is_sent(world: World, ana: ModelUser) -> None:
    notification_id = find(world, hold(world, ana, "PLAIN"))
    world.act("read", ana, notification_id)
    world.act("unread", ana, notification_id)
    settings(world, ana, NEVER_QUIET)
    assert len(world.provider.messages) == 1


def test_a_digest_leaves_out_what_was_read(world: World, ana: ModelUser) -> None:
    """If all was read, nothing is sent, and the next digest begins anew."""
    for some_are_read in (True, False):
        events = [send(world, "LETTER") for _ in range(3)]
        world.drain()
        for event_id in events[: 2 if some_are_read else 3]:
            world.act("read", ana, find(world, event_id))
        world.clock.advance(2 * HOUR)
        world.drain()
        assert [message.count for message, _, _ in world.provider.messages] == [1]
        assert world.count_jobs() == (0, 0)


def test_what_failed_is_not_tried_again_once_it_was_read(world: World, ana: ModelUser) -> None:
    ana.stub = "retry"
    world.change(ana)
    event_id = send(world, "PLAIN")
    world.drain()
    world.act("read", ana, find(world, event_id))
    world.clock.advance(HOUR)
    world.drain()
    assert len(world.provider.messages) == 1
    assert world.count_jobs() == (0, 0)
    assert {status for each, status, _, _ in world.events() if each == event_id} == {"completed"}


def test_a_type_can_be_sent_though_it_was_read(world: World, ana: ModelUser) -> None:
    world.define(replace(TYPES["PLAIN"], type="RECEIPT", send_when_read=True))
    world.act("read", ana, find(world, hold(world, ana, "RECEIPT")))
    settings(world, ana, NEVER_QUIET)
    assert len(world.provider.messages) == 1


def test_an_alarm_is_tried_again_though_it_was_read(world: World, ana: ModelUser) -> None:
    ana.stub = "retry 1"
    world.change(ana)
    event_id = send(world, "ALARM")
    world.drain()
    world.act("read", ana, find(world, event_id))
    world.clock.advance(HOUR)
    world.drain()
    assert len(world.provider.messages) == 2


@pytest.mark.parametrize(
    "zone", [pytest.param("Asia/Tokyo", id="earlier"), pytest.param("America/Lima", id="later")]
)
def test_a_daily_digest_moves_with_its_user(world: World, ana: ModelUser, zone: str) -> None:
    """It is sent at its time where the user is now, whatever the time was where they were."""
    world.define(replace(TYPES["LETTER"], type="MORNING", digest=DAILY))
    world.change(ana)
    event_id = send(world, "MORNING")
    world.drain()
    ana.zone = zone
    world.change(ana)
    world.drain()
    (delivery,) = world.deliveries(find(world, event_id), Channel.STUB)
    assert (delivery.status, delivery.until is not None) == (DeliveryStatus.COLLECTED, True)
    due = dt.datetime.fromtimestamp((delivery.until or 0) / 1000, ZoneInfo(zone))
    assert (due.hour, due.minute) == (9, 0)
    let_pass(world, lambda now: now >= (delivery.until or 0))
    assert [at for _, at, _ in world.provider.messages] == [delivery.until]


def let_pass(world: World, is_over: Callable[[int], bool]) -> None:
    """Let time pass in steps of an hour, and do what is due, until the time is over."""
    while not is_over(world.clock.now()):
        world.clock.advance(HOUR - world.clock.now() % HOUR)
        world.drain()
