"""Events that are decided before they are stored, while workers run: one commit, and exact."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clarion.catalog.model import Channel
from clarion.catalog.sql import Templates, Types
from clarion.errors import Conflict
from clarion.events.ledger import LOST_LIMIT
from clarion.events.model import Event, EventStatus, JobOutcome, LimitClaim
from clarion.events.pipeline import Pipeline
from clarion.events.sql.ledger import SqlLedger
from clarion.history.model import DeliveryStatus
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.sql import Users
from clarion.store.engine import Engine
from clarion.store.statement import Unit
from tests.contract.test_pipeline_nodes import check, on_nodes, set_up
from tests.factories import (
    NOW,
    FixedClock,
    make_once,
    make_template,
    make_type,
    make_user,
    new_app_id,
)
from tests.inbox import list_inbox
from tests.pipeline import (
    PipelineStore,
    build_pipeline,
    make_delivery,
    make_event,
    make_job,
    make_notification,
)

LATER = NOW + 7


def _is_free(pipeline: Pipeline, app_id: str) -> bool:
    return pipeline.workers[0].pool.turns.is_free(app_id)


@asynccontextmanager
async def working(app_id: str, *pipelines: Pipeline) -> AsyncIterator[None]:
    """Let the workers run, from when they are free."""
    loops = [
        asyncio.ensure_future(run()) for each in pipelines for run in each.worker_loops().values()
    ]
    async with asyncio.timeout(30):
        while not all(_is_free(each, app_id) for each in pipelines):  # noqa: ASYNC110 - no signal
            await asyncio.sleep(0)
    yield
    for each in pipelines:
        each.stop()
    await asyncio.gather(*loops)


async def prepare(engine: Engine, app_id: str, *, body: str) -> Event:
    """Create a user and a type with this text, and return an event of it."""
    await Users(engine).put(make_user("ana", app_id=app_id))
    await Types(engine).put(app_id, make_type("PLAIN"), NOW)
    template = make_template("PLAIN", channel=Channel.IN_APP, body=body, subject=None)
    await Templates(engine).put(app_id, template)
    return make_event(app_id, type="PLAIN")


class CountedCommits:
    """An engine that notes the names of the statements of each unit."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.units: list[list[str]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def write(self, unit: Unit) -> object:
        self.units.append([step.statement.name for step in unit.steps])
        return await self._engine.write(unit)


async def test_an_event_and_its_outcome_are_one_commit_without_a_job(engine: Engine) -> None:
    app_id = new_app_id()
    event = await prepare(engine, app_id, body="hello")
    counted = CountedCommits(engine)
    pipeline = build_pipeline(counted, FixedClock(), {})  # type: ignore[arg-type]
    async with working(app_id, pipeline):
        assert await pipeline.intake.accept([event]) is None
        (unit,) = counted.units
    assert "add_event" in unit
    assert "add_shown_notification" in unit
    assert "add_job" not in unit
    stored = await PipelineStore(engine, app_id).events.get(app_id, event.id)
    assert stored is not None
    assert (stored.status, stored.remaining, stored.notification_count) == (
        EventStatus.COMPLETED,
        0,
        1,
    )
    shown = await list_inbox(engine, app_id, "ana")
    assert [each.event_id for each in shown] == [event.id]
    assert await SqlLedger(engine).find_lost(NOW - 1, NOW + 1, LOST_LIMIT) == frozenset()


async def test_what_needs_the_sandbox_is_left_to_the_workers(engine: Engine) -> None:
    app_id = new_app_id()
    event = await prepare(engine, app_id, body="{{ count | plus: 1 }}")
    counted = CountedCommits(engine)
    pipeline = build_pipeline(counted, FixedClock(), {})  # type: ignore[arg-type]
    async with working(app_id, pipeline):
        assert await pipeline.intake.accept([event]) is None
        assert counted.units == [["add_event", "add_job"]]
        await pipeline.settle(0.002)
    stored = await PipelineStore(engine, app_id).events.get(app_id, event.id)
    assert stored is not None
    assert stored.status is EventStatus.COMPLETED


async def test_two_nodes_count_and_limit_exactly_what_comes_at_the_same_time(
    engine: Engine, other_node: Engine
) -> None:
    """Claims and counts that lose against others are decided again by a worker."""
    app_id, clock = new_app_id(), FixedClock()
    events = await set_up(engine, app_id)
    nodes = on_nodes(engine, other_node, clock)
    async with working(app_id, *nodes):
        accepted = (nodes[n % 2].intake.accept([each]) for n, each in enumerate(events))
        assert Counter(await asyncio.gather(*accepted)) == {None: len(events)}
        for each in nodes:
            await each.settle(0.002)
    await check(engine, app_id)


async def test_a_repeated_request_gets_the_response_to_the_first(engine: Engine) -> None:
    app_id = new_app_id()
    event = await prepare(engine, app_id, body="hello")
    repeat, once = make_event(app_id, type="PLAIN"), make_once(app_id)
    pipeline = build_pipeline(engine, FixedClock(), {})
    async with working(app_id, pipeline):
        assert await pipeline.intake.accept([event], once) is None
        replay = await pipeline.intake.accept([repeat], once)
    assert replay is not None
    assert replay.answer == once.answer
    assert await PipelineStore(engine, app_id).events.get(app_id, repeat.id) is None
    assert (await SqlInboxes(engine).state(app_id, "ana")).unread_count == 1


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


def decide(event: Event, **changes: object) -> JobOutcome:
    notification = make_notification(event)
    values = {
        "job": make_job(event),
        "final_status": EventStatus.COMPLETED,
        "notification": notification,
        "deliveries": (make_delivery(notification, status=DeliveryStatus.DELIVERED),),
    }
    return JobOutcome(**values | changes)  # type: ignore[arg-type]


async def test_a_decided_event_is_stored_as_if_it_had_been_decided_later(
    store: PipelineStore,
) -> None:
    later, job = await store.claimed(trace="x")
    await store.write(decide(later, job=job), now=LATER)
    event = make_event(store.app_id, trace="x")
    assert await store.events.accept_decided(event, decide(event), None, LATER) is True
    first = await store.events.get(store.app_id, later.id)
    second = await store.events.get(store.app_id, event.id)
    assert first is not None
    assert second is not None
    names = ("status", "remaining", "notification_count", "created_at", "updated_at", "trace")
    assert [getattr(second, name) for name in names] == [getattr(first, name) for name in names]
    assert await store.claim(LATER) == []


async def test_a_claim_that_fails_stores_nothing(store: PipelineStore) -> None:
    claim = (LimitClaim(id="ana", limit=1, expires_at=LATER),)
    first, second = make_event(store.app_id), make_event(store.app_id)
    accept = store.events.accept_decided
    assert await accept(first, decide(first, limit_claims=claim), None, NOW) is True
    once = make_once(store.app_id)
    assert await accept(second, decide(second, limit_claims=claim), once, NOW) is False
    assert await store.events.get(store.app_id, second.id) is None
    assert await store.events.find_response(once) is None
    with pytest.raises(Conflict):
        await accept(first, decide(first), None, NOW)
    assert (await SqlInboxes(store.engine).state(store.app_id, "ana")).unread_count == 1
