"""The `Deliveries` and `NotificationReader` ports."""

from typing import Any

import pytest

from clarion.catalog.model import Channel
from clarion.events.model import DedupeClaim, EarlierNotification, JobOutcome
from clarion.history.model import (
    Attempt,
    Delivery,
    DeliveryStatus,
    Notification,
    PastDecision,
    ReasonCode,
)
from clarion.inbox.model import InboxAction
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.store.engine import Engine
from tests.factories import DAY, NOW, new_app_id
from tests.pipeline import PipelineStore, make_delivery, make_notification
from tests.replacing import replace


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


async def put(
    store: PipelineStore,
    *deliveries: dict[str, Any],
    attempts: tuple[int, ...] = (),
    **changes: Any,
) -> tuple[Notification, tuple[Delivery, ...]]:
    """Store a notification with deliveries and attempts."""
    event, job = await store.claimed()
    added = make_notification(event, **changes)
    made = tuple(make_delivery(added, **each) for each in deliveries)
    tries = tuple(
        Attempt(
            notification_id=added.id,
            channel=Channel.STUB,
            number=number,
            device_id="",
            status="retry",
            provider_response="später",
            error_code="try_later",
            error_message="x",
            attempted_at=NOW + number,
        )
        for number in attempts
    )
    assert await store.write(
        JobOutcome(job=job, notification=added, deliveries=made, attempts=tries)
    ) == [True]
    return added, made


async def test_deliveries_are_read_back_unchanged(store: PipelineStore) -> None:
    full = {
        "channel": Channel.IN_APP,
        "status": DeliveryStatus.HELD,
        "reason": ReasonCode.QUIET_HOURS,
        "rule": "quiet_hours",
        "until": NOW + 9,
        "past_decisions": (
            PastDecision(NOW, DeliveryStatus.COLLECTED, ReasonCode.JOINS_DIGEST, "digest", NOW + 1),
        ),
        "digest": "digest",
        "count": 7,
        "attempt_count": 3,
        "provider": "stub",
        "sent_at": NOW + 1,
        "delivered_at": NOW + 2,
        "last_attempt_at": NOW + 3,
        "error_code": "code",
        "error_message": "nächstes Mal",
    }
    one, ones = await put(store, full, {})
    two, twos = await put(store, {})
    found = await store.deliveries.find_many(store.app_id, [one.id, two.id, "x"])
    assert found == {one.id: ones, two.id: twos}
    assert await store.deliveries.find_many(new_app_id(), [one.id]) == {}


async def test_a_delivery_can_be_replaced(store: PipelineStore) -> None:
    added, (delivery,) = await put(store, {"status": DeliveryStatus.HELD, "until": NOW + 1})
    replaced = replace(delivery, status=DeliveryStatus.DELIVERED, until=None, delivered_at=NOW + 2)
    _, job = await store.claimed()
    await store.write(JobOutcome(job=job, deliveries=(replaced,)))
    assert await store.deliveries.find_many(store.app_id, [added.id]) == {added.id: (replaced,)}
    assert await store.deliveries.list_waiting(store.app_id, "ana", after=None, limit=9) == ()


async def test_attempts_are_listed_in_order_and_once(store: PipelineStore) -> None:
    added, _ = await put(store, {}, attempts=(2, 1, 2))
    found = await store.deliveries.list_attempts(added.id)
    assert [each.number for each in found] == [1, 2]
    assert (found[0].provider_response, found[0].attempted_at) == ("später", NOW + 1)
    assert await store.deliveries.list_attempts("x") == ()


async def test_of_many_attempts_the_newest_are_shown_and_all_count(store: PipelineStore) -> None:
    """A device that got the message at the first attempt is known at the last one, too."""
    added, (delivery,) = await put(store, {}, attempts=tuple(range(1, 1_006)))
    shown = await store.deliveries.list_attempts(added.id)
    assert [each.number for each in shown] == list(range(6, 1_006))
    known = await store.deliveries.list_attempts_of_channel(added.id, delivery.channel)
    assert [each.number for each in known] == list(range(1, 1_006))
    assert await store.deliveries.list_attempts_of_channel(added.id, Channel.SMS) == ()


async def test_all_notifications_are_listed_from_the_newest_event_on(
    store: PipelineStore,
) -> None:
    made = [(await put(store, {}, user_id=each))[0] for each in ("ana", "ben", "ana", "eva")]
    other = PipelineStore(store.engine, new_app_id())
    await put(other, {})
    ids = [each.id for each in made]
    read = store.notifications
    first = await read.list_newest(store.app_id, before=None, limit=3)
    assert [each.id for each in first] == [ids[3], ids[2], ids[1]]
    before = (first[-1].event_id, first[-1].id)
    rest = await read.list_newest(store.app_id, before=before, limit=9)
    assert [each.id for each in rest] == [ids[0]]
    own = await read.list_newest_of_user(store.app_id, "ana", before=None, limit=9)
    assert [each.id for each in own] == [ids[2], ids[0]]
    own = await read.list_newest_of_user(store.app_id, "ana", before=ids[2], limit=9)
    assert [each.id for each in own] == [ids[0]]


async def test_notifications_with_a_failed_delivery_are_listed_once(store: PipelineStore) -> None:
    failed = {"status": DeliveryStatus.FAILED}
    one, _ = await put(store, failed | {"channel": Channel.EMAIL}, failed)
    await put(store, {})
    two, _ = await put(store, failed, {"channel": Channel.EMAIL}, user_id="ben")

    async def list_ids(before: str | None, limit: int, app_id: str = store.app_id) -> list[str]:
        found = await store.notifications.list_newest_failed(app_id, before=before, limit=limit)
        return [each.id for each in found]

    assert await list_ids(None, 9) == [two.id, one.id]
    assert await list_ids(None, 1) == [two.id]
    assert await list_ids(two.id, 9) == [one.id]
    assert await list_ids(None, 9, new_app_id()) == []


async def test_what_is_collected_is_found_newest_first(store: PipelineStore) -> None:
    collected = {"status": DeliveryStatus.COLLECTED, "digest": "d"}
    made = [(await put(store, collected))[1][0] for _ in range(3)]
    await put(store, collected | {"digest": "other"})
    await put(store, collected | {"status": DeliveryStatus.FOLDED})
    await put(store, collected | {"user_id": "bo"})
    assert await store.deliveries.list_collected(store.app_id, "ana", "d", 9) == tuple(made[::-1])
    assert await store.deliveries.list_collected(store.app_id, "ana", "d", 2) == tuple(made[:0:-1])
    assert await store.deliveries.list_collected(new_app_id(), "ana", "d", 9) == ()


async def test_what_waits_for_a_user_is_listed_in_pages(store: PipelineStore) -> None:
    made = [
        (await put(store, {"status": status}))[1][0]
        for status in (DeliveryStatus.HELD, DeliveryStatus.COLLECTED, DeliveryStatus.HELD)
    ]
    await put(store, {"status": DeliveryStatus.DELIVERED})
    await put(store, {"status": DeliveryStatus.HELD, "user_id": "bo"})
    page = await store.deliveries.list_waiting(store.app_id, "ana", after=None, limit=2)
    rest = await store.deliveries.list_waiting(
        store.app_id, "ana", after=page[-1].notification_id, limit=2
    )
    assert (*page, *rest) == tuple(made)


async def hold_key(
    store: PipelineStore, expires_at: int = NOW + DAY, **changes: Any
) -> Notification:
    event, job = await store.claimed()
    added = make_notification(event, **changes)
    claim = DedupeClaim(
        id="key", notification_id=added.id, expected_holder=None, expires_at=expires_at
    )
    assert await store.write(JobOutcome(job=job, notification=added, dedupe_claim=claim)) == [True]
    return added


async def test_the_holder_of_a_key_is_found_within_its_window(store: PipelineStore) -> None:
    added = await hold_key(store, expires_at=NOW + 5, count=3)
    earlier = EarlierNotification(notification_id=added.id, count=3, is_unread=True)
    assert await store.claims.find_earlier(store.app_id, ["key", "x"], NOW + 4) == {"key": earlier}
    assert await store.claims.find_earlier(store.app_id, ["key"], NOW + 5) == {}
    assert await store.claims.find_earlier(new_app_id(), ["key"], NOW) == {}


@pytest.mark.parametrize("act", ["read", "dismiss", "hidden"])
async def test_read_and_hidden_notifications_are_not_unread(
    engine: Engine, store: PipelineStore, act: str
) -> None:
    added = await hold_key(store, is_shown=act != "hidden")
    if act != "hidden":
        await SqlInboxes(engine).apply(InboxAction(act), store.app_id, "ana", added.id, NOW)
    earlier = await store.claims.find_earlier(store.app_id, ["key"], NOW)
    assert earlier["key"].is_unread is False


async def test_notifications_are_found_whether_shown_or_not(store: PipelineStore) -> None:
    one, _ = await put(store, {}, is_shown=False, folded_into="x", expires_at=NOW + 5)
    two, _ = await put(store, {})
    two = replace(two, sequence=1)
    found = await store.notifications.find_many(store.app_id, ["ana"], [one.id, two.id, "x"])
    assert found == {one.id: one, two.id: two}
    assert await store.notifications.find_many(store.app_id, ["bo"], [one.id]) == {}
    assert await store.notifications.find_many(new_app_id(), ["ana"], [one.id]) == {}
    assert await store.notifications.get(store.app_id, one.id) == one
    assert await store.notifications.get(store.app_id, two.id) == two
    assert await store.notifications.get(store.app_id, "x") is None
    assert await store.notifications.get(new_app_id(), one.id) is None


async def test_unused_limits_are_left_out(store: PipelineStore) -> None:
    assert await store.claims.find_limit_counts(store.app_id, ["a", "b"]) == {}
