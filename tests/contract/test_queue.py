"""The `Queue` port: leases with fencing tokens, lanes, people who wake, audiences found once."""

import asyncio

import pytest

from clarion.catalog.model import Priority
from clarion.events.model import (
    Audience,
    AudienceKind,
    Dead,
    Entry,
    Event,
    EventStatus,
    Job,
    JobKind,
    Later,
)
from clarion.events.outcomes import NEVER
from clarion.store.engine import Engine
from tests.factories import DAY, MINUTE, NOW, new_app_id
from tests.pipeline import LEASE, Desk, make_event, make_job

JOBS = 200


@pytest.fixture
def desk(engine: Engine) -> Desk:
    return Desk(engine, new_app_id())


async def add(desk: Desk, **changes: object) -> Job:
    event = make_event(desk.app_id)
    job = make_job(event, **changes)
    await desk.events.accept([event], [job])
    return job


async def test_each_lane_has_its_quota_and_the_oldest_go_first(desk: Desk) -> None:
    made = [
        await add(desk, lane=lane, due_at=NOW - age)
        for lane in (Priority.LOW, Priority.CRITICAL)
        for age in (1, 3, 2)
    ]
    quotas = {Priority.LOW: 1, Priority.MEDIUM: 5, Priority.CRITICAL: 2}
    jobs = await desk.queue.claim(quotas, now=NOW, until=NOW + LEASE)
    assert {job.id for job in jobs} == {made[1].id, made[4].id, made[5].id}
    assert {(job.token, job.due_at) for job in jobs} == {(1, NOW + LEASE)}


async def test_what_is_not_due_waits(desk: Desk) -> None:
    job = await add(desk, due_at=NOW + 1)
    assert await desk.claim(NOW) == []
    assert [each.id for each in await desk.claim(NOW + 1)] == [job.id]


async def test_a_lease_that_runs_out_gives_the_job_back(desk: Desk) -> None:
    _, first = await desk.claimed()
    assert await desk.claim(NOW + LEASE - 1) == []
    (second,) = await desk.claim(NOW + LEASE)
    assert (second.id, second.token) == (first.id, first.token + 1)


async def test_who_comes_too_late_is_refused(desk: Desk) -> None:
    """T17: whatever the zombie wants to write, nothing of it is stored."""
    _, old = await desk.claimed()
    (new,) = await desk.claim(NOW + LEASE)
    for outcome in (None, Later(due_at=NOW), Later(due_at=NOW, error="x"), Dead(error="x")):
        assert await desk.write(Entry(job=old, next=outcome)) == [False]
    assert not await desk.queue.expand(old, [], None, NOW)
    assert await desk.write(Entry(job=new)) == [True]
    assert await desk.claim(NOW + DAY) == []


@pytest.mark.parametrize("outcome", [Later(due_at=NOW), Later(due_at=NOW, error="x")])
async def test_a_token_is_never_given_twice(desk: Desk, outcome: Later) -> None:
    _, job = await desk.claimed()
    seen = [job.token]
    for _ in range(3):
        assert await desk.write(Entry(job=job, next=outcome)) == [True]
        (job,) = await desk.claim(NOW)
        seen.append(job.token)
    assert seen == sorted(set(seen))


async def test_a_job_that_gets_on_is_claimed_for_the_first_time_again(desk: Desk) -> None:
    """An audience of a million is claimed two thousand times, and is not worn by that."""
    _, job = await desk.claimed()
    (job,) = await desk.claim(NOW + LEASE)
    assert job.token % 1_000 == 2
    await desk.write(Entry(job=job, next=Later(due_at=NOW)))
    (job,) = await desk.claim(NOW)
    assert job.token % 1_000 == 1


async def test_two_nodes_never_hold_the_same_job(desk: Desk, other_node: Engine) -> None:
    events = [make_event(desk.app_id) for _ in range(JOBS)]
    await desk.events.accept(events, [make_job(event) for event in events])
    nodes = (desk, Desk(other_node, desk.app_id))
    held: list[Job] = []
    while found := await asyncio.gather(*(node.claim() for node in nodes for _ in range(2))):
        jobs = [job for some in found for job in some]
        held += jobs
        if not jobs:
            break
    assert sorted(job.id for job in held) == sorted(event.id for event in events)
    assert {job.token for job in held} == {1}


async def test_of_two_nodes_only_the_holder_writes(desk: Desk, other_node: Engine) -> None:
    _, old = await desk.claimed()
    other = Desk(other_node, desk.app_id)
    (new,) = await other.claim(NOW + LEASE)
    held = await asyncio.gather(desk.write(Entry(job=old)), other.write(Entry(job=new)))
    assert list(held) == [[False], [True]]


async def test_a_person_wakes_what_is_held_or_collected_for_them(desk: Desk) -> None:
    waiting = [
        await add(desk, kind=kind, due_at=due)
        for kind in (JobKind.HELD, JobKind.DIGEST)
        for due in (NOW + DAY, NEVER)
    ]
    await add(desk, kind=JobKind.DECIDE, due_at=NOW + DAY)
    await add(desk, kind=JobKind.DELIVER, due_at=NOW + DAY)
    await add(desk, kind=JobKind.HELD, due_at=NOW + DAY, user_id="bo")
    await desk.queue.wake_person(new_app_id(), "ana", NOW)
    assert await desk.claim(NOW) == []
    await desk.queue.wake_person(desk.app_id, "ana", NOW)
    assert {job.id for job in await desk.claim(NOW)} == {job.id for job in waiting}


async def test_a_dead_letter_is_not_woken(desk: Desk) -> None:
    await add(desk, kind=JobKind.HELD)
    (job,) = await desk.claim(NOW)
    await desk.write(Entry(job=job, next=Dead(error="x")))
    await desk.queue.wake_person(desk.app_id, "ana", NOW)
    assert await desk.claim(NOW + DAY) == []


async def test_who_is_alone_takes_over_what_was_claimed_and_nothing_else(desk: Desk) -> None:
    claimed = await add(desk)
    moved = await add(desk)
    first, second = sorted(await desk.claim(), key=lambda job: job.id != claimed.id)
    await desk.write(Entry(job=second, next=Later(due_at=NOW + 2)))
    await add(desk, due_at=NOW + 2)
    await desk.queue.release_all(now=NOW + 1, until=NOW + 1 + LEASE)
    (again,) = await desk.claim(NOW + 1)
    assert (again.id, again.token) == (first.id, first.token + 1)
    assert moved.id in {job.id for job in await desk.claim(NOW + 2)}


async def test_how_old_and_how_much_a_lane_is(desk: Desk) -> None:
    lane = Priority.HIGH
    assert await desk.queue.oldest(lane) is None
    job = await add(desk, lane=lane, due_at=NOW - 7)
    other = await add(desk, lane=lane, due_at=NOW + 1)
    assert await desk.queue.oldest(lane) == NOW - 7
    assert await desk.queue.count_due(lane, NOW, 9) == 1
    assert await desk.queue.count_due(lane, NOW + 1, 9) == 2
    assert await desk.queue.count_due(lane, NOW + 1, 1) == 1
    due = {job.id: job.due_at, other.id: other.due_at}
    assert await desk.due_times([job.id, other.id, "x"]) == due


async def claim_audience(desk: Desk) -> tuple[Event, Job]:
    event = make_event(desk.app_id, audience=Audience(AudienceKind.ALL))
    await desk.events.accept([event], [make_job(event, kind=JobKind.EXPAND, user_id="")])
    (job,) = await desk.claim()
    return event, job


def people(event: Event, *names: str) -> list[Job]:
    return [make_job(event, id=f"{event.id}/{name}", user_id=name) for name in names]


async def remaining(desk: Desk, event: Event) -> tuple[int, EventStatus]:
    found = await desk.events.get(desk.app_id, event.id)
    assert found is not None
    return found.remaining, found.status


async def test_an_audience_is_found_chunk_by_chunk_each_once(desk: Desk) -> None:
    event, job = await claim_audience(desk)
    assert await desk.queue.expand(job, people(event, "a", "b"), "b", NOW)
    assert await remaining(desk, event) == (3, EventStatus.PROCESSING)
    # The same chunk again, by a worker that does not know that it is done.
    assert not await desk.queue.expand(job, people(event, "a", "b"), "b", NOW)
    claimed = await desk.claim()
    (job,) = [each for each in claimed if each.kind is JobKind.EXPAND]
    assert job.subject == "b"
    assert await desk.queue.expand(job, people(event, "c"), None, NOW)
    assert await remaining(desk, event) == (3, EventStatus.PROCESSING)
    names = [each.user_id for each in (*claimed, *await desk.claim()) if each.user_id]
    assert names == ["a", "b", "c"]


async def test_an_audience_of_nobody_is_over(desk: Desk) -> None:
    event, job = await claim_audience(desk)
    assert await desk.queue.expand(job, [], None, NOW)
    assert await remaining(desk, event) == (0, EventStatus.COMPLETED)
    assert await desk.claim(NOW + DAY) == []


async def test_of_a_cancelled_event_nobody_more_is_found(desk: Desk) -> None:
    event, job = await claim_audience(desk)
    assert await desk.events.cancel(desk.app_id, event.id, NOW)
    assert not await desk.queue.expand(job, people(event, "a"), None, NOW)
    (back,) = await desk.claim(NOW + LEASE)
    assert back.id == job.id


async def test_an_audience_with_a_dead_letter_stays_failed(desk: Desk) -> None:
    """Were it to look well again, its dead letter could not be found nor replayed."""
    event, job = await claim_audience(desk)
    assert await desk.queue.expand(job, people(event, "a"), "a", NOW)
    decide, audience = sorted(await desk.claim(), key=lambda each: each.kind)
    await desk.write(Entry(job=decide, next=Dead(error="x")))
    assert await desk.queue.expand(audience, people(event, "b"), None, NOW + MINUTE)
    assert await remaining(desk, event) == (2, EventStatus.FAILED)
