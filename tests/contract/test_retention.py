"""The `Retention` port and `Inboxes.forget`: old data is deleted, and nothing else."""

from itertools import count
from typing import Any

import pytest

from clarion.access.sql import Apps
from clarion.catalog.model import Channel
from clarion.events.model import (
    NEVER,
    DeadLetter,
    DedupeClaim,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
    LimitClaim,
)
from clarion.events.sql.retention import LOOKED_AT_FACTOR, SqlRetention
from clarion.events.tables import DEDUPES, LIMIT_COUNTS
from clarion.history.model import Attempt, DeliveryStatus, Notification
from clarion.history.sql.retention import find_old
from clarion.idempotency.tables import IDEMPOTENCY_KEYS
from clarion.inbox.model import InboxAction, InboxState
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.store.engine import Engine
from clarion.store.lifecycle.retention import prune
from clarion.store.statement import statement
from tests.factories import DAY, NOW, make_app, make_once, make_provider_key
from tests.inbox import list_inbox
from tests.pipeline import PipelineStore, make_delivery, make_event, make_job, make_notification
from tests.replacing import replace

OLD, YOUNG = NOW - 40 * DAY, NOW - 29 * DAY
BEFORE = NOW - 30 * DAY
COUNT_JOBS = statement("count_jobs_of_app", "SELECT COUNT(*) FROM jobs WHERE app_id = :app_id")
_numbers = count(1)


def id_at(moment: int) -> str:
    """Return an id as it is made at a time."""
    digits = f"{moment:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{next(_numbers):012x}"


@pytest.fixture
async def store(engine: Engine, apps: Apps) -> PipelineStore:
    app = make_app()
    await apps.create(app, make_provider_key(app))
    return PipelineStore(engine, app.id)


@pytest.fixture
def retention(engine: Engine) -> SqlRetention:
    return SqlRetention(engine)


@pytest.fixture
def inboxes(engine: Engine) -> SqlInboxes:
    return SqlInboxes(engine)


async def add_notification(
    store: PipelineStore, moment: int, user_id: str = "ana", **changes: Any
) -> Notification:
    """Store a notification with two deliveries and an attempt, as if made at a time."""
    event = make_event(store.app_id, id=id_at(moment), created_at=moment)
    work = make_job(event, user_id=user_id)
    await store.events.accept([event], [work])
    (job,) = await store.claim()
    made = make_notification(event, id=id_at(moment), created_at=moment, user_id=user_id, **changes)
    inbox = make_delivery(made, channel=Channel.IN_APP, status=DeliveryStatus.DELIVERED)
    attempt = Attempt(
        notification_id=made.id,
        channel=Channel.STUB,
        number=1,
        status="delivered",
        attempted_at=moment,
    )
    outcome = JobOutcome(
        job=job,
        final_status=EventStatus.COMPLETED,
        notification=made,
        deliveries=(inbox, make_delivery(made)),
        attempts=(attempt,),
    )
    assert await store.write(outcome, now=moment) == [True]
    return made


async def is_left(store: PipelineStore, of: Notification) -> set[bool]:
    """Whether a notification, its deliveries and its attempts are there."""
    found = await store.notifications.find_many(store.app_id, [of.user_id], [of.id])
    deliveries = await store.deliveries.find_many(store.app_id, [of.id])
    return {bool(found), bool(deliveries), bool(await store.deliveries.list_attempts(of.id))}


async def test_old_notifications_are_found_by_app_and_user(store: PipelineStore) -> None:
    first, second = await add_notification(store, OLD), await add_notification(store, OLD)
    bo = await add_notification(store, OLD, "bo")
    await add_notification(store, YOUNG)
    assert await find_old(store.engine, BEFORE, 100) == {
        (store.app_id, "ana"): [first.id, second.id],
        (store.app_id, "bo"): [bo.id],
    }
    # The oldest come first.
    assert await find_old(store.engine, BEFORE, 1) == {(store.app_id, "ana"): [first.id]}
    assert await find_old(store.engine, OLD, 100) == {}


async def test_the_moment_itself_is_not_before(store: PipelineStore) -> None:
    made = await add_notification(store, OLD)
    assert await find_old(store.engine, OLD, 9) == {}
    assert await find_old(store.engine, OLD + 1, 9) == {(store.app_id, "ana"): [made.id]}


async def test_forgotten_notifications_are_deleted_and_counts_stay_exact(
    engine: Engine, store: PipelineStore, inboxes: SqlInboxes
) -> None:
    unread, read, dismissed = [await add_notification(store, OLD) for _ in range(3)]
    hidden = await add_notification(store, OLD, is_shown=False)
    kept = await add_notification(store, YOUNG)
    await inboxes.apply(InboxAction.READ, store.app_id, "ana", read.id, NOW)
    await inboxes.apply(InboxAction.DISMISS, store.app_id, "ana", dismissed.id, NOW)
    before = await inboxes.state(store.app_id, "ana")
    assert before.unread_count == 2
    gone = (unread, read, dismissed, hidden)
    for _ in range(2):
        await inboxes.forget(store.app_id, "ana", [each.id for each in gone])
        state = await inboxes.state(store.app_id, "ana")
        assert state == InboxState(1, before.sequence)
    assert [await is_left(store, each) for each in gone] == [{False}] * 4
    assert await is_left(store, kept) == {True}
    # Numbers go on from where they were.
    newest = await add_notification(store, NOW)
    listed = await list_inbox(engine, store.app_id)
    assert [each.id for each in listed] == [newest.id, kept.id]
    assert listed[0].sequence == before.sequence + 1


async def test_nobody_elses_inbox_is_touched(store: PipelineStore, inboxes: SqlInboxes) -> None:
    bo = await add_notification(store, OLD, "bo")
    await inboxes.forget(store.app_id, "ana", ["nothing"])
    assert await is_left(store, bo) == {True}
    assert (await inboxes.state(store.app_id, "bo")).unread_count == 1


async def test_finished_events_are_deleted_and_others_stay(
    store: PipelineStore, retention: SqlRetention
) -> None:
    made = {
        status: make_event(store.app_id, id=id_at(OLD), created_at=OLD, status=status)
        for status in EventStatus
    }
    over = EventStatus.COMPLETED
    young = make_event(store.app_id, id=id_at(YOUNG), created_at=YOUNG, status=over)
    await store.events.accept([*made.values(), young], [])
    assert await retention.prune_events("another", BEFORE, 100) == 0
    assert await retention.prune_events(store.app_id, BEFORE, 2) == 2
    assert await retention.prune_events(store.app_id, BEFORE, 100) == 4
    assert await retention.prune_events(store.app_id, BEFORE, 100) == 0
    page = await store.events.list(store.app_id, status=None, after=None, limit=100)
    assert {each.status for each in page.items} == {
        EventStatus.SCHEDULED,
        EventStatus.PENDING,
        EventStatus.PROCESSING,
        EventStatus.COMPLETED,
    }
    assert young.id in {each.id for each in page.items}


async def test_an_event_that_was_scheduled_long_ago_is_not_old_when_it_is_decided(
    store: PipelineStore, retention: SqlRetention
) -> None:
    event = make_event(store.app_id, id=id_at(OLD), created_at=OLD)
    await store.events.accept([event], [make_job(event)])
    (job,) = await store.claim()
    outcome = JobOutcome(
        job=job, final_status=EventStatus.COMPLETED, notification=make_notification(event)
    )
    assert await store.write(outcome, now=YOUNG) == [True]
    assert await retention.prune_events(store.app_id, BEFORE, 100) == 0
    assert await retention.prune_events(store.app_id, YOUNG + 1, 100) == 1


async def test_an_event_with_many_dead_letters_is_deleted_in_small_steps(
    store: PipelineStore, engine: Engine, retention: SqlRetention
) -> None:
    event = make_event(store.app_id, id=id_at(OLD), created_at=OLD)
    jobs = [make_job(event, id=f"{event.id}/{n}", user_id=f"user-{n}") for n in range(21)]
    await store.events.accept([event], jobs)
    for job in await store.claim():
        await store.write(JobOutcome(job=job, next=DeadLetter(error="no")), now=OLD)
    left = []
    while pruned := await retention.prune_events(store.app_id, BEFORE, 10):
        ((jobs_left,),) = await engine.fetch(COUNT_JOBS, app_id=store.app_id)
        left.append((pruned, jobs_left))
    # As many as the limit: there may be more to do.
    assert left == [(10, 11), (10, 1), (1, 0)]
    assert await store.events.get(store.app_id, event.id) is None


async def test_a_dead_letter_is_deleted_with_its_event(
    store: PipelineStore, engine: Engine, retention: SqlRetention
) -> None:
    event = make_event(store.app_id, id=id_at(OLD), created_at=OLD)
    waiting = make_event(store.app_id, id=id_at(OLD), created_at=OLD)
    await store.events.accept([event, waiting], [make_job(event), make_job(waiting)])
    job = next(each for each in await store.claim() if each.event_id == event.id)
    await store.write(JobOutcome(job=job, next=DeadLetter(error="no")), now=OLD)
    assert await retention.prune_events(store.app_id, BEFORE, 100) == 1
    (row,) = await engine.fetch(COUNT_JOBS, app_id=store.app_id)
    assert row[0] == 1
    assert await store.events.get(store.app_id, waiting.id) is not None


async def hold(store: PipelineStore, due_at: int = NEVER, **changes: Any) -> tuple[str, Job]:
    """Store a notification that is held until a time; return its id and the job."""
    event, job = await store.claimed()
    made = make_notification(event, **changes)
    delivery = make_delivery(made, status=DeliveryStatus.HELD)
    held = make_job(event, id=f"{made.id}/held", kind=JobKind.HELD, due_at=due_at, subject=made.id)
    outcome = JobOutcome(job=job, notification=made, deliveries=(delivery,), shared_jobs=(held,))
    assert await store.write(outcome) == [True]
    return made.id, held


async def test_held_jobs_are_deleted_when_their_notification_is(
    store: PipelineStore, retention: SqlRetention, inboxes: SqlInboxes
) -> None:
    (gone, orphan), (_, kept) = await hold(store), await hold(store)
    later, due = await hold(store, due_at=NOW + DAY)
    assert await retention.prune_orphaned_jobs(9) == 0
    await inboxes.forget(store.app_id, "ana", [gone, later])
    assert await retention.prune_orphaned_jobs(9) == 1
    assert await retention.prune_orphaned_jobs(9) == 0
    # The one with a due time ends when it is due.
    assert set(await store.due_times([orphan.id, kept.id, due.id])) == {kept.id, due.id}


async def test_digest_jobs_are_deleted_with_the_last_collected_delivery(
    store: PipelineStore, retention: SqlRetention, inboxes: SqlInboxes
) -> None:
    made = []
    for _ in range(2):
        event, job = await store.claimed()
        notification = make_notification(event)
        digest = make_job(event, id=f"digest/{store.app_id}", kind=JobKind.DIGEST, due_at=NEVER)
        collected = make_delivery(notification, status=DeliveryStatus.COLLECTED, digest=digest.id)
        outcome = JobOutcome(
            job=job, notification=notification, deliveries=(collected,), shared_jobs=(digest,)
        )
        assert await store.write(outcome) == [True]
        made.append(notification.id)
    for each, deleted in zip(made, (0, 1), strict=True):
        await inboxes.forget(store.app_id, "ana", [each])
        assert await retention.prune_orphaned_jobs(9) == deleted
    assert await store.due_times([digest.id]) == {}


async def test_orphaned_jobs_are_deleted_in_steps_and_other_jobs_stay(
    store: PipelineStore, retention: SqlRetention
) -> None:
    kinds = [*[JobKind.HELD] * 3, JobKind.DECIDE, JobKind.DELIVER, JobKind.EXPAND]
    for kind in kinds:
        event = make_event(store.app_id)
        await store.events.accept([event], [make_job(event, kind=kind, due_at=NEVER)])
    dead = make_event(store.app_id)
    await store.events.accept([dead], [make_job(dead, kind=JobKind.HELD)])
    (job,) = await store.claim()
    await store.write(JobOutcome(job=job, next=DeadLetter(error="x")))
    assert [await retention.prune_orphaned_jobs(2) for _ in range(3)] == [2, 1, 0]
    (row,) = await store.engine.fetch(COUNT_JOBS, app_id=store.app_id)
    assert row[0] == 4


async def test_a_round_looks_at_some_jobs_and_the_next_goes_on_from_there(
    store: PipelineStore, retention: SqlRetention
) -> None:
    """However many jobs wait without a time, as those of users who have a channel off."""
    for kind in [JobKind.DECIDE] * (2 * LOOKED_AT_FACTOR + 1) + [JobKind.HELD]:
        event = make_event(store.app_id)
        await store.events.accept([event], [make_job(event, kind=kind, due_at=NEVER)])
    assert [await retention.prune_orphaned_jobs(1) for _ in range(4)] == [0, 0, 1, 0]


async def test_expired_claims_are_deleted(store: PipelineStore) -> None:
    for name, expires_at in (("a", NOW), ("b", NOW + 1)):
        event, job = await store.claimed()
        made = make_notification(event)
        key = DedupeClaim(
            id=name, notification_id=made.id, expected_holder=None, expires_at=expires_at
        )
        use = LimitClaim(id=name, limit=9, expires_at=expires_at)
        assert await store.write(
            JobOutcome(
                job=job,
                notification=made,
                dedupe_claim=key,
                limit_claims=(use,),
                final_status=EventStatus.COMPLETED,
            )
        ) == [True]
    for table in (DEDUPES, LIMIT_COUNTS):
        assert await prune(store.engine, table, NOW, 100) == 1
        assert await prune(store.engine, table, NOW, 100) == 0
    assert await store.claims.find_limit_counts(store.app_id, ["a", "b"]) == {"b": 1}
    assert set(await store.claims.find_earlier(store.app_id, ["a", "b"], NOW - 1)) == {"b"}


async def test_expired_idempotency_keys_are_deleted(store: PipelineStore) -> None:
    for key, expires_at in (("a", NOW), ("b", NOW + 1)):
        event = make_event(store.app_id)
        once = make_once(store.app_id, key=key, now=NOW - 1, expires_at=expires_at)
        assert await store.events.accept([event], [], once) is None
    assert await prune(store.engine, IDEMPOTENCY_KEYS, NOW, 100) == 1
    assert await prune(store.engine, IDEMPOTENCY_KEYS, NOW, 100) == 0
    again = make_once(store.app_id, key="a", now=NOW - 1)
    assert await store.events.find_response(again) is None
    assert await store.events.find_response(replace(again, key="b")) is not None
