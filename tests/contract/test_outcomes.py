"""The `Ledger` port: an entry is stored whole or not at all, and inboxes count right."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from clarion.catalog.model import Channel
from clarion.events.model import (
    Attempt,
    Dead,
    DedupeClaim,
    DeliveryStatus,
    Entry,
    Event,
    EventStatus,
    InboxUpdate,
    Job,
    JobKind,
    Later,
    LimitClaim,
    Notification,
)
from clarion.inbox.model import InboxState
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.store.engine import Engine
from tests.factories import DAY, MINUTE, NOW, new_app_id
from tests.pipeline import LEASE, Desk, make_delivery, make_event, make_job, make_notification

EVENTS = 60


@pytest.fixture
def desk(engine: Engine) -> Desk:
    return Desk(engine, new_app_id())


@pytest.fixture
def inboxes(engine: Engine) -> SqlInboxes:
    return SqlInboxes(engine)


def full_entry(event: Event, job: Job, **changes: Any) -> Entry:
    """Return an entry with something of everything."""
    added = make_notification(event)
    values: dict[str, Any] = {
        "job": job,
        "settles": EventStatus.COMPLETED,
        "dedupe": claim_key("key", added),
        "limits": (LimitClaim(id="limit", limit=1, expires_at=NOW + DAY),),
        "added": added,
        "deliveries": (make_delivery(added),),
        "attempts": (make_attempt(added),),
        "jobs": (make_job(event, id=f"{added.id}/stub", kind=JobKind.DELIVER, due_at=NOW + 1),),
        "shared_jobs": (make_job(event, id=f"{added.id}/held", kind=JobKind.HELD, due_at=NOW + 1),),
    }
    return Entry(**values | changes)


def claim_key(key: str, of: Notification, seen: str | None = None, lasts: int = DAY) -> DedupeClaim:
    return DedupeClaim(id=key, notification_id=of.id, seen=seen, expires_at=NOW + lasts)


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


async def is_stored(desk: Desk, inboxes: SqlInboxes, entry: Entry) -> set[bool]:
    """Return for each part of a full entry whether it is there: one value if it is whole."""
    added = entry.added
    assert added is not None
    event = await desk.events.get(desk.app_id, entry.job.event_id)
    assert event is not None
    jobs = await desk.due_times([each.id for each in (*entry.jobs, *entry.shared_jobs)])
    return {
        await inboxes.get(desk.app_id, "ana", added.id) is not None,
        (await inboxes.state(desk.app_id, "ana")).unread_count > 0,
        (added.id in await desk.deliveries.find_many(desk.app_id, [added.id])),
        bool(await desk.deliveries.attempts(added.id)),
        len(jobs) == 2,
        event.notification_count == 1,
        event.remaining == 0,
    }


async def test_an_entry_is_stored_whole(desk: Desk, inboxes: SqlInboxes) -> None:
    entry = full_entry(*await desk.claimed())
    assert await desk.write(entry) == [True]
    assert await is_stored(desk, inboxes, entry) == {True}
    assert await inboxes.get(desk.app_id, "ana", entry.added.id) == replace(  # type: ignore[union-attr]
        entry.added,  # type: ignore[type-var]
        sequence=1,
    )
    assert await inboxes.state(desk.app_id, "ana") == InboxState(1, 1)
    event = await desk.events.get(desk.app_id, entry.job.event_id)
    assert event is not None
    assert event.status is EventStatus.COMPLETED


async def refuse(desk: Desk, inboxes: SqlInboxes, entry: Entry, now: int = NOW) -> None:
    """Check that an entry is refused and left no trace; its job comes back."""
    state = await inboxes.state(desk.app_id, "ana")
    assert await desk.write(entry, now=now) == [False]
    assert entry.added is not None
    assert await desk.facts.notifications(desk.app_id, ["ana"], [entry.added.id]) == {}
    assert await desk.deliveries.find_many(desk.app_id, [entry.added.id]) == {}
    assert await desk.deliveries.attempts(entry.added.id) == ()
    ids = [each.id for each in (*entry.jobs, *entry.shared_jobs)]
    assert await desk.due_times([*ids, entry.job.id]) == {entry.job.id: NOW + LEASE}
    assert await inboxes.state(desk.app_id, "ana") == state


async def test_an_old_token_is_refused(desk: Desk, inboxes: SqlInboxes) -> None:
    event, job = await desk.claimed()
    await refuse(desk, inboxes, full_entry(event, replace(job, token=job.token - 1)))


async def test_a_cancelled_event_is_refused(desk: Desk, inboxes: SqlInboxes) -> None:
    event, job = await desk.claimed()
    assert await desk.events.cancel(desk.app_id, event.id, NOW)
    await refuse(desk, inboxes, full_entry(event, job))


async def test_a_lost_key_is_refused(desk: Desk, inboxes: SqlInboxes) -> None:
    first = full_entry(*await desk.claimed(), limits=())
    second = full_entry(*await desk.claimed(), limits=())
    assert await desk.write(first) == [True]
    await refuse(desk, inboxes, second)


async def test_a_key_can_be_taken_over_from_whom_one_has_seen(desk: Desk) -> None:
    first = full_entry(*await desk.claimed(), limits=())
    await desk.write(first)
    assert first.added is not None
    event, job = await desk.claimed()
    added = make_notification(event)
    entry = full_entry(event, job, limits=(), added=added, dedupe=claim_key("key", added, "x"))
    assert await desk.write(entry) == [False]
    taken = replace(entry, dedupe=claim_key("key", added, first.added.id))
    assert await desk.write(taken) == [True]
    earlier = await desk.facts.earlier(desk.app_id, ["key"], NOW)
    assert earlier["key"].notification_id == added.id


async def test_a_key_is_free_when_its_window_is_over(desk: Desk) -> None:
    event, job = await desk.claimed()
    added = make_notification(event)
    dedupe = claim_key("key", added, lasts=MINUTE)
    await desk.write(full_entry(event, job, limits=(), added=added, dedupe=dedupe))
    later = full_entry(*await desk.claimed(), limits=())
    assert await desk.write(later, now=NOW + MINUTE - 1) == [False]
    assert await desk.write(later, now=NOW + MINUTE) == [True]


async def test_a_lost_use_of_a_limit_is_refused(desk: Desk, inboxes: SqlInboxes) -> None:
    first = full_entry(*await desk.claimed(), dedupe=None)
    second = full_entry(*await desk.claimed(), dedupe=None)
    assert await desk.write(first) == [True]
    await refuse(desk, inboxes, second)
    assert await desk.facts.used(desk.app_id, ["limit", "x"]) == {"limit": 1}


def tell(of: Notification, seen: int, *, is_first: bool = False) -> InboxUpdate:
    return InboxUpdate(
        id=of.id,
        title=f"{seen + 1} news",
        body="of Bo and others",
        content=of.content,
        count=seen + 1,
        seen=seen,
        is_first=is_first,
    )


async def shown(desk: Desk, **changes: Any) -> Notification:
    """Put a notification into the store, shown or not."""
    event, job = await desk.claimed()
    added = make_notification(event, **changes)
    assert await desk.write(Entry(job=job, settles=EventStatus.COMPLETED, added=added)) == [True]
    return added


async def test_new_words_change_what_is_unread(desk: Desk, inboxes: SqlInboxes) -> None:
    first = await shown(desk)
    event, job = await desk.claimed()
    hidden = make_notification(event, is_shown=False, folded_into=first.id)
    assert await desk.write(Entry(job=job, inbox_update=tell(first, 1), added=hidden)) == [True]
    told = await inboxes.get(desk.app_id, "ana", first.id)
    assert told is not None
    assert (told.title, told.body, told.count) == ("2 news", "of Bo and others", 2)
    assert told.sequence == 2
    assert await inboxes.get(desk.app_id, "ana", hidden.id) is None
    assert await inboxes.state(desk.app_id, "ana") == InboxState(1, 2)


@pytest.mark.parametrize("act", ["read", "dismiss", "told"])
async def test_what_has_changed_is_not_told_anew(desk: Desk, inboxes: SqlInboxes, act: str) -> None:
    first = await shown(desk)
    if act == "told":
        _, job = await desk.claimed()
        await desk.write(Entry(job=job, inbox_update=tell(first, 1)))
    else:
        await getattr(inboxes, act)(desk.app_id, "ana", first.id, NOW)
    event, job = await desk.claimed()
    await refuse(desk, inboxes, full_entry(event, job, inbox_update=tell(first, 1)))


async def test_what_was_hidden_appears_and_counts(desk: Desk, inboxes: SqlInboxes) -> None:
    hidden = await shown(desk, is_shown=False)
    assert await inboxes.state(desk.app_id, "ana") == InboxState(0, 0)
    _, job = await desk.claimed()
    entry = Entry(job=job, inbox_update=tell(hidden, 1, is_first=True))
    assert await desk.write(entry) == [True]
    assert await inboxes.state(desk.app_id, "ana") == InboxState(1, 1)
    again = await desk.claimed()
    assert await desk.write(replace(entry, job=again[1])) == [False]
    assert await inboxes.state(desk.app_id, "ana") == InboxState(1, 1)


async def test_a_batch_is_as_good_as_its_entries(desk: Desk, inboxes: SqlInboxes) -> None:
    """One that is refused late, in the midst of others, does not harm them."""
    events = [await desk.accept() for _ in range(3)]
    jobs = {job.event_id: job for job in await desk.claim()}
    entries = [full_entry(event, jobs[event.id], dedupe=None) for event in events]
    held = await desk.write(*entries)
    assert sorted(held) == [False, False, True]
    assert await inboxes.state(desk.app_id, "ana") == InboxState(1, 1)


async def test_sequences_are_never_shared(
    desk: Desk, other_node: Engine, inboxes: SqlInboxes
) -> None:
    """T38: two nodes write to one inbox at once, in entries of every shape."""
    events = [await desk.accept() for _ in range(EVENTS)]
    jobs = {job.event_id: job for job in await desk.claim()}
    nodes = (desk, Desk(other_node, desk.app_id))
    entries: list[Entry] = []
    for number, event in enumerate(events):
        added = make_notification(event)
        key = claim_key(f"k{number}", added) if number % 3 else None
        use = (LimitClaim(id=f"l{number}", limit=1, expires_at=NOW),) if number % 2 else ()
        settles = EventStatus.COMPLETED if number % 5 else None
        entry = Entry(job=jobs[event.id], added=added, dedupe=key, limits=use, settles=settles)
        entries.append(entry)
    held = await asyncio.gather(*(nodes[n % 2].write(each) for n, each in enumerate(entries)))
    assert held == [[True]] * EVENTS
    changes = await inboxes.changes(desk.app_id, "ana", 0, EVENTS)
    assert [each.sequence for each in changes] == list(range(1, EVENTS + 1))
    assert await inboxes.state(desk.app_id, "ana") == InboxState(EVENTS, EVENTS)


async def test_two_nodes_share_a_limit(desk: Desk, other_node: Engine) -> None:
    events = [await desk.accept() for _ in range(EVENTS)]
    jobs = {job.event_id: job for job in await desk.claim()}
    nodes = (desk, Desk(other_node, desk.app_id))
    use = (LimitClaim(id="limit", limit=7, expires_at=NOW + DAY),)
    entries = [full_entry(each, jobs[each.id], dedupe=None, limits=use) for each in events]
    held = await asyncio.gather(*(nodes[n % 2].write(each) for n, each in enumerate(entries)))
    assert held.count([True]) == 7
    assert await desk.facts.used(desk.app_id, ["limit"]) == {"limit": 7}


async def test_an_event_is_over_with_its_last_person(desk: Desk) -> None:
    event = make_event(desk.app_id, remaining=2)
    people = [make_job(event, id=f"{event.id}/{name}", user_id=name) for name in ("ana", "bo")]
    await desk.events.accept([event], people)
    states = []
    for job in await desk.claim():
        await desk.write(Entry(job=job, settles=EventStatus.COMPLETED))
        found = await desk.events.get(desk.app_id, event.id)
        assert found is not None
        states.append((found.status, found.remaining, found.notification_count))
    assert states == [(EventStatus.PROCESSING, 1, 1), (EventStatus.COMPLETED, 0, 2)]


async def test_an_event_with_a_dead_letter_stays_failed(desk: Desk) -> None:
    event = make_event(desk.app_id, remaining=2)
    people = [make_job(event, id=f"{event.id}/{name}", user_id=name) for name in ("ana", "bo")]
    await desk.events.accept([event], people)
    first, second = await desk.claim()
    await desk.write(Entry(job=first, next=Dead(error="x" * 2_000)))
    await desk.write(Entry(job=second, settles=EventStatus.COMPLETED))
    found = await desk.events.get(desk.app_id, event.id)
    assert found is not None
    assert (found.status, found.remaining, found.last_error) == (EventStatus.FAILED, 1, "x" * 500)


async def test_a_failed_try_is_remembered_and_comes_back(desk: Desk) -> None:
    event, job = await desk.claimed()
    await desk.write(Entry(job=job, next=Later(due_at=NOW + 9, error="nein")))
    found = await desk.events.get(desk.app_id, event.id)
    assert found is not None
    assert (found.retry_count, found.last_error, found.status) == (1, "nein", event.status)
    (again,) = await desk.claim(NOW + 9)
    assert again.tries == 1


async def test_a_job_that_waits_has_not_failed(desk: Desk) -> None:
    event, job = await desk.claimed()
    await desk.write(Entry(job=job, next=Later(due_at=NOW + 9)))
    assert await desk.events.get(desk.app_id, event.id) == event
    (again,) = await desk.claim(NOW + 9)
    assert again.tries == 0


@pytest.mark.parametrize(("first", "then"), [(5, 9), (9, 5)])
async def test_shared_work_is_due_when_the_first_of_it_is(
    desk: Desk, first: int, then: int
) -> None:
    for due in (first, then):
        event, job = await desk.claimed()
        held = make_job(event, id=f"{desk.app_id}/held", kind=JobKind.HELD, due_at=NOW + due)
        assert await desk.write(Entry(job=job, shared_jobs=(held,))) == [True]
    assert await desk.due_times([f"{desk.app_id}/held"]) == {f"{desk.app_id}/held": NOW + 5}


async def test_what_comes_to_wait_while_another_channel_is_let_go_is_not_forgotten(
    desk: Desk,
) -> None:
    event, job = await desk.claimed()
    added = make_notification(event)
    email = make_delivery(added, channel=Channel.EMAIL, status=DeliveryStatus.HELD)
    stub = make_delivery(added, status=DeliveryStatus.HELD)
    held = make_job(event, id=f"{added.id}/held", kind=JobKind.HELD, subject=added.id)
    await desk.write(Entry(job=job, added=added, deliveries=(email,), shared_jobs=(held,)))
    (releasing,) = await desk.claim()
    await desk.accept_job(make_job(event, id=f"{added.id}/stub", kind=JobKind.DELIVER))
    (delivering,) = await desk.claim()
    later = replace(held, due_at=NOW + DAY)
    await desk.write(Entry(job=delivering, deliveries=(stub,), shared_jobs=(later,)))
    sent = replace(email, status=DeliveryStatus.QUEUED)
    assert await desk.write(Entry(job=releasing, deliveries=(sent,)), now=NOW + 1) == [True]
    assert await desk.due_times([held.id]) == {held.id: NOW + 1}
    (again,) = await desk.claim(NOW + 1)
    queued = replace(stub, status=DeliveryStatus.QUEUED)
    assert await desk.write(Entry(job=again, deliveries=(queued,))) == [True]
    assert await desk.due_times([held.id]) == {}


async def test_a_digest_begins_anew_if_more_was_collected(desk: Desk) -> None:
    """What joins at the moment at which the digest is told must not be left behind."""
    digest = f"digest/{desk.app_id}"
    event = make_event(desk.app_id)
    await desk.events.accept([event], [make_job(event, id=digest, kind=JobKind.DIGEST)])
    (inbox_update,) = await desk.claim()
    joining, job = await desk.claimed()
    added = make_notification(joining)
    late = make_delivery(added, status=DeliveryStatus.COLLECTED, digest=digest)
    shared = make_job(joining, id=digest, kind=JobKind.DIGEST, due_at=NOW + LEASE)
    await desk.write(Entry(job=job, added=added, deliveries=(late,), shared_jobs=(shared,)))
    assert await desk.write(Entry(job=inbox_update), now=NOW + 1) == [True]
    assert await desk.due_times([digest]) == {digest: NOW + 1}
    (again,) = await desk.claim(NOW + 1)
    await desk.write(Entry(job=again, deliveries=(replace(late, status=DeliveryStatus.FOLDED),)))
    assert await desk.due_times([digest]) == {}
