"""Cases of the pipeline that went wrong once, each by itself, on both engines."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from clarion.catalog.model import Priority
from clarion.events.worker import CLAIMS
from clarion.store.opening import migrate
from tests.contract.pipeline_model import HOUR, MINUTE, Person
from tests.contract.pipeline_world import Store, World
from tests.pipeline import LEASE

NOBODY = (False,) * 24
MANY = 100


@pytest.fixture
def ana() -> Person:
    return Person("ana", "UTC", quiet=NOBODY)


@pytest.fixture
def world(database_url: str, ana: Person) -> Iterator[World]:
    asyncio.run(migrate(database_url))
    store = Store(database_url)
    yield store.make_world([ana])
    store.close()


def send(world: World, name: str, **more: Any) -> str:
    return world.send({"type": name, "recipient": {"user_id": "ana"}, **more})


def status_of(world: World, event_id: str) -> str:
    return {each: status for each, status, _, _ in world.events()}[event_id]


def test_a_job_that_kills_its_workers_is_buried_and_can_be_replayed(
    world: World, ana: Person
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


def test_a_job_that_gets_on_is_never_buried(world: World, ana: Person) -> None:
    """What is held is asked again at every change of preferences, however many there are."""
    ana.quiet = (True,) * 24
    world.change(ana)
    send(world, "PLAIN")
    for _ in range(CLAIMS + 5):
        world.drain()
        world.change(ana)
    assert world.count_jobs() == (1, 0)
    ana.quiet = NOBODY
    world.change(ana)
    world.drain()
    assert len(world.provider.parcels) == 1


@pytest.mark.parametrize("name", ["FEW", "ONCE", "LIKES"])
def test_much_for_one_person_is_decided_in_one_go(world: World, ana: Person, name: str) -> None:
    """None of it is left to a lease: that would take a minute for every few of them."""
    for _ in range(MANY):
        send(world, name, dedupe_key="same")
    world.drain()
    assert world.count_jobs() == (0, 0)
    assert len(list(world.notifications())) == MANY
    expected = {"FEW": [1, 1], "ONCE": [1], "LIKES": [MANY]}
    assert [each.count for each in world.inbox(ana)] == expected[name]


def test_a_digest_is_told_at_its_time_whatever_is_changed_before(world: World, ana: Person) -> None:
    send(world, "LETTER")
    world.drain()
    world.clock.advance(HOUR)
    world.change(ana)
    send(world, "LETTER")
    world.drain()
    assert world.provider.parcels == []
    world.clock.advance(HOUR)
    world.drain()
    assert [(message.count, at) for message, at, _ in world.provider.parcels] == [
        (2, world.clock.now())
    ]


def test_what_is_too_late_for_a_digest_does_not_spoil_it(world: World) -> None:
    first = send(world, "LETTER")
    world.drain()
    send(world, "LETTER", ttl_s=60)
    world.drain()
    world.clock.advance(2 * HOUR)
    world.drain()
    (told,) = world.provider.parcels
    ids = dict(world.notifications())
    assert (told[0].notification_id, told[0].count) == (ids[first, "ana"], 1)


def test_a_digest_that_could_not_be_sent_by_night_is_told_whole_in_the_morning(
    world: World, ana: Person
) -> None:
    """A second try fell into the quiet hours: it is held, and still tells of all."""
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
    ana.quiet = NOBODY
    world.change(ana)
    world.drain()
    assert [message.count for message, _, _ in world.provider.parcels] == [3, 3]
    assert world.count_jobs() == (0, 0)
