"""Regressions of the pipeline, each by itself, on both engines."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from clarion.catalog.model import Priority
from clarion.events.worker import CLAIMS
from clarion.store.opening import migrate
from tests.contract.pipeline_model import HOUR, MINUTE, ModelUser
from tests.contract.pipeline_world import Store, World
from tests.pipeline import LEASE

NEVER_QUIET = (False,) * 24
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
    ana.quiet = (True,) * 24
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
    ana.quiet = (True,) * 24
    world.change(ana)
    world.clock.advance(MINUTE)
    world.drain()
    ana.quiet = NEVER_QUIET
    world.change(ana)
    world.drain()
    assert [message.count for message, _, _ in world.provider.messages] == [3, 3]
    assert world.count_jobs() == (0, 0)
