"""Events that are decided before they are stored: together, or left to the workers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from clarion.catalog.model import Channel
from clarion.errors import StoreUnavailable
from clarion.events.arrivals import TASKS, Arrivals
from clarion.events.model import (
    Audience,
    AudienceKind,
    Event,
    Job,
    JobOutcome,
    Reschedule,
)
from clarion.events.port import Undecided
from clarion.events.quotas import BATCH, SHARED_BATCH, BatchSize
from clarion.events.turns import Turns
from tests.factories import NOW, FixedClock
from tests.pipeline import make_event, make_job


class Entry:
    """A type that is rendered quickly, or not."""

    def __init__(self, *, is_quick: bool = True) -> None:
        self._is_quick = is_quick

    def find_quick(self, channel: Channel) -> "Entry | None":
        assert channel is Channel.IN_APP
        return self if self._is_quick else None


class World:
    """The ports that arrivals use, and a decider that notes its batches."""

    def __init__(self) -> None:
        self.catalog = self
        self.entry: Entry | None = Entry()
        self.is_free = True
        self.batches: list[list[str]] = []
        self.error: Exception | None = None
        self.delayed: set[str] = set()
        self.stored: list[str] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.size = BatchSize(FixedClock())
        ports: Any = self
        self.arrivals = Arrivals(ports, self.decide_all, self.size, lambda _app_id: self.is_free)

    async def find(self, _app_id: str, _type_name: str) -> Any:
        return self.entry

    async def decide_all(self, some: Sequence[Undecided]) -> tuple[list[JobOutcome], list[Job]]:
        self.batches.append([event.id for _, event, _ in some])
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        later = Reschedule(due_at=NOW)
        outcomes = [
            JobOutcome(job=job, next=later if event.id in self.delayed else None)
            for job, event, _ in some
        ]
        return outcomes, []

    def decide(self, event: Event) -> "asyncio.Future[JobOutcome | None]":
        return asyncio.ensure_future(self.arrivals.accept(make_job(event), event, self.store))

    async def store(self, outcome: JobOutcome) -> JobOutcome:
        self.stored.append(outcome.job.event_id)
        await self.may_commit.wait()
        return outcome


@pytest.fixture
def world() -> World:
    return World()


async def test_events_of_an_app_that_come_together_are_decided_together(world: World) -> None:
    events = [make_event("a"), make_event("a"), make_event("b")]
    outcomes = await asyncio.gather(*map(world.decide, events))
    assert [each and each.job.event_id for each in outcomes] == [each.id for each in events]
    assert world.batches == [[events[0].id, events[1].id], [events[2].id]]
    assert world.arrivals.is_idle


async def test_an_app_whose_events_are_decided_here_counts_as_active(world: World) -> None:
    """What the workers do at once for another app, it waits for."""
    assert world.size.take_turn("other") == BATCH
    await world.decide(make_event("a"))
    assert world.size.take_turn("other") == SHARED_BATCH


async def test_while_two_batches_commit_the_next_ones_collect(world: World) -> None:
    world.may_commit.clear()
    accepted = []
    for number in range(2):
        accepted.append(world.decide(make_event()))
        while len(world.stored) <= number:  # noqa: ASYNC110 - nothing signals us
            await asyncio.sleep(0)
    accepted += [world.decide(make_event()) for _ in range(BATCH + 1)]
    await asyncio.sleep(0)
    assert [len(each) for each in world.batches] == [1, 1]
    world.may_commit.set()
    assert all(await asyncio.gather(*accepted))
    assert [len(each) for each in world.batches] == [1, 1, BATCH, 1]
    assert world.arrivals.is_idle


async def test_many_apps_take_turns_and_none_is_left_waiting(world: World) -> None:
    for _ in range(3):  # also right after the tasks before have ended
        events = [make_event(f"app-{n}") for n in range(3 * TASKS)]
        assert all(await asyncio.gather(*map(world.decide, events)))
        assert sorted(world.batches) == [[each.id] for each in events]
        world.batches.clear()


@pytest.mark.parametrize(
    "event",
    [
        make_event(scheduled_at=NOW),
        make_event(audience=Audience(AudienceKind.TOPIC, topic="news")),
    ],
)
async def test_what_is_not_due_or_not_for_one_user_is_left_to_the_workers(
    world: World, event: Event
) -> None:
    assert await world.decide(event) is None
    assert world.batches == []


async def test_what_takes_long_or_would_overtake_others_is_left_to_the_workers(
    world: World,
) -> None:
    world.entry = Entry(is_quick=False)
    assert await world.decide(make_event()) is None
    world.entry = None
    assert await world.decide(make_event()) is None
    world.entry, world.is_free = Entry(), False
    assert await world.decide(make_event()) is None
    assert world.batches == []


async def test_what_cannot_be_decided_now_is_left_to_the_workers(world: World) -> None:
    event, delayed = make_event(), make_event()
    world.delayed.add(delayed.id)
    outcomes = await asyncio.gather(world.decide(event), world.decide(delayed))
    assert [each is None for each in outcomes] == [False, True]


@pytest.mark.parametrize("error", [StoreUnavailable(), ValueError("a mistake")])
async def test_if_deciding_fails_all_is_left_to_the_workers(world: World, error: Exception) -> None:
    world.error = error
    assert await asyncio.gather(*(world.decide(make_event()) for _ in range(2))) == [None, None]
    world.error = None
    assert await world.decide(make_event()) is not None


async def test_a_request_that_is_cancelled_does_not_affect_the_others(world: World) -> None:
    cancelled, other = world.decide(make_event()), world.decide(make_event())
    while not world.batches:  # noqa: ASYNC110 - nothing signals us
        await asyncio.sleep(0)
    cancelled.cancel()
    assert await other is not None
    never_taken = world.decide(make_event())
    await asyncio.sleep(0)
    never_taken.cancel()
    await asyncio.wait([never_taken])
    assert await world.decide(make_event()) is not None
    assert world.arrivals.is_idle


async def test_an_app_has_a_free_worker_while_nothing_of_it_waits() -> None:
    turns = Turns(per_app=2)
    assert not turns.is_free("a")
    waiting = asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0)
    assert turns.is_free("a")
    turns.due["a"] = 0
    assert not turns.is_free("a")
    assert turns.is_free("b")
    turns.wake_all()
    await waiting
    assert not turns.is_free("b")
