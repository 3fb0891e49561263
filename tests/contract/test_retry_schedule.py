"""T36: the whole schedule of retries of a channel in virtual time, with a restart in each gap."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest

from clarion.catalog.model import Channel
from clarion.catalog.sql import Templates, Types
from clarion.channels.model import (
    BUSY,
    DAILY_CAP,
    Delivered,
    NotTried,
    Outcome,
    OutgoingMessage,
    Retry,
)
from clarion.clock import Clock
from clarion.events.drafts import EventDraft
from clarion.events.model import EventStatus
from clarion.events.outcome_writer import TRIES
from clarion.events.pipeline import Pipeline
from clarion.events.schedules import SPREAD, WAITS_S
from clarion.events.status import summarize
from clarion.history.model import Delivery, DeliveryStatus, NotificationStatus, ReasonCode
from clarion.people.model import Preferences
from clarion.people.sql import Users
from clarion.store.engine import Engine
from clarion.store.statement import statement
from tests.factories import NOW, FixedClock, make_template, make_type, make_user, new_app_id
from tests.pipeline import FixedChannels, build_pipeline, drain, finish_sending

CHANNELS = [Channel.EMAIL, Channel.SMS, Channel.WEBHOOK]
SELECT_DUE = statement(
    "select_due_delivery", "SELECT due_at FROM jobs WHERE app_id = :app_id AND lane >= 0"
)


@dataclass
class Failing:
    """The `Sender` port: fails until it is told to deliver; records when it was tried."""

    clock: FixedClock
    delivers_at: int = 1_000
    retry_after_s: float | None = None
    times: list[int] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    skips: str = ""  # the code of why no attempt is made

    async def send(self, message: OutgoingMessage) -> Outcome:
        if self.skips:
            return NotTried(error_code=self.skips, error_message="not now", after_s=20.0)
        self.times.append(self.clock.now())
        self.ids.add(message.id)
        if len(self.times) >= self.delivers_at:
            return Delivered()
        return Retry(error_code="503", error_message="not now", after_s=self.retry_after_s)

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """One event for one user, over one channel whose provider fails."""

    def __init__(self, engine: Engine, channel: Channel, **changes: object) -> None:
        self.engine, self.channel, self.app_id = engine, channel, new_app_id()
        self.clock = FixedClock(NOW)
        self.time: Clock = self.clock
        self.sender = Failing(self.clock, **changes)  # type: ignore[arg-type]
        self.event_id = ""
        self.pipeline = self.restart()

    def restart(self) -> Pipeline:
        """Return a pipeline as after a start of the server."""
        return build_pipeline(self.engine, self.time, {self.channel: self.sender})

    async def begin(self) -> None:
        quiet = Preferences(quiet_hours=(False,) * 24, types={"SHIPPED": {Channel.SMS: True}})
        user = make_user(
            "ana", app_id=self.app_id, email="a@example.com", phone="+491", preferences=quiet
        )
        await Users(self.engine).put(user)
        definition = make_type("SHIPPED", default_channels=(self.channel,))
        await Types(self.engine).put(self.app_id, definition, NOW)
        template = make_template(
            "SHIPPED", channel=self.channel, body="x", subject="s", variables=()
        )
        await Templates(self.engine).put(self.app_id, template)
        draft = msgspec.convert({"type": "SHIPPED", "recipient": {"user_id": "ana"}}, EventDraft)
        event = await self.pipeline.intake.prepare(self.app_id, draft)
        self.event_id = event.id
        await self.pipeline.intake.accept([event])

    async def run(self, until: int | None = None) -> None:
        """Let time pass to each due time, and start the server anew there, until nothing is due."""
        while True:
            await drain(self.pipeline)
            await finish_sending()
            await asyncio.sleep(0)
            rows = await self.engine.fetch(SELECT_DUE, app_id=self.app_id)
            if not rows or (until is not None and int(rows[0][0]) >= until):
                return
            self.clock.milliseconds = max(self.clock.now(), int(rows[0][0]))
            self.pipeline = self.restart()

    async def find(self) -> Delivery:
        ports = self.pipeline.explainer.cases.ports
        page = await ports.notifications.list_of_event(
            self.app_id, self.event_id, after=None, limit=1
        )
        found = await ports.deliveries.find_many(self.app_id, [page.items[0].id])
        return found[page.items[0].id][0]

    @property
    def gaps_s(self) -> list[float]:
        return [(after - before) / 1000 for before, after in pairwise(self.sender.times)]


@pytest.mark.parametrize("channel", CHANNELS)
async def test_attempts_come_at_their_times_and_then_it_is_a_dead_letter(
    engine: Engine, channel: Channel
) -> None:
    world = World(engine, channel)
    await world.begin()
    await world.run()
    waits = WAITS_S[channel]
    assert len(world.gaps_s) == len(waits)
    for gap, wait in zip(world.gaps_s, waits, strict=True):
        assert wait <= gap <= wait * (1 + SPREAD) + 0.01
    delivery = await world.find()
    assert (delivery.status, delivery.reason) == (
        DeliveryStatus.FAILED,
        ReasonCode.ATTEMPTS_EXHAUSTED,
    )
    assert (delivery.attempt_count, len(world.sender.ids)) == (len(waits) + 1, 1)
    channels = world.pipeline.explainer.cases.ports.channels
    assert isinstance(channels, FixedChannels)
    assert [name for name, _ in channels.disabled] == ["main"] * (channel is Channel.WEBHOOK)


@pytest.mark.parametrize("channel", CHANNELS)
async def test_the_last_attempt_can_succeed(engine: Engine, channel: Channel) -> None:
    world = World(engine, channel, delivers_at=len(WAITS_S[channel]) + 1)
    await world.begin()
    await world.run()
    assert (await world.find()).status is DeliveryStatus.DELIVERED


@pytest.mark.parametrize("tries", [0, 1])
async def test_a_text_that_cannot_be_rendered_any_more_ends_the_delivery(
    engine: Engine, tries: int
) -> None:
    world = World(engine, Channel.EMAIL)
    await world.begin()
    if tries:
        await world.run(until=NOW + 1)
    broken = make_template(
        "SHIPPED", channel=Channel.EMAIL, body="{{ 1 | divided_by: 0 }}", subject="s", variables=()
    )
    await Templates(engine).put(world.app_id, broken)
    world.pipeline = world.restart()
    await world.run()
    delivery = await world.find()
    assert (delivery.status, delivery.reason) == (
        DeliveryStatus.FAILED,
        ReasonCode.ATTEMPTS_EXHAUSTED,
    )
    assert summarize([delivery]) is NotificationStatus.FAILED
    assert len(world.sender.times) == delivery.attempt_count == tries
    event = await world.pipeline.explainer.cases.ports.events.get(world.app_id, world.event_id)
    assert event is not None
    assert (event.status, event.retry_count) == (EventStatus.FAILED, TRIES)
    assert event.last_error is not None
    assert event.last_error.startswith("body: cannot be rendered")


async def test_the_time_that_a_provider_asks_for_is_kept(engine: Engine) -> None:
    world = World(engine, Channel.EMAIL, retry_after_s=120.0, delivers_at=3)
    await world.begin()
    await world.run()
    assert all(120 <= gap <= 121 for gap in world.gaps_s)
    assert len(world.gaps_s) == 2


@pytest.mark.parametrize("channel", CHANNELS)
async def test_short_times_asked_for_do_not_end_the_schedule_early(
    engine: Engine, channel: Channel
) -> None:
    """A webhook that asks for a second each time is not disabled before 75 hours have passed."""
    world = World(engine, channel, retry_after_s=1.0)
    await world.begin()
    await world.run()
    waits = WAITS_S[channel]
    assert all(1 <= gap <= 2.01 for gap in world.gaps_s[: len(waits)])
    assert sum(world.gaps_s) >= sum(waits)
    assert len(world.gaps_s) <= 2 * len(waits)
    assert (await world.find()).reason is ReasonCode.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize(
    ("code", "last"),
    [
        (BUSY, DeliveryStatus.DELIVERED),
        (DAILY_CAP, DeliveryStatus.DELIVERED),
        ("circuit_open", DeliveryStatus.FAILED),
    ],
)
async def test_what_could_not_be_tried_is_no_failed_try(
    engine: Engine, code: str, last: DeliveryStatus
) -> None:
    """It waits for its turn, however long; for a provider that fails as long as the schedule."""
    world = World(engine, Channel.SMS, skips=code)
    await world.begin()
    until = NOW + int(sum(WAITS_S[Channel.SMS]) * 1000)
    await world.run(until)
    delivery = await world.find()
    assert (delivery.status, delivery.attempt_count) == (DeliveryStatus.QUEUED, 0)
    world.clock.milliseconds = until
    await world.run(until + 400_000)
    world.sender.skips, world.sender.delivers_at = "", 0
    await world.run()
    assert (await world.find()).status is last
