"""Two nodes work on the same events at once: each is decided once, and numbers are exact."""

import asyncio
from collections import Counter

from clarion.catalog.model import Channel, Dedupe, DedupeMode, RateLimit
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.channels.stub import StubSender
from clarion.events.model import Audience, AudienceKind, Event
from clarion.events.pipeline import Pipeline
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.sql import SqlUsers
from clarion.store.engine import Engine
from tests.factories import NOW, FixedClock, make_template, make_type, make_user, new_app_id
from tests.pipeline import LEASE, PipelineStore, build_pipeline, drain, make_event, make_job

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


async def set_up(engine: Engine, app_id: str) -> list[Event]:
    """Create the users, and return events of all types for each of them."""
    for user in USERS:
        await SqlUsers(engine).put(make_user(user, app_id=app_id))
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
        page = await inboxes.page(app_id, user, unread=True, category=None, after=None, limit=1_000)
        counts = Counter(each.type for each in page.items)
        assert counts == Counter(PLAIN=EACH, LIKES=1, FEW=LIMIT)
        assert sum(each.count for each in page.items if each.type == "LIKES") == EACH
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
