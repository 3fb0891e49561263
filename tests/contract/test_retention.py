"""The `Retention` port, `Inboxes.forget` and the keeper: what is old goes, and nothing else."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from clarion.access.port import Apps
from clarion.catalog.model import Channel
from clarion.events.model import (
    Attempt,
    Dead,
    DedupeClaim,
    DeliveryStatus,
    Entry,
    EventStatus,
    LimitClaim,
    Notification,
)
from clarion.events.retention import CHUNK, Keeper
from clarion.events.sql.retention import SqlRetention
from clarion.inbox.model import InboxAction, InboxState
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.push.sql.devices import SqlDevices
from clarion.store.engine import Engine
from clarion.store.statement import statement
from tests.factories import DAY, NOW, FixedClock, make_app, make_once, make_provider_key
from tests.pipeline import Desk, make_delivery, make_event, make_job, make_notification

OLD, YOUNG = NOW - 40 * DAY, NOW - 29 * DAY
BEFORE = NOW - 30 * DAY
COUNT_JOBS = statement("count_jobs_of_app", "SELECT COUNT(*) FROM jobs WHERE app_id = :app_id")
_numbers = count(1)


def id_at(moment: int) -> str:
    """Return an id as it is made at a time."""
    digits = f"{moment:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{next(_numbers):012x}"


@pytest.fixture
async def desk(engine: Engine, apps: Apps) -> Desk:
    app = make_app()
    await apps.create(app, make_provider_key(app))
    return Desk(engine, app.id)


@pytest.fixture
def retention(engine: Engine) -> SqlRetention:
    return SqlRetention(engine)


@pytest.fixture
def inboxes(engine: Engine) -> SqlInboxes:
    return SqlInboxes(engine)


@pytest.fixture
def keeper(engine: Engine, retention: SqlRetention, inboxes: SqlInboxes, apps: Apps) -> Keeper:
    return Keeper(
        retention=retention,
        inboxes=inboxes,
        apps=apps,
        devices=SqlDevices(engine),
        clock=FixedClock(NOW),
        event_days=30,
        notification_days=90,
        device_days=30,
    )


async def tell(desk: Desk, moment: int, user_id: str = "ana", **changes: Any) -> Notification:
    """Put a notification with two deliveries and an attempt, as if made at a time."""
    event = make_event(desk.app_id, id=id_at(moment), created_at=moment)
    work = make_job(event, user_id=user_id)
    await desk.events.accept([event], [work])
    (job,) = await desk.claim()
    made = make_notification(event, id=id_at(moment), created_at=moment, user_id=user_id, **changes)
    inbox = make_delivery(made, channel=Channel.IN_APP, status=DeliveryStatus.DELIVERED)
    attempt = Attempt(
        notification_id=made.id,
        channel=Channel.STUB,
        number=1,
        device_id="",
        status="delivered",
        provider_response=None,
        error_code=None,
        error_message=None,
        attempted_at=moment,
    )
    entry = Entry(
        job=job,
        settles=EventStatus.COMPLETED,
        added=made,
        deliveries=(inbox, make_delivery(made)),
        attempts=(attempt,),
    )
    assert await desk.write(entry, now=moment) == [True]
    return made


async def is_left(desk: Desk, of: Notification) -> set[bool]:
    """Whether a notification, its deliveries and its attempts are there."""
    found = await desk.facts.notifications(desk.app_id, [of.user_id], [of.id])
    deliveries = await desk.deliveries.find_many(desk.app_id, [of.id])
    return {bool(found), bool(deliveries), bool(await desk.deliveries.attempts(of.id))}


async def test_old_notifications_are_found_by_whose_they_are(
    desk: Desk, retention: SqlRetention
) -> None:
    first, second = await tell(desk, OLD), await tell(desk, OLD)
    bo = await tell(desk, OLD, "bo")
    await tell(desk, YOUNG)
    assert await retention.find_old_notifications(BEFORE, 100) == {
        (desk.app_id, "ana"): [first.id, second.id],
        (desk.app_id, "bo"): [bo.id],
    }
    # Two rows a notification: the limit is of rows, and the oldest come first.
    assert await retention.find_old_notifications(BEFORE, 1) == {(desk.app_id, "ana"): [first.id]}
    assert await retention.find_old_notifications(OLD, 100) == {}


async def test_the_moment_itself_is_not_before(desk: Desk, retention: SqlRetention) -> None:
    made = await tell(desk, OLD)
    assert await retention.find_old_notifications(OLD, 9) == {}
    assert await retention.find_old_notifications(OLD + 1, 9) == {(desk.app_id, "ana"): [made.id]}


async def test_what_is_forgotten_is_gone_and_counts_stay_exact(
    desk: Desk, inboxes: SqlInboxes
) -> None:
    unread, read, dismissed = [await tell(desk, OLD) for _ in range(3)]
    hidden = await tell(desk, OLD, is_shown=False)
    kept = await tell(desk, YOUNG)
    await inboxes.apply(InboxAction.READ, desk.app_id, "ana", read.id, NOW)
    await inboxes.apply(InboxAction.DISMISS, desk.app_id, "ana", dismissed.id, NOW)
    before = await inboxes.state(desk.app_id, "ana")
    assert before.unread_count == 2
    gone = (unread, read, dismissed, hidden)
    for _ in range(2):
        await inboxes.forget(desk.app_id, "ana", [each.id for each in gone])
        state = await inboxes.state(desk.app_id, "ana")
        assert state == InboxState(1, before.sequence)
    assert [await is_left(desk, each) for each in gone] == [{False}] * 4
    assert await is_left(desk, kept) == {True}
    # Numbers go on from where they were.
    newest = await tell(desk, NOW)
    page = await inboxes.page(desk.app_id, "ana", unread=False, category=None, after=None, limit=9)
    assert [each.id for each in page.items] == [newest.id, kept.id]
    assert page.items[0].sequence == before.sequence + 1


async def test_nobody_elses_inbox_is_touched(desk: Desk, inboxes: SqlInboxes) -> None:
    bo = await tell(desk, OLD, "bo")
    await inboxes.forget(desk.app_id, "ana", ["nothing"])
    assert await is_left(desk, bo) == {True}
    assert (await inboxes.state(desk.app_id, "bo")).unread_count == 1


async def test_events_that_are_over_go_and_others_stay(desk: Desk, retention: SqlRetention) -> None:
    made = {
        status: make_event(desk.app_id, id=id_at(OLD), created_at=OLD, status=status)
        for status in EventStatus
    }
    over = EventStatus.COMPLETED
    young = make_event(desk.app_id, id=id_at(YOUNG), created_at=YOUNG, status=over)
    await desk.events.accept([*made.values(), young], [])
    assert await retention.prune_events("another", BEFORE, 100) == 0
    assert await retention.prune_events(desk.app_id, BEFORE, 2) == 2
    assert await retention.prune_events(desk.app_id, BEFORE, 100) == 4
    assert await retention.prune_events(desk.app_id, BEFORE, 100) == 0
    page = await desk.events.list(desk.app_id, status=None, after=None, limit=100)
    assert {each.status for each in page.items} == {
        EventStatus.SCHEDULED,
        EventStatus.PENDING,
        EventStatus.PROCESSING,
        EventStatus.COMPLETED,
    }
    assert young.id in {each.id for each in page.items}


async def test_an_event_that_was_scheduled_for_long_is_not_old_when_it_is_told(
    desk: Desk, retention: SqlRetention
) -> None:
    event = make_event(desk.app_id, id=id_at(OLD), created_at=OLD)
    await desk.events.accept([event], [make_job(event)])
    (job,) = await desk.claim()
    entry = Entry(job=job, settles=EventStatus.COMPLETED, added=make_notification(event))
    assert await desk.write(entry, now=YOUNG) == [True]
    assert await retention.prune_events(desk.app_id, BEFORE, 100) == 0
    assert await retention.prune_events(desk.app_id, YOUNG + 1, 100) == 1


async def test_a_dead_letter_goes_with_its_event(
    desk: Desk, engine: Engine, retention: SqlRetention
) -> None:
    event = make_event(desk.app_id, id=id_at(OLD), created_at=OLD)
    waiting = make_event(desk.app_id, id=id_at(OLD), created_at=OLD)
    await desk.events.accept([event, waiting], [make_job(event), make_job(waiting)])
    job = next(each for each in await desk.claim() if each.event_id == event.id)
    await desk.write(Entry(job=job, next=Dead(error="no")), now=OLD)
    assert await retention.prune_events(desk.app_id, BEFORE, 100) == 1
    (row,) = await engine.fetch(COUNT_JOBS, app_id=desk.app_id)
    assert row[0] == 1
    assert await desk.events.get(desk.app_id, waiting.id) is not None


async def test_claims_go_when_their_time_has_passed(desk: Desk, retention: SqlRetention) -> None:
    for name, expires_at in (("a", NOW), ("b", NOW + 1)):
        event, job = await desk.claimed()
        made = make_notification(event)
        key = DedupeClaim(id=name, notification_id=made.id, seen=None, expires_at=expires_at)
        use = LimitClaim(id=name, limit=9, expires_at=expires_at)
        assert await desk.write(
            Entry(job=job, added=made, dedupe=key, limits=(use,), settles=EventStatus.COMPLETED)
        ) == [True]
    assert await retention.prune_claims(NOW, 100) == 1
    assert await retention.prune_claims(NOW, 100) == 0
    assert await desk.facts.used(desk.app_id, ["a", "b"]) == {"b": 1}
    assert set(await desk.facts.earlier(desk.app_id, ["a", "b"], NOW - 1)) == {"b"}


async def test_answers_go_when_their_time_has_passed(desk: Desk, retention: SqlRetention) -> None:
    for key, expires_at in (("a", NOW), ("b", NOW + 1)):
        event = make_event(desk.app_id)
        once = make_once(desk.app_id, key=key, now=NOW - 1, expires_at=expires_at)
        assert await desk.events.accept([event], [], once) is None
    assert await retention.prune_answers(NOW, 100) == 1
    assert await retention.prune_answers(NOW, 100) == 0
    again = make_once(desk.app_id, key="a", now=NOW - 1)
    assert await desk.events.recall(again) is None
    assert await desk.events.recall(replace(again, key="b")) is not None


async def test_the_keeper_keeps_what_is_young(
    desk: Desk, keeper: Keeper, inboxes: SqlInboxes
) -> None:
    ancient = await tell(desk, NOW - 91 * DAY)
    old, young = await tell(desk, OLD), await tell(desk, YOUNG)
    await keeper.sweep()
    assert [await is_left(desk, each) for each in (ancient, old, young)] == [
        {False},
        {True},
        {True},
    ]
    page = await desk.events.list(desk.app_id, status=None, after=None, limit=9)
    assert [each.id for each in page.items] == [young.event_id]
    assert (await inboxes.state(desk.app_id, "ana")).unread_count == 2


async def test_the_keeper_goes_on_until_nothing_is_left(desk: Desk, keeper: Keeper) -> None:
    over = [
        make_event(desk.app_id, id=id_at(OLD), created_at=OLD, status=EventStatus.COMPLETED)
        for _ in range(CHUNK + 1)
    ]
    await desk.events.accept(over, [])
    await keeper.sweep()
    page = await desk.events.list(desk.app_id, status=None, after=None, limit=9)
    assert page.items == ()
