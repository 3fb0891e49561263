"""Two nodes work on the same events at once: each is decided once, and numbers are exact."""

import asyncio
from collections import Counter

from clarion.catalog.model import Channel, Dedupe, DedupeMode, RateLimit
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.channels.stub import StubProvider
from clarion.events.model import Audience, AudienceKind, Event
from clarion.events.pipeline import Pipeline
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.sql import SqlUsers
from clarion.store.engine import Engine
from tests.factories import NOW, FixedClock, make_template, make_type, make_user, new_app_id
from tests.pipeline import LEASE, PipelineStore, build_pipeline, drain, make_event, make_job

LIMIT = 7
EACH = 40
PEOPLE = ("ana", "bo")
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


async def furnish(engine: Engine, app_id: str) -> list[Event]:
    """Make the people, and return events of all types for each of them."""
    for person in PEOPLE:
        await SqlUsers(engine).put(make_user(person, app_id=app_id))
    for each in TYPES:
        await SqlTypes(engine).put(app_id, each, NOW)
        words = make_template(each.type, channel=Channel.IN_APP, body="{{ count }}", subject=None)
        await SqlTemplates(engine).put(app_id, words)
    return [
        make_event(
            app_id,
            type=each.type,
            audience=Audience(AudienceKind.USER, (person,)),
            dedupe_key="k",
        )
        for person in PEOPLE
        for each in TYPES
        for _ in range(EACH)
    ]


def on_nodes(engine: Engine, other_node: Engine, clock: FixedClock) -> list[Pipeline]:
    providers = {Channel.STUB: StubProvider()}
    return [build_pipeline(each, clock, providers) for each in (engine, other_node)]


async def check(engine: Engine, app_id: str) -> None:
    """Everything was decided once, and the inboxes are exact."""
    inboxes, expected = SqlInboxes(engine), EACH + 1 + LIMIT
    for person in PEOPLE:
        page = await inboxes.page(
            app_id, person, unread=True, category=None, after=None, limit=1_000
        )
        counts = Counter(each.type for each in page.items)
        assert counts == Counter(PLAIN=EACH, LIKES=1, FEW=LIMIT)
        assert sum(each.count for each in page.items if each.type == "LIKES") == EACH
        state = await inboxes.state(app_id, person)
        assert (state.unread_count, state.sequence) == (expected, expected + EACH - 1)
    events = await PipelineStore(engine, app_id).events.list(
        app_id, status=None, after=None, limit=1_000
    )
    assert {(each.remaining, each.notification_count) for each in events.items} == {(0, 1)}


async def work_together(nodes: list[Pipeline], clock: FixedClock) -> None:
    """Let nodes work until nothing comes back, not even from a lease."""
    while any(await asyncio.gather(*(drain(node) for node in nodes))):
        clock.advance(LEASE)


async def test_two_nodes_decide_each_event_once(engine: Engine, other_node: Engine) -> None:
    app_id, clock = new_app_id(), FixedClock()
    events = await furnish(engine, app_id)
    jobs = [make_job(event, user_id=event.audience.ids[0]) for event in events]
    await PipelineStore(engine, app_id).events.accept(events, jobs)
    await work_together(on_nodes(engine, other_node, clock), clock)
    await check(engine, app_id)


async def test_a_node_that_sleeps_over_its_leases_spoils_nothing(
    engine: Engine, other_node: Engine
) -> None:
    """T17: it goes on with all it had in hand, at the moment at which another does the same."""
    app_id, clock = new_app_id(), FixedClock()
    events = await furnish(engine, app_id)
    nodes = on_nodes(engine, other_node, clock)
    assert await nodes[0].intake.accept(events) is None
    clock.advance(LEASE)
    await work_together(nodes, clock)
    await check(engine, app_id)
