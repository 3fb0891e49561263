"""The contract of `Tally` and `Analytics`: everything counts once, at the time it happened."""

import asyncio
from collections import Counter
from itertools import count
from typing import Any

import pytest

from clarion.access.sql import Apps
from clarion.analytics.model import HOUR_MS, Cell, Interval, Metric, Progress, Query
from clarion.analytics.model import Dimension as By
from clarion.analytics.rollup import LAG_MS, PARTS, SETTLE_MS, Rollup
from clarion.analytics.sql.aggregates import Analytics, SqlTally
from clarion.catalog.model import Channel
from clarion.clock import first_id_of
from clarion.events.model import JobOutcome
from clarion.history.model import (
    Attempt,
    Delivery,
    DeliveryStatus,
    Notification,
    PastDecision,
    ReasonCode,
)
from clarion.history.sql.deliveries import SqlDeliveryReports
from clarion.inbox.model import InboxAction
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.push.model import MessageStatus, Platform
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlMessages
from clarion.store.engine import Engine
from tests.contract.conftest import Reopen
from tests.factories import (
    DAY,
    MINUTE,
    NOW,
    make_app,
    make_device,
    make_message,
    make_provider_key,
)
from tests.pipeline import PipelineStore, make_delivery, make_notification
from tests.replacing import replace

SECOND = 1_000
_numbers = count(1)


def id_at(moment: int) -> str:
    """Return an id that was made at this time."""
    return f"{first_id_of(moment)}-7000-8000-{next(_numbers):012x}"


class Day:
    """An app whose day is counted."""

    def __init__(self, engine: Engine, app_id: str) -> None:
        self.engine = engine
        self.app_id = app_id
        self.store = PipelineStore(engine, app_id)
        self.inboxes = SqlInboxes(engine)
        self.rollup = Rollup(SqlTally(engine), 1)
        self.analytics = Analytics(engine)

    async def notify(
        self, at: int, *deliveries: dict[str, Any], attempts: tuple[Attempt, ...] = ()
    ) -> Notification:
        """Store an event and what came of it, all at one time."""
        event = await self.store.accept(id=id_at(at), created_at=at)
        (job,) = await self.store.claim(max(at, NOW))
        made = make_notification(event, id=id_at(at), created_at=at)
        some = [self.delivery(made, at, **each) for each in deliveries or ({},)]
        outcome = JobOutcome(job=job, notification=made, deliveries=tuple(some), attempts=attempts)
        assert await self.store.write(outcome, now=at) == [True]
        return made

    def delivery(self, made: Notification, at: int, **changes: Any) -> Delivery:
        in_app = {
            "channel": Channel.IN_APP,
            "status": DeliveryStatus.DELIVERED,
            "sent_at": at,
            "delivered_at": at,
        }
        return make_delivery(made, **{"decided_at": at} | (changes or in_app))

    async def put(self, delivery: Delivery) -> None:
        """Store a later state of a delivery, as the worker does that sends it."""
        event = await self.store.accept(id=id_at(NOW - DAY), created_at=NOW - DAY)
        (job,) = [each for each in await self.store.claim() if each.event_id == event.id]
        assert await self.store.write(JobOutcome(job=job, deliveries=(delivery,))) == [True]

    async def act(self, made: Notification, action: InboxAction, at: int) -> None:
        await self.inboxes.apply(action, self.app_id, "ana", made.id, at)

    async def run(self, now: int) -> None:
        """Count all that there is to count by this time."""
        while await self.rollup.step(now):
            pass

    async def read(
        self, metric: Metric, *group_by: By, interval: Interval = Interval.DAY, **changes: Any
    ) -> Counter[tuple[str, ...]]:
        """Return the counts of the day by what they are of, without empty values."""
        query = Query(
            app_id=self.app_id,
            metric=metric,
            interval=interval,
            since=NOW,
            until=NOW + DAY,
            group_by=frozenset(group_by),
        )
        counts: Counter[tuple[str, ...]] = Counter()
        for _, *key, value in await self.analytics.read(replace(query, **changes), 1_000):
            counts[tuple(each for each in key if each)] += value
        return counts

    async def times(self, metric: Metric, interval: Interval = Interval.MINUTE) -> dict[int, int]:
        """Return the counts by how long after the beginning of the day they are."""
        query = Query(
            app_id=self.app_id, metric=metric, interval=interval, since=NOW, until=NOW + 2 * DAY
        )
        return {each.at - NOW: each.value for each in await self.analytics.read(query, 1_000)}


@pytest.fixture
async def day(engine: Engine) -> Day:
    app = make_app()
    await Apps(engine).create(app, make_provider_key(app))
    await SqlTally(engine).start(NOW + HOUR_MS)
    return Day(engine, app.id)


async def test_before_anything_was_counted_there_is_nothing(engine: Engine) -> None:
    analytics = Analytics(engine)
    assert await analytics.get_progress() is None
    first = Progress(0, NOW - HOUR_MS, NOW - HOUR_MS)
    assert await SqlTally(engine).start(NOW + SECOND) == first
    assert await SqlTally(engine).start(NOW + DAY) == first


async def test_events_notifications_and_decisions_are_counted(day: Day) -> None:
    dropped = {"channel": Channel.SMS, "status": DeliveryStatus.DROPPED}
    held = {"channel": Channel.EMAIL, "status": DeliveryStatus.HELD}
    for _ in range(2):
        await day.notify(
            NOW + SECOND,
            {},
            {**dropped, "reason": ReasonCode.SMS_NOT_OPTED_IN},
            {**held, "reason": ReasonCode.QUIET_HOURS},
            {"channel": Channel.PUSH, "reason": ReasonCode.MANDATORY},
        )
    await day.run(NOW + MINUTE)
    assert await day.read(Metric.EVENTS, By.TYPE) == {("comment",): 2}
    assert await day.read(Metric.NOTIFICATIONS) == {(): 2}
    assert await day.read(Metric.DECISIONS, By.CHANNEL, By.REASON) == {
        ("in_app", "allowed"): 2,
        ("sms", "sms_not_opted_in"): 2,
        ("email", "quiet_hours"): 2,
        ("push", "allowed"): 2,
    }
    assert await day.read(Metric.DELIVERIES, By.CHANNEL, By.OUTCOME) == {
        ("in_app", "sent"): 2,
        ("in_app", "delivered"): 2,
    }
    assert await day.read(Metric.DELIVERY_LATENCY) == {}


async def test_the_first_decision_counts_whatever_was_decided_later(day: Day) -> None:
    past = PastDecision(NOW, DeliveryStatus.HELD, ReasonCode.QUIET_HOURS, "user")
    sent = PastDecision(NOW, DeliveryStatus.QUEUED, ReasonCode.MANDATORY, "type")
    failed = {"status": DeliveryStatus.FAILED, "sent_at": NOW + 1}
    await day.notify(NOW, {"past_decisions": (past, sent), "sent_at": NOW + 1})
    await day.notify(NOW, {"past_decisions": (sent,), "reason": ReasonCode.REJECTED, **failed})
    await day.notify(NOW, {"reason": ReasonCode.UNDELIVERED, **failed})
    await day.run(NOW + MINUTE)
    assert await day.read(Metric.DECISIONS, By.REASON) == {("quiet_hours",): 1, ("allowed",): 2}


async def test_a_delivery_counts_for_each_outcome_at_its_time(day: Day) -> None:
    made = await day.notify(NOW, {"channel": Channel.SMS})
    queued = day.delivery(made, NOW, channel=Channel.SMS)
    await day.run(NOW + MINUTE)
    await day.put(replace(queued, status=DeliveryStatus.SENT, sent_at=NOW + HOUR_MS))
    await day.run(NOW + 2 * HOUR_MS)
    reports = SqlDeliveryReports(day.engine)
    for at in (NOW + 3 * HOUR_MS, NOW + 4 * HOUR_MS):
        await reports.confirm(day.app_id, made.id, Channel.SMS, since=NOW, now=at)
    await day.run(NOW + 5 * HOUR_MS)
    assert await day.read(Metric.DELIVERIES, By.OUTCOME) == {("sent",): 1, ("delivered",): 1}
    assert set(await day.times(Metric.DELIVERIES)) == {HOUR_MS, 3 * HOUR_MS}
    assert await day.read(Metric.DELIVERY_LATENCY, By.BUCKET) == {("longer",): 1}


async def test_a_delivery_that_is_settled_again_keeps_its_first_time(day: Day) -> None:
    """Another device of the user is reached hours after the first."""
    made = await day.notify(NOW, {"channel": Channel.PUSH})
    delivered = {"channel": Channel.PUSH, "status": DeliveryStatus.DELIVERED, "sent_at": NOW + 1}
    for at in (NOW + 40, NOW + HOUR_MS):
        await day.put(day.delivery(made, NOW, **delivered, delivered_at=at))
        await day.run(at + MINUTE)
    assert await day.read(Metric.DELIVERIES, By.OUTCOME) == {("sent",): 1, ("delivered",): 1}
    assert await day.read(Metric.DELIVERY_LATENCY, By.BUCKET) == {("50",): 1}


@pytest.mark.parametrize("status", ["failed", "expired", "cancelled"])
async def test_what_was_not_successful_counts_when_that_was_decided(day: Day, status: str) -> None:
    made = await day.notify(NOW, {"channel": Channel.EMAIL})
    ended = day.delivery(made, NOW + HOUR_MS, channel=Channel.EMAIL, status=DeliveryStatus(status))
    await day.put(ended)
    await day.run(NOW + 2 * HOUR_MS)
    assert await day.times(Metric.DELIVERIES) == {HOUR_MS: 1}
    assert await day.read(Metric.DELIVERIES, By.OUTCOME) == {(status,): 1}


async def test_a_push_counts_for_the_platform_that_was_tried_first(day: Day) -> None:
    devices = [make_device(day.app_id, platform=each) for each in (Platform.IOS, Platform.WEB)]
    for device in devices:
        await Devices(day.engine).add(device)
    made_id = id_at(NOW)
    event = await day.store.accept(id=id_at(NOW), created_at=NOW)
    (job,) = await day.store.claim()
    made = make_notification(event, id=made_id, created_at=NOW)
    attempts = tuple(
        Attempt(
            notification_id=made_id,
            channel=Channel.PUSH,
            number=1,
            device_id=device.id,
            status="sent",
            attempted_at=NOW + later,
        )
        for later, device in enumerate(devices)
    )
    sent = day.delivery(made, NOW, channel=Channel.PUSH, sent_at=NOW, delivered_at=NOW + 300)
    outcome = JobOutcome(job=job, notification=made, deliveries=(sent,), attempts=attempts)
    await day.store.write(outcome)
    await day.run(NOW + MINUTE)
    expected = {("ios", "sent"): 1, ("ios", "delivered"): 1}
    assert await day.read(Metric.DELIVERIES, By.PLATFORM, By.OUTCOME) == expected
    assert await day.read(Metric.DELIVERIES, platform="web") == {}
    assert await day.read(Metric.DELIVERY_LATENCY, By.BUCKET) == {("500",): 1}


async def test_reads_dismissals_and_clicks_count_once_when_they_happen(day: Day) -> None:
    first, second = await day.notify(NOW), await day.notify(NOW)
    hours = range(1, 9)
    actions = [*[InboxAction.READ, InboxAction.UNREAD] * 2, *[InboxAction.CLICK] * 2]
    for hour, action in zip(hours, [*actions, *[InboxAction.DISMISS] * 2], strict=True):
        await day.act(first, action, NOW + hour * HOUR_MS)
        await day.run(NOW + hour * HOUR_MS + MINUTE)
    await day.inboxes.read_all(day.app_id, "ana", NOW + 9 * HOUR_MS)
    await day.run(NOW + 10 * HOUR_MS)
    assert await day.times(Metric.READS) == {HOUR_MS: 1, 9 * HOUR_MS: 1}
    assert await day.times(Metric.CLICKS) == {5 * HOUR_MS: 1}
    assert await day.times(Metric.DISMISSALS) == {7 * HOUR_MS: 1}
    assert await day.inboxes.get(day.app_id, "ana", second.id) is not None


async def test_messages_to_devices_are_counted_by_platform_and_outcome(day: Day) -> None:
    messages = SqlMessages(day.engine)
    device = make_device(day.app_id, platform=Platform.CLARION)
    await Devices(day.engine).add(device)
    made = [make_message(device.id, app_id=day.app_id, sequence=NOW * 1000 + n) for n in range(3)]
    for message in made:
        await messages.add(message, MessageStatus.QUEUED, None)
    await day.run(NOW + MINUTE)
    await messages.acknowledge([(device.id, each.id) for each in made[:2]], NOW + 2 * MINUTE)
    await messages.fail(device.id, made[2].id, NOW + 3 * MINUTE)
    await day.run(NOW + HOUR_MS)
    assert await day.read(Metric.MESSAGES, By.PLATFORM, By.OUTCOME) == {
        ("clarion", "accepted"): 3,
        ("clarion", "delivered"): 2,
        ("clarion", "failed"): 1,
    }
    assert await day.times(Metric.MESSAGES) == {0: 3, 2 * MINUTE: 2, 3 * MINUTE: 1}
    assert await day.read(Metric.MESSAGE_LATENCY, By.BUCKET) == {("300000",): 2}


async def test_minutes_hours_and_days_agree(day: Day) -> None:
    times = [0, 1, MINUTE - 1, MINUTE, HOUR_MS - 1, HOUR_MS, DAY - 1, DAY]
    for at in times:
        await day.notify(NOW + at)
    await day.run(NOW + DAY + 9 * MINUTE)
    for interval in Interval:
        expected = Counter(interval.begin(at) for at in times)
        assert await day.times(Metric.NOTIFICATIONS, interval) == expected


async def test_nothing_is_counted_before_it_can_be_committed(day: Day) -> None:
    await day.notify(NOW + SECOND)
    await day.run(NOW + SECOND + LAG_MS)
    assert await day.read(Metric.EVENTS) == {}
    await day.run(NOW + SECOND + LAG_MS + 1)
    assert await day.read(Metric.EVENTS) == {(): 1}


async def test_what_is_committed_late_is_added_once(day: Day) -> None:
    await day.notify(NOW + SECOND)
    await day.run(NOW + MINUTE)
    await day.notify(NOW + 2 * SECOND)
    await day.run(NOW + MINUTE + SETTLE_MS - 1)
    assert await day.read(Metric.EVENTS) == {(): 1}, "the minute is over, but not settled"
    for later in range(3):
        await day.run(NOW + MINUTE + SETTLE_MS + later * MINUTE)
        for interval in Interval:
            assert await day.read(Metric.EVENTS, interval=interval) == {(): 2}


async def test_what_changes_before_a_minute_is_settled_is_not_counted_again(day: Day) -> None:
    """The reason of a decision is gone when sending fails, and the platform with the device."""
    device = make_device(day.app_id)
    await Devices(day.engine).add(device)
    await SqlMessages(day.engine).add(
        make_message(device.id, app_id=day.app_id), MessageStatus.QUEUED, None
    )
    made = await day.notify(NOW, {"channel": Channel.SMS})
    await day.run(NOW + MINUTE)
    failed = {"status": DeliveryStatus.FAILED, "reason": ReasonCode.UNDELIVERED, "sent_at": NOW + 1}
    await day.put(day.delivery(made, NOW + MINUTE, channel=Channel.SMS, **failed))
    await Devices(day.engine).delete(day.app_id, device.id, NOW)
    await day.run(NOW + HOUR_MS)
    assert await day.read(Metric.DECISIONS, By.REASON) == {("allowed",): 1}
    counts = await day.read(Metric.MESSAGES, By.OUTCOME)
    assert counts["accepted",] == 1


async def test_a_clock_that_is_set_back_repeats_times_that_are_counted(day: Day) -> None:
    await day.notify(NOW + MINUTE)
    await day.run(NOW + HOUR_MS)
    await day.run(NOW + MINUTE)  # an hour back
    await day.notify(NOW + 2 * MINUTE)
    for minute in range(3, 90):
        await day.run(NOW + minute * MINUTE)
    assert await day.times(Metric.EVENTS) == {MINUTE: 1, 2 * MINUTE: 1}


async def test_two_nodes_count_everything_once(day: Day, other_node: Engine) -> None:
    other = Rollup(SqlTally(other_node), 1)
    for n in range(5):
        await day.notify(NOW + n * MINUTE)
        now = NOW + (n + 2) * MINUTE
        await asyncio.gather(*(each.step(now) for each in (day.rollup, other) * 3))
    await day.run(NOW + HOUR_MS)
    assert await day.times(Metric.EVENTS) == {n * MINUTE: 1 for n in range(5)}


async def test_who_comes_too_late_adds_nothing(day: Day) -> None:
    """What protects from counting twice: without the turn the second one would be added, too."""
    tally = SqlTally(day.engine)
    before = await tally.start(NOW)
    counts = {NOW: {Cell(day.app_id, Metric.EVENTS, "comment"): 1}}
    after = Progress(before.turn + 1, NOW + MINUTE, before.settled_until)
    assert await tally.add(before, after, counts)
    assert not await tally.add(before, after, counts)
    assert await day.read(Metric.EVENTS) == {(): 1}
    assert await tally.add(after, replace(after, turn=9), counts)
    assert await day.read(Metric.EVENTS) == {(): 2}


async def test_another_process_goes_on_where_one_ended(day: Day, reopen: Reopen) -> None:
    await day.notify(NOW)
    await day.run(NOW + MINUTE)
    async with reopen() as engine:
        again = Day(engine, day.app_id)
        await again.notify(NOW + MINUTE)
        await again.run(NOW + HOUR_MS)
        assert await again.times(Metric.EVENTS) == {0: 1, MINUTE: 1}


async def test_a_server_without_work_writes_once_a_minute(day: Day) -> None:
    for second in range(5, 60, 5):
        await day.run(NOW + second * SECOND)
    assert (await SqlTally(day.engine).start(NOW)).turn == 0
    await day.run(NOW + 2 * MINUTE)
    assert (await SqlTally(day.engine).start(NOW)).turn == 1


async def test_a_long_break_is_caught_up_with_in_few_steps(day: Day) -> None:
    at = NOW + 20 * DAY + MINUTE
    await day.notify(at)
    steps = 1
    while await day.rollup.step(at + DAY):
        steps += 1
    assert steps < 25 * 24 * HOUR_MS / (PARTS * HOUR_MS) + 5
    assert await day.read(Metric.EVENTS, since=NOW, until=at + DAY) == {(): 1}


async def test_a_step_after_a_busy_break_does_a_part(day: Day) -> None:
    for n in range(PARTS + 1):
        await day.notify(NOW + n * MINUTE)
    assert await day.rollup.step(NOW + HOUR_MS) == 1
    assert await day.read(Metric.EVENTS) == {(): PARTS}
    await day.run(NOW + HOUR_MS)
    assert await day.read(Metric.EVENTS) == {(): PARTS + 1}


async def test_another_app_has_counts_of_its_own(day: Day) -> None:
    await day.notify(NOW)
    await day.run(NOW + MINUTE)
    assert await day.read(Metric.EVENTS, app_id="other") == {}


async def test_counts_are_filtered_and_limited(day: Day) -> None:
    for n in range(3):
        await day.notify(NOW + n * MINUTE)
    await day.run(NOW + HOUR_MS)
    assert await day.read(Metric.EVENTS, type="comment") == {(): 3}
    assert await day.read(Metric.EVENTS, type="like") == {}
    assert await day.read(Metric.DELIVERIES, channel="push") == {}
    query = Query(
        app_id=day.app_id,
        metric=Metric.EVENTS,
        interval=Interval.MINUTE,
        since=NOW,
        until=NOW + DAY,
    )
    assert [each.at - NOW for each in await day.analytics.read(query, 2)] == [0, MINUTE]


async def test_old_counts_are_pruned_step_by_step(day: Day) -> None:
    for n in range(3):
        await day.notify(NOW + n * MINUTE)
    await day.run(NOW + HOUR_MS)
    while await day.analytics.prune(Interval.MINUTE, NOW + 2 * MINUTE, 3):
        pass
    assert await day.times(Metric.EVENTS) == {2 * MINUTE: 1}
    assert await day.times(Metric.EVENTS, Interval.HOUR) == {0: 3}
    assert await day.analytics.prune(Interval.HOUR, NOW, 100) == 0
