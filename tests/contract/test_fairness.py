"""Apps share the workers: one with a long queue does not delay what another app sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

import pytest

from clarion.catalog.model import Channel
from clarion.catalog.sql import Templates, Types
from clarion.channels.model import Delivered, Outcome, OutgoingMessage
from clarion.channels.stub import StubSender
from clarion.clock import SystemClock
from clarion.events.backlog import INTERVAL_S
from clarion.events.deliverer import LEAST_ROOM
from clarion.events.drafts import EventDraft, Recipient
from clarion.events.pipeline import Pipeline
from clarion.people.model import Preferences
from clarion.people.sql import Users
from clarion.store.engine import Engine
from clarion.store.statement import statement
from tests.factories import NOW, make_template, make_type, make_user, new_app_id
from tests.pipeline import build_pipeline, finish_sending

TYPE = make_type("PLAIN", default_channels=(Channel.IN_APP, Channel.STUB))
BROADCASTS, USERS, QUIET_APPS = 200, 500, 20
RUNS = 5
WAIT_LIMIT_S = 100.0
COUNT_STUB = statement(
    "count_stub_deliveries", "SELECT COUNT(*) FROM jobs WHERE subject LIKE 'stub/%'"
)
# As many attempts as a provider runs for one app.
MANY = 1_000
COUNT_CLAIMED = statement(
    "count_claimed_deliveries",
    "SELECT COUNT(*) FROM jobs WHERE subject LIKE 'stub/%' AND token > 0",
)
# What all apps may commit while twenty wait three times for a commit: those of their events, of
# their notifications and of the claims of their deliveries. Without shares it is thousands.
UNITS_LIMIT = 400


class Deliveries(StubSender):
    """The stub provider; reports the first delivery to each app."""

    def __init__(self) -> None:
        self.delivered: dict[str, asyncio.Event] = {}

    async def send(self, message: OutgoingMessage) -> Outcome:
        self.delivered.setdefault(message.user.app_id, asyncio.Event()).set()
        return await super().send(message)


async def set_up(engine: Engine, app_id: str, users: int) -> None:
    await Types(engine).put(app_id, TYPE, NOW)
    for channel in (Channel.IN_APP, Channel.EMAIL):
        template = make_template(
            TYPE.type, channel=channel, body="text", subject="subject", variables=()
        )
        await Templates(engine).put(app_id, template)
    people = [
        make_user(
            f"user-{n}",
            app_id=app_id,
            email=f"user-{n}@example.com",
            attributes={"stub": "delivered"},
            preferences=Preferences(quiet_hours=(False,) * 24),
        )
        for n in range(users)
    ]
    await asyncio.gather(*(Users(engine).put(each) for each in people))


@asynccontextmanager
async def running(pipeline: Pipeline) -> AsyncIterator[None]:
    loops = [
        asyncio.ensure_future(each())
        for each in (pipeline.backlog.watch, *pipeline.worker_loops().values())
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)


async def send(
    pipeline: Pipeline, app_id: str, recipient: Recipient, channels: list[Channel] | None = None
) -> None:
    draft = EventDraft(type=TYPE.type, recipient=recipient, channels=channels)
    await pipeline.intake.accept([await pipeline.intake.prepare(app_id, draft)])


async def count_units(
    engine: Engine, pipeline: Pipeline, provider: Deliveries, app_ids: list[str]
) -> int:
    """Return what is committed from an event of each app for one user to the last delivery."""
    provider.delivered |= {app_id: asyncio.Event() for app_id in app_ids}
    before = engine.commit.units
    async with asyncio.timeout(WAIT_LIMIT_S):
        to = Recipient(user_id="user-0")
        await asyncio.gather(*(send(pipeline, app_id, to) for app_id in app_ids))
        for app_id in app_ids:
            await provider.delivered[app_id].wait()
    return engine.commit.units - before


async def test_a_noisy_app_does_not_delay_quiet_ones(engine: Engine) -> None:
    """T34 in small: broadcasts to all users of one app, and single events of twenty others.

    Counted in work, not in seconds, so that it does not matter how busy the machine is.
    """
    noisy, *quiet = [new_app_id() for _ in range(1 + QUIET_APPS)]
    await set_up(engine, noisy, USERS)
    for app_id in quiet:
        await set_up(engine, app_id, 1)
    provider = Deliveries()
    pipeline = build_pipeline(engine, SystemClock(), {Channel.STUB: provider})
    async with running(pipeline):
        draft = EventDraft(type=TYPE.type, recipient=Recipient(all=True))
        events = [await pipeline.intake.prepare(noisy, draft) for _ in range(BROADCASTS)]
        await pipeline.intake.accept(events)
        counts = [await count_units(engine, pipeline, provider, quiet) for _ in range(RUNS)]
        assert noisy in provider.delivered  # it is at work all the time
    assert median(counts) < UNITS_LIMIT, counts


class Hanging:
    """A provider that does not answer until the test ends."""

    name = "hanging"

    def __init__(self) -> None:
        self.under_way = 0
        self.has_any = asyncio.Event()
        self.has_many = asyncio.Event()
        self.is_over = asyncio.Event()

    async def close(self) -> None:
        """Nothing is open."""

    async def send(self, _message: OutgoingMessage) -> Outcome:
        self.under_way += 1
        self.has_any.set()
        if self.under_way >= MANY - LEAST_ROOM:
            self.has_many.set()
        await self.is_over.wait()
        return Delivered()


class Quick(Hanging):
    """A provider that answers at once."""

    async def send(self, _message: OutgoingMessage) -> Outcome:
        self.has_many.set()
        return Delivered()


async def test_a_provider_that_hangs_does_not_delay_the_others(engine: Engine) -> None:
    """Of its deliveries only those are claimed that can be started."""
    app_id = new_app_id()
    await set_up(engine, app_id, 2)
    hanging, quick = Hanging(), Quick()
    pipeline = build_pipeline(engine, SystemClock(), {Channel.STUB: hanging, Channel.EMAIL: quick})
    async with running(pipeline), asyncio.timeout(WAIT_LIMIT_S):
        draft = EventDraft(
            type=TYPE.type, recipient=Recipient(user_id="user-0"), channels=[Channel.STUB]
        )
        for _ in range(3):
            events = [await pipeline.intake.prepare(app_id, draft) for _ in range(MANY // 2)]
            await pipeline.intake.accept(events)
        await hanging.has_many.wait()
        await send(pipeline, app_id, Recipient(user_id="user-1"), [Channel.EMAIL])
        await quick.has_many.wait()
        claimed = (await engine.fetch(COUNT_CLAIMED))[0][0]
        hanging.is_over.set()
    await finish_sending()
    assert claimed <= MANY


@pytest.mark.parametrize("step_ms", [61_000, -61_000])
async def test_a_step_of_the_clock_sends_nothing_twice_and_delays_nothing(
    engine: Engine, step_ms: int
) -> None:
    """A delivery is under way when the clock is set, and another is queued before and after."""
    app_id, clock = new_app_id(), SteppingClock()
    await set_up(engine, app_id, 2)
    hanging, quick = Hanging(), Quick()
    pipeline = build_pipeline(engine, clock, {Channel.STUB: hanging, Channel.EMAIL: quick})
    async with asyncio.timeout(WAIT_LIMIT_S):
        async with running(pipeline):
            await send(pipeline, app_id, Recipient(user_id="user-0"), [Channel.STUB])
            await hanging.has_any.wait()
            clock.step_ms = step_ms
            await send(pipeline, app_id, Recipient(user_id="user-1"), [Channel.EMAIL])
            await quick.has_many.wait()
            await asyncio.sleep(6 * INTERVAL_S)
            hanging.is_over.set()
            await finish_sending()
        left = (await engine.fetch(COUNT_STUB))[0][0]
    assert (hanging.under_way, left) == (1, 0)


class SteppingClock(SystemClock):
    """The system's clock, set forward or back."""

    step_ms = 0

    def now(self) -> int:
        return super().now() + self.step_ms
