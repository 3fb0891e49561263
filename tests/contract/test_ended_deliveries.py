"""Deliveries that end when they are decided are part of their notification, not rows."""

from typing import Any
from uuid import uuid4

import pytest

from clarion.analytics.model import Cell, Metric
from clarion.analytics.sql.counts import count_all
from clarion.catalog.model import Channel
from clarion.clock import first_id_of
from clarion.events.model import EventStatus, JobOutcome
from clarion.history.model import (
    Delivery,
    DeliveryStatus,
    Notification,
    PastDecision,
    ReasonCode,
)
from clarion.history.sql.deliveries import SqlDeliveryReports
from clarion.history.sql.retention import find_old
from clarion.inbox.model import InboxAction
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.store.engine import Engine
from clarion.store.statement import statement
from tests.factories import NOW, new_app_id
from tests.pipeline import PipelineStore, make_delivery, make_notification

SHOWN: dict[str, Any] = {
    "channel": Channel.IN_APP,
    "status": DeliveryStatus.DELIVERED,
    "attempt_count": 1,
    "sent_at": NOW,
    "delivered_at": NOW,
    "last_attempt_at": NOW,
}
DROPPED: dict[str, Any] = {
    "channel": Channel.PUSH,
    "status": DeliveryStatus.DROPPED,
    "reason": ReasonCode.NO_DEVICE,
    "rule": "devices",
}
FOLDED: dict[str, Any] = {
    "channel": Channel.WEBHOOK,
    "status": DeliveryStatus.FOLDED,
    "reason": ReasonCode.FOLDED_INTO_UNREAD,
    "rule": "repeat",
}
QUEUED: dict[str, Any] = {"channel": Channel.EMAIL}
COUNT_ROWS = statement("count_rows", "SELECT COUNT(*) FROM deliveries WHERE notification_id = :id")


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


async def put(
    store: PipelineStore, *deliveries: dict[str, Any], **changes: Any
) -> tuple[Notification, tuple[Delivery, ...]]:
    event, job = await store.claimed()
    added = make_notification(event, **changes)
    made = tuple(make_delivery(added, **each) for each in deliveries)
    outcome = JobOutcome(
        job=job, final_status=EventStatus.COMPLETED, notification=added, deliveries=made
    )
    assert await store.write(outcome) == [True]
    return added, made


async def count_rows(store: PipelineStore, added: Notification) -> int:
    ((count,),) = await store.engine.fetch(COUNT_ROWS, id=added.id)
    return int(count)


@pytest.mark.parametrize(
    ("deliveries", "rows"),
    [
        ((SHOWN, DROPPED), 0),
        ((DROPPED, FOLDED), 0),
        ((QUEUED, SHOWN, DROPPED), 1),
        ((SHOWN, DROPPED, FOLDED, QUEUED), 1),
        ((QUEUED,), 1),
        ((), 0),
    ],
)
async def test_what_ended_is_read_with_what_has_work(
    store: PipelineStore, deliveries: tuple[dict[str, Any], ...], rows: int
) -> None:
    added, made = await put(store, *deliveries)
    assert await count_rows(store, added) == rows
    in_order = tuple(sorted(made, key=lambda each: each.channel))
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {added.id: in_order}
    worked_on = await store.deliveries.find_worked_on(store.app_id, [added.id])
    queued = tuple(each for each in made if each.channel is Channel.EMAIL)
    assert worked_on == ({added.id: queued} if queued else {})


async def test_those_of_another_app_are_not_read(store: PipelineStore) -> None:
    added, _ = await put(store, SHOWN, QUEUED)
    assert await store.deliveries.find_many(new_app_id(), [added.id]) == {}


@pytest.mark.parametrize(
    "more",
    [
        {"provider": "own"},
        {"count": 2},
        {"until": NOW + 1},
        {"decided_at": NOW + 1},
        {"delivered_at": None},
        {"attempt_count": 2},
        {"error_message": "x"},
        {"past_decisions": (PastDecision(NOW, DeliveryStatus.HELD, ReasonCode.LIMIT_WAITS, "x"),)},
        {"status": DeliveryStatus.EXPIRED},
        {"status": DeliveryStatus.SENT},
    ],
    ids=str,
)
async def test_one_that_says_more_is_a_row(store: PipelineStore, more: dict[str, Any]) -> None:
    """Nothing of a delivery may be lost."""
    added, made = await put(store, SHOWN | more)
    assert await count_rows(store, added) == 1
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {added.id: made}


async def test_they_stay_when_the_user_reads_and_dismisses(store: PipelineStore) -> None:
    added, made = await put(store, SHOWN, DROPPED)
    inboxes = SqlInboxes(store.engine)
    for action in (InboxAction.READ, InboxAction.DISMISS):
        assert await inboxes.apply(action, store.app_id, "ana", added.id, NOW + 9)
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {added.id: made}


async def test_a_report_does_not_change_them(store: PipelineStore) -> None:
    added, made = await put(store, SHOWN, DROPPED)
    reported = (store.app_id, added.id, Channel.PUSH)
    reports = SqlDeliveryReports(store.engine)
    assert not await reports.confirm(*reported, since=0, now=NOW + 1)
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {added.id: made}


async def test_a_notification_without_rows_is_found_alone_and_when_it_is_old(
    store: PipelineStore,
) -> None:
    added, _ = await put(
        store, SHOWN, DROPPED, id=f"{first_id_of(NOW)}-7000-8000-{uuid4().hex[:12]}"
    )
    assert await store.notifications.get(store.app_id, added.id) is not None
    assert await store.notifications.get(new_app_id(), added.id) is None
    found = await find_old(store.engine, NOW + 1, 1_000)
    assert added.id in found[store.app_id, "ana"]
    await SqlInboxes(store.engine).forget(store.app_id, "ana", [added.id])
    assert (store.app_id, "ana") not in await find_old(store.engine, NOW + 1, 1_000)
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {}


async def test_analytics_count_them_as_the_others(store: PipelineStore) -> None:
    shown = SHOWN | {"reason": ReasonCode.MANDATORY}
    id_ = f"{first_id_of(NOW)}-7000-8000-{uuid4().hex[:12]}"
    added, _ = await put(store, shown, DROPPED, QUEUED, id=id_)
    fetch, at = store.engine.fetch_in_background, NOW
    found = await count_all(fetch, at, at + 1)

    def count(metric: Metric, channel: str = "", label: str = "") -> int:
        return found[Cell(store.app_id, metric, added.type, channel, label=label)]

    assert count(Metric.NOTIFICATIONS) == 1
    # Who was sent something was allowed to get it.
    assert count(Metric.DECISIONS, "in_app", "allowed") == 1
    assert count(Metric.DECISIONS, "push", "no_device") == 1
    assert count(Metric.DECISIONS, "email", "allowed") == 1
    assert count(Metric.DELIVERIES, "in_app", "sent") == 1
    assert count(Metric.DELIVERIES, "in_app", "delivered") == 1
    assert count(Metric.DELIVERIES, "push", "sent") == 0
