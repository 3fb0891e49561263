"""Messages of a topic that are sent together: which, to whom, and how they are acknowledged."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from clarion.push.acknowledgements import Acknowledgements
from clarion.push.frames import Ack, decoder
from clarion.push.model import Message, PushPriority
from clarion.push.session import IN_FLIGHT_LIMIT, Acknowledged, DeviceSession, Effect
from clarion.push.topic_batch import BATCH_LIMIT, TopicBatch, cut_batch
from tests.factories import NOW, make_broadcast, make_device, make_message
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway


def number(count: int, start: int = 1, **changes: Any) -> list[Message]:
    return [make_broadcast(sequence=start + each, **changes) for each in range(count)]


def make_batch(*messages: Message) -> TopicBatch:
    return cut_batch(messages, NOW)


@pytest.fixture
def session() -> DeviceSession:
    """A connection that is ready, and has nothing."""
    session = DeviceSession(NOW)
    session.device = make_device()
    session.welcome(0, has_missed=False)
    return session


def receive(session: DeviceSession, **frame: Any) -> list[Effect]:
    return session.receive(json.dumps(frame).encode(), is_text=True, now=NOW)


def acknowledged(effects: list[Effect]) -> list[str]:
    messages = [each.messages for each in effects if isinstance(each, Acknowledged)]
    return [message.id for some in messages for message in some]


# Which messages are sent together.


def test_consecutive_messages_are_sent_together_up_to_a_limit() -> None:
    messages = number(BATCH_LIMIT + 1, start=7)
    batch = make_batch(*messages)
    assert list(batch.messages) == messages[:-1]
    assert batch.sequences == range(7, 7 + BATCH_LIMIT)


def test_a_gap_a_message_that_is_not_stored_or_a_repeated_id_ends_a_batch() -> None:
    one, two, three = number(3)
    for after in (three, two._replace(is_stored=False), two._replace(id=one.id)):
        assert list(make_batch(one, after).messages) == [one]
    assert list(make_batch(one._replace(is_stored=False), two).messages)[1:] == []


# Who gets all of them at once.


def test_a_batch_is_the_same_for_all(session: DeviceSession) -> None:
    batch = make_batch(*number(3))
    effects = session.offer_batch(batch, NOW)
    assert effects is batch.frames
    ids = [json.loads(each.data)["id"] for each in batch.frames]
    assert ids == [message.id for message in batch.messages]
    assert not session.is_drained


def test_what_is_in_flight_of_one_is_not_in_flight_of_another(session: DeviceSession) -> None:
    batch = make_batch(*number(2))
    session.offer_batch(batch, NOW)
    receive(session, type="ack", ids=[each.id for each in batch.messages])
    assert len(batch.in_flight) == 2


@pytest.mark.parametrize(
    "state", [{"enabled": False}, {"foreground": False}], ids=["disabled", "background"]
)
def test_a_device_that_may_not_get_it_now_is_offered_each(
    session: DeviceSession, state: dict[str, bool]
) -> None:
    receive(session, type="state", **state)
    batch = make_batch(*number(2, priority=PushPriority.CONSIDERATE))
    assert session.offer_batch(batch, NOW) is None


def test_a_connection_that_waits_for_something_is_offered_each(session: DeviceSession) -> None:
    batch = make_batch(*number(2))
    for hinder in ("is_paused", "is_closed", "_is_behind", "_is_draining"):
        setattr(session, hinder, True)
        assert session.offer_batch(batch, NOW) is None
        setattr(session, hinder, False)
    expired = make_batch(*number(2, expires_at=NOW))
    assert session.offer_batch(expired, NOW) is None
    assert session.offer_batch(batch, NOW) is not None


def test_no_more_are_in_flight_than_may_be(session: DeviceSession) -> None:
    for start in range(1, IN_FLIGHT_LIMIT, BATCH_LIMIT):
        assert session.offer_batch(make_batch(*number(BATCH_LIMIT, start)), NOW) is not None
    assert session.offer_batch(make_batch(*number(1, 1_000)), NOW) is None


def test_an_id_that_is_in_flight_is_not_sent_again(session: DeviceSession) -> None:
    direct, (topical,) = make_message(), number(1)
    session.offer(direct, NOW)
    assert session.offer_batch(make_batch(topical._replace(id=direct.id)), NOW) is None


# Acknowledged by the sequence of a topic.


def test_a_sequence_covers_what_was_sent_before_it(session: DeviceSession) -> None:
    messages, direct = number(5), make_message()
    other = make_broadcast("sport", sequence=1)
    session.offer(direct, NOW)
    session.offer(other, NOW)
    session.offer_batch(make_batch(*messages), NOW)
    done = receive(session, type="ack", topic="news", sequence=3)
    assert acknowledged(done) == [message.id for message in messages[:3]]
    assert receive(session, type="ack", topic="news", sequence=3) == []
    assert receive(session, type="ack", topic="news", sequence=99) == []
    done = receive(session, type="ack", topic="news", sequence=5)
    assert acknowledged(done) == [message.id for message in messages[3:]]


def test_a_sequence_does_not_cover_what_was_sent_after_it(session: DeviceSession) -> None:
    """A message of high priority overtakes: the device may not have the earlier one yet."""
    early, late = number(2)
    session.offer(late, NOW)
    session.offer(early, NOW)
    assert acknowledged(receive(session, type="ack", topic="news", sequence=2)) == [late.id]
    assert acknowledged(receive(session, type="ack", id=early.id)) == [early.id]


@pytest.mark.parametrize(
    "frame", [{"topic": "news"}, {"sequence": 1}, {"topic": "n", "sequence": -1}]
)
def test_a_topic_and_a_sequence_go_together(frame: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(json.dumps({"type": "ack", **frame}).encode())
    assert Ack(topic="news", sequence=1).all_ids() == []


# From publishing to the cursor.


async def test_messages_published_at_once_arrive_in_order_and_move_the_cursor() -> None:
    gateway = Gateway()
    await gateway.subscribe()
    phone = await gateway.connect()
    await asyncio.gather(*(gateway.publish() for _ in range(2 * BATCH_LIMIT)))
    await settle()
    assert [frame["sequence"] for frame in phone.got] == list(range(1, 2 * BATCH_LIMIT + 1))
    phone.say(type="ack", topic="news", sequence=BATCH_LIMIT)
    await settle()
    assert await gateway.cursor() == BATCH_LIMIT
    again = await gateway.connect()
    assert again.got[0]["sequence"] == BATCH_LIMIT + 1


async def test_acknowledgements_after_a_commit_wait_for_others() -> None:
    gateway = Gateway()
    phone = await gateway.connect()
    messages = [make_message(gateway.device.id) for _ in range(3)]
    gathering = _gather(gateway, 0.001)
    before = gateway.store.writes
    gathering.add(phone, messages[:1])
    await settle()
    assert gateway.store.writes == before + 1
    gathering.add(phone, messages[1:2])
    gathering.add(phone, messages[2:])
    await gateway.dispatch.tasks.finish(10)
    assert gateway.store.writes == before + 2


def _gather(gateway: Gateway, gather_s: float) -> Acknowledgements:
    own = gateway.dispatch.acknowledgements
    return Acknowledgements(
        own._messages, own._broadcasts, gateway.clock, own._metrics, gateway.dispatch.tasks,
        gather_s=gather_s,
    )  # fmt: skip
