"""The `Outcomes` port: an outcome is stored whole or not at all, and inboxes count right."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from clarion.catalog.model import Channel
from clarion.events.leases import Leases
from clarion.events.metrics import PipelineMetrics
from clarion.events.model import (
    DeadLetter,
    DedupeClaim,
    Event,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
    LimitClaim,
    Reschedule,
)
from clarion.events.outcome_writer import OutcomeWriter
from clarion.history.model import Attempt, DeliveryStatus, Notification
from clarion.inbox.model import InboxAction, InboxState, InboxUpdate
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.store.engine import Engine
from clarion.store.opening import migrate
from tests.contract.conftest import nothing_left, opened
from tests.factories import DAY, MINUTE, NOW, FixedClock, new_app_id
from tests.pipeline import (
    LEASE,
    PipelineStore,
    make_delivery,
    make_event,
    make_job,
    make_notification,
)
from tests.replacing import replace

EVENTS = 60
# How many writes may wait for a commit.
ROOM = 20


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


@pytest.fixture
def inboxes(engine: Engine) -> SqlInboxes:
    return SqlInboxes(engine)


def full_outcome(event: Event, job: Job, **changes: Any) -> JobOutcome:
    """Return an outcome with something in every field."""
    added = make_notification(event)
    values: dict[str, Any] = {
        "job": job,
        "final_status": EventStatus.COMPLETED,
        "dedupe_claim": claim_key("key", added),
        "limit_claims": (LimitClaim(id="limit", limit=1, expires_at=NOW + DAY),),
        "notification": added,
        "deliveries": (make_delivery(added),),
        "attempts": (make_attempt(added),),
        "jobs": (make_job(event, id=f"{added.id}/stub", kind=JobKind.DELIVER, due_at=NOW + 1),),
        "shared_jobs": (make_job(event, id=f"{added.id}/held", kind=JobKind.HELD, due_at=NOW + 1),),
    }
    return JobOutcome(**values | changes)


def claim_key(key: str, of: Notification, seen: str | None = None, lasts: int = DAY) -> DedupeClaim:
    return DedupeClaim(id=key, notification_id=of.id, expected_holder=seen, expires_at=NOW + lasts)


def make_attempt(of: Notification, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "notification_id": of.id,
        "channel": Channel.STUB,
        "number": 1,
        "device_id": "",
        "status": "retry",
        "provider_response": None,
        "error_code": "try_later",
        "error_message": "nicht jetzt",
        "attempted_at": NOW,
    }
    return Attempt(**values | changes)


async def is_stored(store: PipelineStore, inboxes: SqlInboxes, outcome: JobOutcome) -> set[bool]:
    """Return for each part of a full outcome whether it is there: one value if it is whole."""
    added = outcome.notification
    assert added is not None
    event = await store.events.get(store.app_id, outcome.job.event_id)
    assert event is not None
    jobs = await store.due_times([each.id for each in (*outcome.jobs, *outcome.shared_jobs)])
    return {
        await inboxes.get(store.app_id, "ana", added.id) is not None,
        (await inboxes.state(store.app_id, "ana")).unread_count > 0,
        (added.id in await store.deliveries.find_many(store.app_id, [added.id])),
        bool(await store.deliveries.list_attempts(added.id)),
        len(jobs) == 2,
        event.notification_count == 1,
        event.remaining == 0,
    }


async def test_an_outcome_is_stored_whole(store: PipelineStore, inboxes: SqlInboxes) -> None:
    outcome = full_outcome(*await store.claimed())
    assert await store.write(outcome) == [True]
    assert await is_stored(store, inboxes, outcome) == {True}
    assert await inboxes.get(store.app_id, "ana", outcome.notification.id) == replace(  # type: ignore[union-attr]
        outcome.notification,
        sequence=1,
    )
    assert await inboxes.state(store.app_id, "ana") == InboxState(1, 1)
    event = await store.events.get(store.app_id, outcome.job.event_id)
    assert event is not None
    assert event.status is EventStatus.COMPLETED


async def refuse(
    store: PipelineStore, inboxes: SqlInboxes, outcome: JobOutcome, now: int = NOW
) -> None:
    """Check that an outcome is refused and left no trace; its job comes back."""
    state = await inboxes.state(store.app_id, "ana")
    assert await store.write(outcome, now=now) == [False]
    assert outcome.notification is not None
    assert (
        await store.notifications.find_many(store.app_id, ["ana"], [outcome.notification.id]) == {}
    )
    assert await store.deliveries.find_many(store.app_id, [outcome.notification.id]) == {}
    assert await store.deliveries.list_attempts(outcome.notification.id) == ()
    ids = [each.id for each in (*outcome.jobs, *outcome.shared_jobs)]
    assert await store.due_times([*ids, outcome.job.id]) == {outcome.job.id: NOW + LEASE}
    assert await inboxes.state(store.app_id, "ana") == state


async def test_an_old_token_is_refused(store: PipelineStore, inboxes: SqlInboxes) -> None:
    event, job = await store.claimed()
    await refuse(store, inboxes, full_outcome(event, replace(job, token=job.token - 1)))


async def test_a_cancelled_event_is_refused(store: PipelineStore, inboxes: SqlInboxes) -> None:
    event, job = await store.claimed()
    assert await store.events.cancel(store.app_id, event.id, NOW)
    await refuse(store, inboxes, full_outcome(event, job))


async def test_a_lost_key_is_refused(store: PipelineStore, inboxes: SqlInboxes) -> None:
    first = full_outcome(*await store.claimed(), limit_claims=())
    second = full_outcome(*await store.claimed(), limit_claims=())
    assert await store.write(first) == [True]
    await refuse(store, inboxes, second)


async def test_a_key_can_be_taken_over_from_the_expected_holder(store: PipelineStore) -> None:
    first = full_outcome(*await store.claimed(), limit_claims=())
    await store.write(first)
    assert first.notification is not None
    event, job = await store.claimed()
    added = make_notification(event)
    outcome = full_outcome(
        event, job, limit_claims=(), notification=added, dedupe_claim=claim_key("key", added, "x")
    )
    assert await store.write(outcome) == [False]
    taken = replace(outcome, dedupe_claim=claim_key("key", added, first.notification.id))
    assert await store.write(taken) == [True]
    earlier = await store.claims.find_earlier(store.app_id, ["key"], NOW)
    assert earlier["key"].notification_id == added.id


async def test_a_key_is_free_when_its_window_is_over(store: PipelineStore) -> None:
    event, job = await store.claimed()
    added = make_notification(event)
    dedupe = claim_key("key", added, lasts=MINUTE)
    await store.write(
        full_outcome(event, job, limit_claims=(), notification=added, dedupe_claim=dedupe)
    )
    later = full_outcome(*await store.claimed(), limit_claims=())
    assert await store.write(later, now=NOW + MINUTE - 1) == [False]
    assert await store.write(later, now=NOW + MINUTE) == [True]


async def test_a_lost_use_of_a_limit_is_refused(store: PipelineStore, inboxes: SqlInboxes) -> None:
    first = full_outcome(*await store.claimed(), dedupe_claim=None)
    second = full_outcome(*await store.claimed(), dedupe_claim=None)
    assert await store.write(first) == [True]
    await refuse(store, inboxes, second)
    assert await store.claims.find_limit_counts(store.app_id, ["limit", "x"]) == {"limit": 1}


def update(of: Notification, seen: int, *, is_new: bool = False) -> InboxUpdate:
    return InboxUpdate(
        id=of.id,
        title=f"{seen + 1} news",
        body="of Bo and others",
        content=of.content,
        count=seen + 1,
        expected_count=seen,
        is_new=is_new,
    )


async def shown(store: PipelineStore, **changes: Any) -> Notification:
    """Put a notification into the store, shown or not."""
    event, job = await store.claimed()
    added = make_notification(event, **changes)
    assert await store.write(
        JobOutcome(job=job, final_status=EventStatus.COMPLETED, notification=added)
    ) == [True]
    return added


async def test_an_update_changes_an_unread_notification(
    store: PipelineStore, inboxes: SqlInboxes
) -> None:
    first = await shown(store)
    event, job = await store.claimed()
    hidden = make_notification(event, is_shown=False, folded_into=first.id)
    assert await store.write(
        JobOutcome(job=job, inbox_update=update(first, 1), notification=hidden)
    ) == [True]
    updated = await inboxes.get(store.app_id, "ana", first.id)
    assert updated is not None
    assert (updated.title, updated.body, updated.count) == ("2 news", "of Bo and others", 2)
    assert updated.sequence == 2
    assert await inboxes.get(store.app_id, "ana", hidden.id) is None
    assert await inboxes.state(store.app_id, "ana") == InboxState(1, 2)


@pytest.mark.parametrize("act", ["read", "dismiss", "updated"])
async def test_an_update_of_what_has_changed_meanwhile_is_refused(
    store: PipelineStore, inboxes: SqlInboxes, act: str
) -> None:
    first = await shown(store)
    if act == "updated":
        _, job = await store.claimed()
        await store.write(JobOutcome(job=job, inbox_update=update(first, 1)))
    else:
        await inboxes.apply(InboxAction(act), store.app_id, "ana", first.id, NOW)
    event, job = await store.claimed()
    await refuse(store, inboxes, full_outcome(event, job, inbox_update=update(first, 1)))


async def test_a_hidden_notification_appears_and_counts(
    store: PipelineStore, inboxes: SqlInboxes
) -> None:
    hidden = await shown(store, is_shown=False)
    assert await inboxes.state(store.app_id, "ana") == InboxState(0, 0)
    _, job = await store.claimed()
    outcome = JobOutcome(job=job, inbox_update=update(hidden, 1, is_new=True))
    assert await store.write(outcome) == [True]
    assert await inboxes.state(store.app_id, "ana") == InboxState(1, 1)
    again = await store.claimed()
    assert await store.write(replace(outcome, job=again[1])) == [False]
    assert await inboxes.state(store.app_id, "ana") == InboxState(1, 1)


async def test_a_refused_outcome_does_not_affect_its_batch(
    store: PipelineStore, inboxes: SqlInboxes
) -> None:
    """One that is refused by a late step, among others."""
    events = [await store.accept() for _ in range(3)]
    jobs = {job.event_id: job for job in await store.claim()}
    outcomes = [full_outcome(event, jobs[event.id], dedupe_claim=None) for event in events]
    held = await store.write(*outcomes)
    assert sorted(map(bool, held)) == [False, False, True]
    assert await inboxes.state(store.app_id, "ana") == InboxState(1, 1)


async def test_sequences_are_never_shared(
    store: PipelineStore, other_node: Engine, inboxes: SqlInboxes
) -> None:
    """T38: two nodes write to one inbox at once, with outcomes of every shape."""
    events = [await store.accept() for _ in range(EVENTS)]
    jobs = {job.event_id: job for job in await store.claim()}
    nodes = (store, PipelineStore(other_node, store.app_id))
    outcomes: list[JobOutcome] = []
    for number, event in enumerate(events):
        added = make_notification(event)
        key = claim_key(f"k{number}", added) if number % 3 else None
        use = (LimitClaim(id=f"l{number}", limit=1, expires_at=NOW),) if number % 2 else ()
        settles = EventStatus.COMPLETED if number % 5 else None
        outcome = JobOutcome(
            job=jobs[event.id],
            notification=added,
            dedupe_claim=key,
            limit_claims=use,
            final_status=settles,
        )
        outcomes.append(outcome)
    held = await asyncio.gather(*(nodes[n % 2].write(each) for n, each in enumerate(outcomes)))
    assert held == [[True]] * EVENTS
    changes = await inboxes.changes(store.app_id, "ana", 0, EVENTS)
    assert [each.sequence for each in changes] == list(range(1, EVENTS + 1))
    assert await inboxes.state(store.app_id, "ana") == InboxState(EVENTS, EVENTS)


async def test_two_nodes_share_a_limit(store: PipelineStore, other_node: Engine) -> None:
    events = [await store.accept() for _ in range(EVENTS)]
    jobs = {job.event_id: job for job in await store.claim()}
    nodes = (store, PipelineStore(other_node, store.app_id))
    use = (LimitClaim(id="limit", limit=7, expires_at=NOW + DAY),)
    outcomes = [
        full_outcome(each, jobs[each.id], dedupe_claim=None, limit_claims=use) for each in events
    ]
    held = await asyncio.gather(*(nodes[n % 2].write(each) for n, each in enumerate(outcomes)))
    assert held.count([True]) == 7
    assert await store.claims.find_limit_counts(store.app_id, ["limit"]) == {"limit": 7}


async def test_an_event_is_completed_with_its_last_recipient(store: PipelineStore) -> None:
    event = make_event(store.app_id, remaining=2)
    jobs = [make_job(event, id=f"{event.id}/{name}", user_id=name) for name in ("ana", "bo")]
    await store.events.accept([event], jobs)
    states = []
    for job in await store.claim():
        await store.write(JobOutcome(job=job, final_status=EventStatus.COMPLETED))
        found = await store.events.get(store.app_id, event.id)
        assert found is not None
        states.append((found.status, found.remaining, found.notification_count))
    assert states == [(EventStatus.PROCESSING, 1, 1), (EventStatus.COMPLETED, 0, 2)]


async def test_an_event_with_a_dead_letter_stays_failed(store: PipelineStore) -> None:
    event = make_event(store.app_id, remaining=2)
    jobs = [make_job(event, id=f"{event.id}/{name}", user_id=name) for name in ("ana", "bo")]
    await store.events.accept([event], jobs)
    first, second = await store.claim()
    await store.write(JobOutcome(job=first, next=DeadLetter(error="x" * 2_000)))
    await store.write(JobOutcome(job=second, final_status=EventStatus.COMPLETED))
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    assert (found.status, found.remaining, found.last_error) == (EventStatus.FAILED, 1, "x" * 500)


async def test_a_failed_try_is_recorded_and_the_job_is_due_again(store: PipelineStore) -> None:
    event, job = await store.claimed()
    await store.write(JobOutcome(job=job, next=Reschedule(due_at=NOW + 9, error="nein")))
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    assert (found.retry_count, found.last_error, found.status) == (1, "nein", event.status)
    (again,) = await store.claim(NOW + 9)
    assert again.tries == 1


async def test_a_job_that_waits_has_not_failed(store: PipelineStore) -> None:
    event, job = await store.claimed()
    await store.write(JobOutcome(job=job, next=Reschedule(due_at=NOW + 9)))
    assert await store.events.get(store.app_id, event.id) == event
    (again,) = await store.claim(NOW + 9)
    assert again.tries == 0


@pytest.mark.parametrize(("first", "then"), [(5, 9), (9, 5)])
async def test_a_shared_job_is_due_at_the_earlier_of_two_times(
    store: PipelineStore, first: int, then: int
) -> None:
    for due in (first, then):
        event, job = await store.claimed()
        held = make_job(event, id=f"{store.app_id}/held", kind=JobKind.HELD, due_at=NOW + due)
        assert await store.write(JobOutcome(job=job, shared_jobs=(held,))) == [True]
    assert await store.due_times([f"{store.app_id}/held"]) == {f"{store.app_id}/held": NOW + 5}


async def test_a_channel_that_is_held_while_another_is_released_keeps_the_job(
    store: PipelineStore,
) -> None:
    event, job = await store.claimed()
    added = make_notification(event)
    email = make_delivery(added, channel=Channel.EMAIL, status=DeliveryStatus.HELD)
    stub = make_delivery(added, status=DeliveryStatus.HELD)
    held = make_job(event, id=f"{added.id}/held", kind=JobKind.HELD, subject=added.id)
    await store.write(
        JobOutcome(job=job, notification=added, deliveries=(email,), shared_jobs=(held,))
    )
    (releasing,) = await store.claim()
    await store.accept_job(make_job(event, id=f"{added.id}/stub", kind=JobKind.DELIVER))
    (delivering,) = await store.claim()
    later = replace(held, due_at=NOW + DAY)
    await store.write(JobOutcome(job=delivering, deliveries=(stub,), shared_jobs=(later,)))
    sent = replace(email, status=DeliveryStatus.QUEUED)
    assert await store.write(JobOutcome(job=releasing, deliveries=(sent,)), now=NOW + 1) == [True]
    assert await store.due_times([held.id]) == {held.id: NOW + 1}
    (again,) = await store.claim(NOW + 1)
    queued = replace(stub, status=DeliveryStatus.QUEUED)
    assert await store.write(JobOutcome(job=again, deliveries=(queued,))) == [True]
    assert await store.due_times([held.id]) == {}


async def test_a_digest_begins_anew_if_more_was_collected(store: PipelineStore) -> None:
    """What joins at the moment at which the digest is updated must not be left behind."""
    digest = f"digest/{store.app_id}"
    event = make_event(store.app_id)
    await store.events.accept([event], [make_job(event, id=digest, kind=JobKind.DIGEST)])
    (inbox_update,) = await store.claim()
    joining, job = await store.claimed()
    added = make_notification(joining)
    late = make_delivery(added, status=DeliveryStatus.COLLECTED, digest=digest)
    shared = make_job(joining, id=digest, kind=JobKind.DIGEST, due_at=NOW + LEASE)
    await store.write(
        JobOutcome(job=job, notification=added, deliveries=(late,), shared_jobs=(shared,))
    )
    assert await store.write(JobOutcome(job=inbox_update), now=NOW + 1) == [True]
    assert await store.due_times([digest]) == {digest: NOW + 1}
    (again,) = await store.claim(NOW + 1)
    await store.write(
        JobOutcome(job=again, deliveries=(replace(late, status=DeliveryStatus.FOLDED),))
    )
    assert await store.due_times([digest]) == {}


async def test_what_was_stored_before_an_overload_is_counted_and_reported(
    database_url: str,
) -> None:
    """The rest is written when the store has room again."""
    await migrate(database_url)
    metrics, changed = PipelineMetrics(), Counter[str]()
    async with nothing_left(), opened(database_url, waiting_limit=ROOM) as engine:
        store = PipelineStore(engine, new_app_id())
        events = [make_event(store.app_id) for _ in range(3 * ROOM)]
        await store.events.accept(events, [make_job(each) for each in events])
        jobs = {job.event_id: job for job in await store.claim()}
        outcomes = [make_outcome(each, jobs[each.id], f"user-{n}") for n, each in enumerate(events)]
        writer = OutcomeWriter(
            store.outcomes,
            FixedClock(),
            metrics,
            lambda _app_id, user_id: changed.update([user_id]),
            lambda *_: None,
            Leases(),
            store.queue,
        )
        assert await writer.write(outcomes) == []
        stored = await store.notifications.find_many(
            store.app_id,
            [f"user-{n}" for n in range(3 * ROOM)],
            [each.notification.id for each in outcomes if each.notification],
        )
    assert len(stored) == 3 * ROOM
    assert changed == Counter({f"user-{n}": 1 for n in range(3 * ROOM)})


def make_outcome(event: Event, job: Job, user_id: str) -> JobOutcome:
    notification = make_notification(event, user_id=user_id)
    return JobOutcome(job=replace(job, user_id=user_id), notification=notification)
