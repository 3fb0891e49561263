"""The `Queue` port: leases with fencing tokens, lanes, waking a user, expanding audiences."""

import asyncio
from functools import partial

import pytest

from clarion.catalog.model import Channel, Priority
from clarion.events.model import (
    AUDIENCES,
    DECISIONS,
    NEVER,
    Audience,
    AudienceKind,
    DeadLetter,
    DueJobs,
    Event,
    EventStatus,
    Job,
    JobCount,
    JobKind,
    JobOutcome,
    Reschedule,
)
from clarion.events.sql.jobs import SqlQueue
from clarion.history.model import DeliveryStatus
from clarion.store.engine import Engine
from tests.factories import DAY, MINUTE, NOW, new_app_id
from tests.pipeline import (
    EACH_LANE,
    LEASE,
    PipelineStore,
    make_delivery,
    make_event,
    make_job,
    make_notification,
    new_event_id,
)
from tests.replacing import replace

JOBS = 200


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


async def add(store: PipelineStore, **changes: object) -> Job:
    event = make_event(store.app_id)
    job = make_job(event, **changes)
    await store.events.accept([event], [job])
    return job


async def test_each_lane_has_its_quota_and_the_oldest_go_first(store: PipelineStore) -> None:
    made = [
        await add(store, lane=lane, due_at=NOW - age)
        for lane in (Priority.LOW, Priority.CRITICAL)
        for age in (1, 3, 2)
    ]
    quotas = {Priority.LOW: 1, Priority.MEDIUM: 5, Priority.CRITICAL: 2}
    jobs = await store.queue.claim(DECISIONS, store.app_id, quotas, now=NOW, until=NOW + LEASE)
    assert {job.id for job in jobs} == {made[1].id, made[4].id, made[5].id}
    assert {(job.token, job.due_at) for job in jobs} == {(1, NOW + LEASE)}


async def test_a_job_waits_until_it_is_due(store: PipelineStore) -> None:
    job = await add(store, due_at=NOW + 1)
    assert await store.claim(NOW) == []
    assert [each.id for each in await store.claim(NOW + 1)] == [job.id]


async def test_a_job_is_due_again_when_its_lease_expires(store: PipelineStore) -> None:
    _, first = await store.claimed()
    assert await store.claim(NOW + LEASE - 1) == []
    (second,) = await store.claim(NOW + LEASE)
    assert (second.id, second.token) == (first.id, first.token + 1)


async def test_an_expired_claim_is_refused(store: PipelineStore) -> None:
    """T17: nothing that a zombie writes is stored."""
    _, old = await store.claimed()
    (new,) = await store.claim(NOW + LEASE)
    for outcome in (
        None,
        Reschedule(due_at=NOW),
        Reschedule(due_at=NOW, error="x"),
        DeadLetter(error="x"),
    ):
        assert await store.write(JobOutcome(job=old, next=outcome)) == [False]
    assert not await store.queue.expand(old, [], None, NOW)
    assert await store.write(JobOutcome(job=new)) == [True]
    assert await store.claim(NOW + DAY) == []


@pytest.mark.parametrize("outcome", [Reschedule(due_at=NOW), Reschedule(due_at=NOW, error="x")])
async def test_a_token_is_never_given_twice(store: PipelineStore, outcome: Reschedule) -> None:
    _, job = await store.claimed()
    seen = [job.token]
    for _ in range(3):
        assert await store.write(JobOutcome(job=job, next=outcome)) == [True]
        (job,) = await store.claim(NOW)
        seen.append(job.token)
    assert seen == sorted(set(seen))


async def test_progress_resets_the_count_of_claims(store: PipelineStore) -> None:
    """An audience of a million is claimed two thousand times, and is no dead letter for it."""
    _, job = await store.claimed()
    (job,) = await store.claim(NOW + LEASE)
    assert job.token % 1_000 == 2
    await store.write(JobOutcome(job=job, next=Reschedule(due_at=NOW)))
    (job,) = await store.claim(NOW)
    assert job.token % 1_000 == 1


async def test_two_nodes_never_hold_the_same_job(store: PipelineStore, other_node: Engine) -> None:
    events = [make_event(store.app_id) for _ in range(JOBS)]
    await store.events.accept(events, [make_job(event) for event in events])
    nodes = (store, PipelineStore(other_node, store.app_id))
    held: list[Job] = []
    while found := await asyncio.gather(*(node.claim() for node in nodes for _ in range(2))):
        jobs = [job for some in found for job in some]
        held += jobs
        if not jobs:
            break
    assert sorted(job.id for job in held) == sorted(event.id for event in events)
    assert {job.token for job in held} == {1}


async def test_of_two_nodes_only_the_holder_writes(
    store: PipelineStore, other_node: Engine
) -> None:
    _, old = await store.claimed()
    other = PipelineStore(other_node, store.app_id)
    (new,) = await other.claim(NOW + LEASE)
    held = await asyncio.gather(store.write(JobOutcome(job=old)), other.write(JobOutcome(job=new)))
    assert list(held) == [[False], [True]]


async def test_waking_a_user_makes_held_and_digest_jobs_due(store: PipelineStore) -> None:
    waiting = [
        await add(store, kind=kind, due_at=due)
        for kind in (JobKind.HELD, JobKind.DIGEST)
        for due in (NOW + DAY, NEVER)
    ]
    await add(store, kind=JobKind.DECIDE, due_at=NOW + DAY)
    await add(store, kind=JobKind.DELIVER, due_at=NOW + DAY)
    await add(store, kind=JobKind.HELD, due_at=NOW + DAY, user_id="bo")
    await store.queue.wake_user(new_app_id(), "ana", NOW)
    assert await store.claim(NOW) == []
    await store.queue.wake_user(store.app_id, "ana", NOW)
    assert {job.id for job in await store.claim(NOW)} == {job.id for job in waiting}


async def test_a_dead_letter_is_not_woken(store: PipelineStore) -> None:
    await add(store, kind=JobKind.HELD)
    (job,) = await store.claim(NOW)
    await store.write(JobOutcome(job=job, next=DeadLetter(error="x")))
    await store.queue.wake_user(store.app_id, "ana", NOW)
    assert await store.claim(NOW + DAY) == []


async def test_what_is_decided_while_preferences_change_is_decided_again(
    store: PipelineStore,
) -> None:
    await add(store, kind=JobKind.HELD)
    (job,) = await store.claim(NOW)
    await store.queue.wake_user(store.app_id, "ana", NOW)
    assert await store.write(JobOutcome(job=job, next=Reschedule(due_at=NOW + DAY))) == [False]
    assert [each.id for each in await store.claim(NOW)] == [job.id]


async def test_a_new_part_revives_a_digest_that_is_a_dead_letter(store: PipelineStore) -> None:
    part = await add(store, kind=JobKind.DIGEST, due_at=NOW, lane=Priority.LOW)
    (dead,) = await store.claim(NOW)
    await store.write(JobOutcome(job=dead, next=DeadLetter(error="x")))
    await add(store)
    (job,) = await store.claim(NOW)
    later = replace(part, due_at=NOW + MINUTE)
    assert await store.events.find_dead(store.app_id, [part.id, job.id]) == {part.id: part.event_id}
    assert await store.events.find_dead(new_app_id(), [part.id]) == {}
    assert await store.write(JobOutcome(job=job, shared_jobs=(later,))) == [True]
    assert await store.events.find_dead(store.app_id, [part.id]) == {}
    assert await store.claim(NOW) == []
    (revived,) = await store.claim(NOW + MINUTE)
    assert (revived.id, revived.lane, revived.tries) == (part.id, Priority.LOW, 0)


async def test_deliveries_that_wait_for_another_try_are_hastened(store: PipelineStore) -> None:
    """The soonest first, of this app, channel and lane; not what is claimed, due or dead."""
    lane, soon, later = Priority.HIGH, NOW + MINUTE, NOW + DAY
    waiting = {"lane": lane, "kind": JobKind.DELIVER, "pool": Channel.STUB}
    jobs = [await add(store, **waiting, due_at=later + n) for n in (2, 1, 3)]
    sooner = await add(store, **waiting, due_at=soon - 1)
    await add(store, **waiting | {"pool": Channel.EMAIL}, due_at=later)
    await add(store, **waiting | {"lane": Priority.LOW}, due_at=later)
    hasten = partial(store.queue.hasten, Channel.STUB, lane)
    assert await hasten(new_app_id(), soon, 10) == 0
    assert await hasten(store.app_id, soon, 2) == 2
    assert await hasten(store.app_id, soon, 2) == 1
    assert await hasten(store.app_id, soon, 2) == 0
    claim = partial(store.queue.claim, Channel.STUB, store.app_id, {lane: 9}, until=later)
    assert [job.id for job in await claim(now=soon - 1)] == [sooner.id]
    assert {job.id for job in await claim(now=soon)} == {job.id for job in jobs}


async def test_a_claim_and_a_dead_letter_are_not_hastened(store: PipelineStore) -> None:
    lane = Priority.HIGH
    for _ in range(2):
        await add(store, lane=lane, kind=JobKind.DELIVER, pool=Channel.STUB)
    until = NOW + LEASE
    quotas = {lane: 9}
    _, dead = await store.queue.claim(Channel.STUB, store.app_id, quotas, now=NOW, until=until)
    await store.write(JobOutcome(job=dead, next=DeadLetter(error="x")))
    for each in Priority:
        assert await store.queue.hasten(Channel.STUB, each, store.app_id, NOW + 1, 9) == 0


async def test_a_hastened_try_that_fails_is_not_counted(store: PipelineStore) -> None:
    lane = Priority.HIGH
    await add(store, lane=lane, kind=JobKind.DELIVER, pool=Channel.STUB)
    tries = []
    for now in (NOW, NOW + 1, NOW + 2):
        claim = partial(store.queue.claim, Channel.STUB, store.app_id, {lane: 9}, now=now)
        (job,) = await claim(until=now + LEASE)
        tries.append(job.tries)
        later = Reschedule(due_at=NOW + DAY, error="x")
        assert await store.write(JobOutcome(job=job, next=later)) == [True]
        assert await store.queue.hasten(Channel.STUB, lane, store.app_id, now + 1, 9) == 1
    assert tries == [0, 0, 0]


async def test_only_claimed_jobs_are_released(
    store: PipelineStore,
) -> None:
    claimed = await add(store)
    moved = await add(store)
    first, second = sorted(await store.claim(), key=lambda job: job.id != claimed.id)
    await store.write(JobOutcome(job=second, next=Reschedule(due_at=NOW + 2)))
    await add(store, due_at=NOW + 2)
    await store.queue.release_claims("", now=NOW + 1, until=NEVER)
    (again,) = await store.claim(NOW + 1)
    assert (again.id, again.token) == (first.id, first.token + 1)
    assert moved.id in {job.id for job in await store.claim(NOW + 2)}


async def test_the_claims_of_one_node_are_released(engine: Engine, store: PipelineStore) -> None:
    await add(store)
    of_a, of_b = (SqlQueue(engine, each) for each in ("a", "b"))
    claim = partial(of_a.claim, DECISIONS, store.app_id, EACH_LANE)
    (job,) = await claim(now=NOW, until=NOW + LEASE)
    assert job.node_id == "a"
    await of_b.release_claims("b", now=NOW + 1, until=NEVER)
    assert await claim(now=NOW + 1, until=NOW + LEASE) == ()
    await of_b.release_claims("a", now=NOW + 1, until=NEVER)
    (again,) = await of_b.claim(DECISIONS, store.app_id, EACH_LANE, now=NOW + 1, until=NOW + LEASE)
    assert (again.id, again.token, again.node_id) == (job.id, job.token + 1, "b")


async def test_lost_claims_of_one_node_are_released_and_counted(
    engine: Engine, store: PipelineStore
) -> None:
    """Not those that it works on, made later, or that are another node's or app's.

    They count: a job whose outcome can never be stored would be done again for ever.
    """
    of_a, of_b = (SqlQueue(engine, each) for each in ("a", "b"))
    claim = partial(SqlQueue.claim, pool=DECISIONS, app_id=store.app_id, quotas=EACH_LANE)
    lost, held, late, of_other = [await add(store, due_at=NOW + n) for n in range(4)]
    (claimed,) = await claim(of_a, now=NOW, until=NOW + LEASE)
    await claim(of_a, now=NOW + 1, until=NOW + LEASE + 1)
    await claim(of_a, now=NOW + 2, until=NOW + LEASE + 9)
    await claim(of_b, now=NOW + 3, until=NOW + LEASE)
    for count in range(2, 9):  # as a store that fails again and again makes it
        await of_a.release_lost({store.app_id: [held.id]}, now=NOW + 5, until=NOW + LEASE + 9)
        (again,) = await claim(of_a, now=NOW + 5, until=NOW + LEASE)
        assert again.id == lost.id
        assert (again.token % 1_000, again.token) == (count, claimed.token + 1)
        claimed = again
    times = await store.due_times([held.id, late.id, of_other.id])
    assert times == {held.id: NOW + LEASE + 1, late.id: NOW + LEASE + 9, of_other.id: NOW + LEASE}


async def test_a_claim_is_renewed_as_long_as_it_holds(store: PipelineStore) -> None:
    await add(store)
    (job,) = await store.claim()
    assert await store.queue.renew((job,), NOW + 2 * LEASE) == {job.id}
    assert await store.claim(NOW + LEASE) == []
    (again,) = await store.claim(NOW + 2 * LEASE)
    assert await store.queue.renew((job,), NOW + 3 * LEASE) == set()
    assert await store.queue.renew((again,), NOW + 3 * LEASE) == {job.id}
    assert await store.queue.renew((), NOW) == set()


async def test_the_number_of_due_jobs_of_an_app_in_a_lane(store: PipelineStore) -> None:
    lane = Priority.HIGH
    job = await add(store, lane=lane, due_at=NOW - 7)
    other = await add(store, lane=lane, due_at=NOW + 1)
    await add(store, lane=lane, pool=Channel.STUB)
    counting = partial(store.queue.count_due, DECISIONS, lane, store.app_id)
    assert [await counting(NOW, 9), await counting(NOW + 1, 9), await counting(NOW + 1, 1)] == [
        1,
        2,
        1,
    ]
    due = {job.id: job.due_at, other.id: other.due_at}
    assert await store.due_times([job.id, other.id, "x"]) == due


async def test_a_claim_takes_the_jobs_of_one_app_in_one_pool(
    store: PipelineStore, engine: Engine
) -> None:
    job = await add(store)
    await add(store, pool=Channel.STUB)
    await add(PipelineStore(engine, new_app_id()))
    jobs = await store.queue.claim(
        DECISIONS, store.app_id, dict.fromkeys(Priority, 9), now=NOW, until=NOW + LEASE
    )
    assert [each.id for each in jobs] == [job.id]


async def test_the_oldest_job_of_each_app_in_each_lane_and_pool(
    store: PipelineStore, engine: Engine
) -> None:
    """Page by page, in the order of pools, lanes and apps; dead letters are in lane -1."""
    stores = [store, *(PipelineStore(engine, new_app_id()) for _ in range(6))]
    expected = []
    for number, each in enumerate(stores):
        for pool in (DECISIONS, AUDIENCES, Channel.STUB.value):
            for lane in (Priority.LOW, Priority.HIGH):
                for age in (1, number, 2):
                    await add(each, pool=pool, lane=lane, due_at=NOW - age)
                oldest = NOW - max(number, 2)
                expected.append(DueJobs(pool, lane, each.app_id, oldest))
    await add(store, lane=Priority.LOW, user_id="dead")
    found: list[DueJobs] = []
    while page := await store.queue.find_oldest(
        after=found[-1] if found else DueJobs("", -2, "", 0), limit=4
    ):
        found += page
    assert found == sorted(expected)
    await add(store, lane=Priority.LOW, user_id="held", due_at=NOW + 1)
    lanes = (Priority.LOW, Priority.HIGH)
    others = {(each.app_id, lane): JobCount(9, 0) for each in stores for lane in lanes}
    own = {(store.app_id, Priority.LOW): JobCount(11, 1)}
    assert await store.queue.count(NOW) == others | own


async def claim_audience(store: PipelineStore) -> tuple[Event, Job]:
    event = make_event(store.app_id, audience=Audience(AudienceKind.ALL))
    await store.events.accept([event], [make_job(event, kind=JobKind.EXPAND, user_id="")])
    (job,) = await store.claim()
    return event, job


def user_jobs(event: Event, *names: str) -> list[Job]:
    return [make_job(event, id=f"{event.id}/{name}", user_id=name) for name in names]


async def remaining(store: PipelineStore, event: Event) -> tuple[int, EventStatus]:
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    return found.remaining, found.status


async def test_an_audience_is_expanded_in_chunks_each_once(store: PipelineStore) -> None:
    event, job = await claim_audience(store)
    assert await store.queue.expand(job, user_jobs(event, "a", "b"), "b", NOW)
    assert await remaining(store, event) == (3, EventStatus.PROCESSING)
    # The same chunk again, by a worker whose claim has expired.
    assert not await store.queue.expand(job, user_jobs(event, "a", "b"), "b", NOW)
    claimed = await store.claim()
    (job,) = [each for each in claimed if each.kind is JobKind.EXPAND]
    assert job.subject == "b"
    assert await store.queue.expand(job, user_jobs(event, "c"), None, NOW)
    assert await remaining(store, event) == (3, EventStatus.PROCESSING)
    names = [each.user_id for each in (*claimed, *await store.claim()) if each.user_id]
    assert names == ["a", "b", "c"]


async def test_an_empty_audience_completes_the_event(store: PipelineStore) -> None:
    event, job = await claim_audience(store)
    assert await store.queue.expand(job, [], None, NOW)
    assert await remaining(store, event) == (0, EventStatus.COMPLETED)
    assert await store.claim(NOW + DAY) == []


async def test_a_cancelled_event_is_not_expanded(store: PipelineStore) -> None:
    event, job = await claim_audience(store)
    assert await store.events.cancel(store.app_id, event.id, NOW)
    assert not await store.queue.expand(job, user_jobs(event, "a"), None, NOW)
    (back,) = await store.claim(NOW + LEASE)
    assert back.id == job.id


async def test_an_audience_with_a_dead_letter_stays_failed(store: PipelineStore) -> None:
    """Otherwise its dead letter could be neither found nor replayed."""
    event, job = await claim_audience(store)
    assert await store.queue.expand(job, user_jobs(event, "a"), "a", NOW)
    decide, audience = sorted(await store.claim(), key=lambda each: each.kind)
    await store.write(JobOutcome(job=decide, next=DeadLetter(error="x")))
    assert await store.queue.expand(audience, user_jobs(event, "b"), None, NOW + MINUTE)
    assert await remaining(store, event) == (2, EventStatus.FAILED)


@pytest.mark.parametrize("status", [DeliveryStatus.HELD, DeliveryStatus.COLLECTED])
async def test_what_waits_behind_a_dead_letter_is_counted(
    store: PipelineStore, status: DeliveryStatus
) -> None:
    """Otherwise nobody sees that it will never be sent: its status is that of what waits."""
    event, job = await store.claimed()
    made, digest = make_notification(event), new_event_id()
    is_held = status is DeliveryStatus.HELD
    waiting = make_delivery(made, status=status, digest=None if is_held else digest)
    kind = JobKind.HELD if is_held else JobKind.DIGEST
    later = make_job(event, id=waiting.waiting_job_id, kind=kind, subject=made.id)
    before = await store.queue.count_stuck()
    outcome = JobOutcome(job=job, notification=made, deliveries=(waiting,), shared_jobs=(later,))
    assert await store.write(outcome) == [True]
    assert await store.queue.count_stuck() == before
    (dead,) = await store.claim()
    assert await store.write(JobOutcome(job=dead, next=DeadLetter(error="x"))) == [True]
    assert await store.queue.count_stuck() == before + 1
