"""Publishing to a topic: the event and the message are one commit, and nobody gets it twice."""

import asyncio

import pytest

from clarion.catalog.model import Channel
from clarion.errors import Conflict, IdempotencyKeyReused
from clarion.events.cases import CaseReader, DecisionRequest
from clarion.events.decide.rules import decide
from clarion.events.model import Audience, AudienceKind
from clarion.events.publications import Publication
from clarion.events.publisher import Publisher
from clarion.events.sql.events import SqlEvents
from clarion.history.model import Content, PublishedTo, ReasonCode
from clarion.idempotency.model import StoredResponse
from clarion.people.sql import Users
from clarion.push.model import Message
from clarion.push.sql.devices import Devices
from clarion.push.sql.topics import Broadcasts, Topics
from clarion.store.engine import Engine
from tests.factories import (
    NOW,
    FixedClock,
    make_broadcast,
    make_device,
    make_once,
    make_user,
    new_app_id,
)
from tests.pipeline import PipelineStore, build_pipeline, drain, make_event, make_job
from tests.replacing import replace

TOPIC = "news"


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


async def publish(store: PipelineStore, message: Message, **more: object) -> object:
    event = make_event(store.app_id, audience=Audience(AudienceKind.TOPIC, topic=TOPIC))
    result = await store.events.publish(event, make_job(event), message, **more)  # type: ignore[arg-type]
    is_stored = await store.events.get(store.app_id, event.id) == event
    assert is_stored == isinstance(result, int)
    return result


async def stored_ids(store: PipelineStore) -> list[str]:
    broadcasts = Broadcasts(store.engine)
    found = await broadcasts.missed(store.app_id, TOPIC, cursor=0, now=NOW, limit=100)
    return [each.id for each in found]


def make_message(store: PipelineStore, id_: str = "m1") -> Message:
    return make_broadcast(TOPIC, id=id_, app_id=store.app_id)


async def test_a_publication_is_an_event_a_job_and_a_message(store: PipelineStore) -> None:
    assert await publish(store, make_message(store)) == 1
    assert await publish(store, make_message(store, "m2")) == 2
    assert await stored_ids(store) == ["m1", "m2"]
    assert len(await store.claim()) == 2


async def test_publishing_creates_the_topic_closed(store: PipelineStore) -> None:
    await publish(store, make_message(store))
    topic = await Topics(store.engine).get(store.app_id, TOPIC)
    assert topic is not None
    assert not topic.is_open
    assert not topic.is_broadcast_channel


async def test_a_deleted_topic_takes_neither(store: PipelineStore) -> None:
    await publish(store, make_message(store))
    await Topics(store.engine).delete(store.app_id, TOPIC, NOW)
    assert await publish(store, make_message(store, "m2")) is None
    assert await stored_ids(store) == []


async def test_a_repeat_stores_nothing_and_gets_the_first_answer(store: PipelineStore) -> None:
    once = make_once(store.app_id)
    assert await publish(store, make_message(store), once=once) == 1
    repeat = await publish(store, make_message(store, "m2"), once=replace(once, answer=b"second"))
    assert repeat == StoredResponse(once.answer)
    with pytest.raises(IdempotencyKeyReused):
        await publish(store, make_message(store, "m3"), once=replace(once, fingerprint=b"other"))
    assert await stored_ids(store) == ["m1"]


async def test_without_the_event_there_is_no_message(store: PipelineStore) -> None:
    event = await store.accept()
    with pytest.raises(Conflict):
        await store.events.publish(event, make_job(event), make_message(store), None)
    assert await stored_ids(store) == []


async def test_of_one_request_sent_to_two_nodes_at_once_one_is_stored(
    store: PipelineStore, other_node: Engine
) -> None:
    once, nodes = make_once(store.app_id), (store.events, SqlEvents(other_node))
    events = [make_event(store.app_id) for _ in range(10)]
    done = await asyncio.gather(
        *(
            nodes[n % 2].publish(each, make_job(each), make_message(store, f"m{n}"), once)
            for n, each in enumerate(events)
        )
    )
    assert sorted(map(str, done)).count("1") == 1
    assert sum(isinstance(each, StoredResponse) for each in done) == 9
    assert len(await stored_ids(store)) == 1
    assert len(await store.events.find_many(store.app_id, [each.id for each in events])) == 1


async def test_following_creates_the_topic_and_changes_none(store: PipelineStore) -> None:
    users, topics = Users(store.engine), Topics(store.engine)
    await users.put(make_user("ana", app_id=store.app_id))
    assert not await users.follow(store.app_id, "nobody", TOPIC, NOW)
    assert await topics.get(store.app_id, TOPIC) is None
    assert await users.follow(store.app_id, "ana", TOPIC, NOW)
    made = await topics.get(store.app_id, TOPIC)
    assert made is not None
    assert (made.is_open, made.created_at) == (False, NOW)
    await topics.put(replace(made, is_open=True))
    assert await users.follow(store.app_id, "ana", TOPIC, NOW + 1)
    assert await topics.get(store.app_id, TOPIC) == replace(made, is_open=True)


async def test_a_device_gets_what_was_published_after_it_subscribed(store: PipelineStore) -> None:
    broadcasts, app_id = Broadcasts(store.engine), store.app_id
    first, second, third = (f"{app_id}-{name}" for name in ("d1", "d2", "d3"))
    await broadcasts.subscribe(app_id, first, TOPIC, NOW)
    await publish(store, make_message(store, "m1"))
    await broadcasts.subscribe(app_id, second, TOPIC, NOW - 5)  # whatever its clock says
    await publish(store, make_message(store, "m2"))
    await broadcasts.advance(first, TOPIC, 2)
    await broadcasts.subscribe(app_id, first, TOPIC, NOW + 1)  # a repeat
    every = ((first, second, third), {"m1": TOPIC, "m2": TOPIC, "m3": TOPIC})
    found = await broadcasts.find_reached(app_id, every[1], every[0])
    assert found == {("m1", first), ("m2", first), ("m2", second)}
    assert await broadcasts.find_reached(app_id, {"m1": TOPIC}, [third]) == frozenset()
    assert await broadcasts.find_reached(app_id, {"m1": "other"}, [first]) == frozenset()
    assert await broadcasts.find_reached(new_app_id(), every[1], every[0]) == frozenset()
    await broadcasts.unsubscribe(first, TOPIC)
    await broadcasts.subscribe(app_id, first, TOPIC, NOW)
    assert await broadcasts.find_reached(app_id, every[1], [first]) == frozenset()


async def test_each_device_is_reached_once_whatever_comes_first(
    store: PipelineStore, other_node: Engine
) -> None:
    """Devices subscribe on two nodes while something is published."""
    nodes = [Broadcasts(store.engine), Broadcasts(other_node)]
    ids = [f"{store.app_id}-{n}" for n in range(20)]
    await asyncio.gather(
        *(nodes[n % 2].subscribe(store.app_id, each, TOPIC, NOW) for n, each in enumerate(ids)),
        publish(store, make_message(store)),
    )
    reached = await nodes[0].find_reached(store.app_id, {"m1": TOPIC}, ids)
    for each in ids:
        (subscription,) = await nodes[0].subscriptions(each)
        assert (("m1", each) in reached) is (subscription.cursor == 0)


@pytest.fixture
async def cases(store: PipelineStore) -> CaseReader:
    await Users(store.engine).put(make_user("ana", app_id=store.app_id))
    return build_pipeline(store.engine, FixedClock(), {}).explainer.cases


async def verdict(
    cases: CaseReader, store: PipelineStore, published: PublishedTo | None
) -> tuple[tuple[str, ...], ReasonCode]:
    """Return the devices that a push to Ana goes to, and why."""
    entry = await cases.ports.catalog.find(store.app_id, "TOPIC_MESSAGE")
    assert entry is not None
    request = DecisionRequest(
        app_id=store.app_id,
        user_id="ana",
        entry=entry,
        priority=entry.type.priority,
        content=Content(published_to=published),
        channels=(Channel.PUSH,),
        expires_at=None,
        now=NOW,
    )
    (prepared,) = await cases.read([request])
    (decision,) = decide(prepared.case)
    return tuple(each.id for each in prepared.case.devices), decision.verdict.reason


async def test_only_devices_that_the_topic_does_not_reach_get_the_push(
    cases: CaseReader, store: PipelineStore
) -> None:
    devices, broadcasts = Devices(store.engine), Broadcasts(store.engine)
    ids = {}
    for name in ("early", "late", "never"):
        device = make_device(store.app_id)
        device = replace(device, details=replace(device.details, user_id="ana"))
        await devices.add(device)
        ids[name] = device.id
        if name == "late":
            await publish(store, make_message(store))
        if name != "never":
            assert await broadcasts.subscribe(store.app_id, device.id, TOPIC, NOW) is not None
    reached, reason = await verdict(cases, store, PublishedTo(TOPIC, "m1"))
    assert set(reached) == {ids["late"], ids["never"]}
    assert reason is not ReasonCode.SENT_TO_TOPIC
    assert set((await verdict(cases, store, None))[0]) == set(ids.values())
    assert set((await verdict(cases, store, PublishedTo("other", "m1")))[0]) == set(ids.values())


async def test_a_device_of_another_push_service_is_not_reached_by_the_topic(
    cases: CaseReader, store: PipelineStore
) -> None:
    device = make_device(store.app_id)
    device = replace(device, details=replace(device.details, user_id="ana"), address=b"sealed")
    await Devices(store.engine).add(device)
    await Broadcasts(store.engine).subscribe(store.app_id, device.id, TOPIC, NOW)
    await publish(store, make_message(store))
    reached, _ = await verdict(cases, store, PublishedTo(TOPIC, "m1"))
    assert reached == (device.id,)


async def test_no_device_and_all_devices_on_the_topic_are_told_apart(
    cases: CaseReader, store: PipelineStore
) -> None:
    published = PublishedTo(TOPIC, "m1")
    assert await verdict(cases, store, published) == ((), ReasonCode.NO_DEVICE)
    device = make_device(store.app_id)
    await Devices(store.engine).add(replace(device, details=replace(device.details, user_id="ana")))
    await Broadcasts(store.engine).subscribe(store.app_id, device.id, TOPIC, NOW)
    await publish(store, make_message(store))
    assert await verdict(cases, store, published) == ((), ReasonCode.SENT_TO_TOPIC)


async def test_what_is_published_is_decided_for_every_follower(store: PipelineStore) -> None:
    users, app_id = Users(store.engine), store.app_id
    for name in ("ana", "bo", "eve"):
        await users.put(make_user(name, app_id=app_id))
        if name != "eve":
            await users.follow(app_id, name, TOPIC, NOW)
    pipeline = build_pipeline(store.engine, FixedClock(), {})
    publisher = Publisher(pipeline.intake)
    publication = Publication(topic=TOPIC, message="hé\nho", title="T", tags=("tada",))
    event, message = await publisher.prepare(app_id, publication)
    assert await publisher.publish(event, message, None) is True
    await drain(pipeline)
    made = await store.notifications.list_of_event(app_id, event.id, after=None, limit=9)
    shown = {(each.user_id, each.title, each.body) for each in made.items}
    assert shown == {("ana", "🎉 T", "hé\nho"), ("bo", "🎉 T", "hé\nho")}
    assert await stored_ids(store) == [message.id]
