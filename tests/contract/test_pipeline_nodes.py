"""Two nodes work on the same events at once: each is decided once, and numbers are exact."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from clarion.catalog.model import Channel, Dedupe, DedupeMode, RateLimit
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.channels.model import Delivered, Outcome, OutgoingMessage
from clarion.channels.stub import StubSender
from clarion.events.leases import RENEWED_MS
from clarion.events.model import DECISIONS, Audience, AudienceKind, Event, Job, JobKind
from clarion.events.pipeline import Pipeline
from clarion.events.sql.jobs import END, SqlQueue
from clarion.history.sql.changes import DELETE
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.model import Preferences
from clarion.people.sql import Users
from clarion.store.engine import Engine
from clarion.store.group_commit import GroupCommit
from clarion.store.statement import Unit
from tests.factories import NOW, FixedClock, make_template, make_type, make_user, new_app_id
from tests.inbox import list_inbox
from tests.pipeline import (
    EACH_LANE,
    LEASE,
    PipelineStore,
    build_pipeline,
    drain,
    finish_sending,
    make_event,
    make_job,
)

LIMIT = 7
EACH = 40
USERS = ("ana", "bo")
TYPES = (
    make_type("PLAIN", default_channels=(Channel.IN_APP,)),
    make_type(
        "LIKES",
        default_channels=(Channel.IN_APP,),
        dedupe=Dedupe(window_s=36_000, mode=DedupeMode.AGGREGATE),
    ),
    make_type(
        "FEW",
        default_channels=(Channel.IN_APP,),
        rate_limit=RateLimit(per_user_per_hour=LIMIT),
    ),
)


class UnfencedEngine:
    """An engine whose outcomes are written whoever has the claim."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def commit(self) -> Any:
        return UnfencedCommit(self._engine.commit)


class UnfencedCommit:
    """The group commit of such an engine."""

    def __init__(self, commit: GroupCommit) -> None:
        self._commit = commit

    def write(self, unit: Unit) -> object:
        steps = [
            step._replace(is_guard=False) if step.statement is END else step for step in unit.steps
        ]
        return self._commit.write(unit._replace(steps=tuple(steps)))


class HeldSender:
    """A provider that answers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.may_answer = asyncio.Event()

    async def send(self, message: OutgoingMessage) -> Outcome:
        self.sent.append(message.id)
        await self.may_answer.wait()
        return Delivered(response="taken")

    async def close(self) -> None:
        """Nothing is open."""


async def set_up(engine: Engine, app_id: str) -> list[Event]:
    """Create the users, and return events of all types for each of them."""
    for user in USERS:
        await Users(engine).put(make_user(user, app_id=app_id))
    for each in TYPES:
        await SqlTypes(engine).put(app_id, each, NOW)
        template = make_template(
            each.type, channel=Channel.IN_APP, body="{{ count }}", subject=None
        )
        await SqlTemplates(engine).put(app_id, template)
    return [
        make_event(
            app_id,
            type=each.type,
            audience=Audience(AudienceKind.USER, (user,)),
            dedupe_key="k",
        )
        for user in USERS
        for each in TYPES
        for _ in range(EACH)
    ]


def on_nodes(engine: Engine, other_node: Engine, clock: FixedClock) -> list[Pipeline]:
    providers = {Channel.STUB: StubSender()}
    return [build_pipeline(each, clock, providers) for each in (engine, other_node)]


async def check(engine: Engine, app_id: str) -> None:
    """Everything was decided once, and the inboxes are exact."""
    inboxes, expected = SqlInboxes(engine), EACH + 1 + LIMIT
    for user in USERS:
        listed = await list_inbox(engine, app_id, user, unread=True, limit=1_000)
        counts = Counter(each.type for each in listed)
        assert counts == Counter(PLAIN=EACH, LIKES=1, FEW=LIMIT)
        assert sum(each.count for each in listed if each.type == "LIKES") == EACH
        state = await inboxes.state(app_id, user)
        assert (state.unread_count, state.sequence) == (expected, expected + EACH - 1)
    events = await PipelineStore(engine, app_id).events.list(
        app_id, status=None, after=None, limit=1_000
    )
    assert {(each.remaining, each.notification_count) for each in events.items} == {(0, 1)}


async def work_together(nodes: list[Pipeline], clock: FixedClock) -> None:
    """Let nodes work until nothing is due, even after the leases expire."""
    while any(await asyncio.gather(*(drain(node) for node in nodes))):
        clock.advance(LEASE)


async def test_two_nodes_decide_each_event_once(engine: Engine, other_node: Engine) -> None:
    app_id, clock = new_app_id(), FixedClock()
    events = await set_up(engine, app_id)
    jobs = [make_job(event, user_id=event.audience.ids[0]) for event in events]
    await PipelineStore(engine, app_id).events.accept(events, jobs)
    await work_together(on_nodes(engine, other_node, clock), clock)
    await check(engine, app_id)


async def test_a_key_is_free_when_its_notification_is_deleted(engine: Engine) -> None:
    app_id, clock = new_app_id(), FixedClock()
    events = [each for each in await set_up(engine, app_id) if each.type == "LIKES"]
    pipeline = build_pipeline(engine, clock, {})
    for event in events[:2]:
        job = make_job(event, user_id="ana")
        await PipelineStore(engine, app_id).events.accept([event], [job])
        assert await drain(pipeline) == 1
        (made,) = await list_inbox(engine, app_id, "ana", unread=True, limit=10)
        assert (made.event_id, made.count) == (event.id, 1)
        delete = DELETE.step(app_id=app_id, user_id="ana", id=made.id)
        await engine.write(Unit("ana", (delete,), app_id))


async def test_a_node_whose_leases_have_expired_changes_nothing(
    engine: Engine, other_node: Engine
) -> None:
    """T17: it continues with its claimed jobs while another node does the same ones."""
    app_id, clock = new_app_id(), FixedClock()
    events = await set_up(engine, app_id)
    nodes = on_nodes(engine, other_node, clock)
    assert await nodes[0].intake.accept(events) is None
    clock.advance(LEASE)
    await work_together(nodes, clock)
    await check(engine, app_id)


async def test_without_the_fence_a_late_node_is_found_to_change_something(
    engine: Engine, other_node: Engine
) -> None:
    """The control of the test before."""
    app_id, clock = new_app_id(), FixedClock()
    events = await set_up(engine, app_id)
    unfenced: Any = UnfencedEngine(engine)
    nodes = on_nodes(unfenced, other_node, clock)
    assert await nodes[0].intake.accept(events) is None
    clock.advance(LEASE)
    # Together, the late node might still be the first with all of them.
    await drain(nodes[1])
    await work_together(nodes, clock)
    with pytest.raises(AssertionError):
        await check(engine, app_id)


async def prepare_delivery(engine: Engine, app_id: str, pipeline: Pipeline) -> None:
    """Have a delivery decided, and not sent yet."""
    preferences = Preferences(quiet_hours=(False,) * 24)
    user = make_user(
        "ana", app_id=app_id, attributes={"stub": "delivered"}, preferences=preferences
    )
    await Users(engine).put(user)
    made = make_type("SENT", default_channels=(Channel.STUB,))
    await SqlTypes(engine).put(app_id, made, NOW)
    template = make_template("SENT", channel=Channel.STUB, body="hello", subject=None)
    await SqlTemplates(engine).put(app_id, template)
    event = make_event(app_id, type="SENT")
    await PipelineStore(engine, app_id).events.accept([event], [make_job(event)])
    await pipeline.backlog.measure()
    for worker in pipeline.workers:
        if worker.pool.name == DECISIONS:
            await worker.work()


async def claim_delivery(engine: Engine, app_id: str, now: int) -> tuple[Job, ...]:
    queue = SqlQueue(engine)
    return await queue.claim(Channel.STUB.value, app_id, EACH_LANE, now=now, until=now + LEASE)


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_node_that_was_paused_sends_nothing_that_another_has_claimed(
    engine: Engine, *, is_live: bool
) -> None:
    """A node that knows itself alive does not ask: the control."""
    app_id, clock, sender = new_app_id(), FixedClock(), HeldSender()
    sender.may_answer.set()
    pipeline = build_pipeline(engine, clock, {Channel.STUB: sender}, is_live=lambda: is_live)
    await prepare_delivery(engine, app_id, pipeline)
    (stale,) = await claim_delivery(engine, app_id, NOW)
    (current,) = await claim_delivery(engine, app_id, NOW + LEASE)
    deliverer = pipeline.workers[0].handlers[JobKind.DELIVER]
    await deliverer.handle([stale])
    await finish_sending()
    assert len(sender.sent) == int(is_live)
    await deliverer.handle([current])
    await finish_sending()
    assert len(sender.sent) == int(is_live) + 1


async def test_a_handler_that_takes_long_keeps_its_lease(
    engine: Engine, other_node: Engine
) -> None:
    app_id, clock, sender = new_app_id(), FixedClock(), HeldSender()
    pipeline = build_pipeline(engine, clock, {Channel.STUB: sender})
    await prepare_delivery(engine, app_id, pipeline)
    working = asyncio.ensure_future(drain(pipeline))
    async with asyncio.timeout(30):
        while not sender.sent:  # noqa: ASYNC110 - nothing signals us
            await asyncio.sleep(0.01)
    await pipeline.renew_old_leases()
    assert await claim_delivery(other_node, app_id, NOW + LEASE - 1) == ()
    clock.advance(LEASE - RENEWED_MS + 1)
    await pipeline.renew_old_leases()
    assert await claim_delivery(other_node, app_id, NOW + LEASE + 1) == ()
    sender.may_answer.set()
    await working
    assert len(sender.sent) == 1
    assert await claim_delivery(other_node, app_id, NOW + 10 * LEASE) == ()


async def test_the_next_start_takes_over_also_if_the_clock_was_set_back(engine: Engine) -> None:
    app_id, clock = new_app_id(), FixedClock()
    store = PipelineStore(engine, app_id)
    await store.accept()
    await store.claim(NOW)
    clock.step(-3_600_000)
    await build_pipeline(engine, clock, {}).take_over()
    assert len(await store.claim(clock.now())) == 1
