"""Topics between the store and the sessions: read in bounded steps, in spite of what comes."""

import asyncio
from typing import Any, cast

from prometheus_client import CollectorRegistry

from clarion.push.connections import Connections, TopicCursor
from clarion.push.dispatch import CHUNK, Dispatch
from clarion.push.frames import Ack
from clarion.push.model import Message, StoragePolicy, Subscription
from clarion.push.port import Broadcasts, Messages
from clarion.push.session import Acknowledged, DeviceSession, Effect, Refill
from clarion.sockets.protocol import SendFrame
from clarion.telemetry.metrics import GatewayMetrics
from tests.factories import NOW, FixedClock, make_broadcast, make_device


class NoMessages:
    """Stands for the `Messages` port of a device to which nothing was sent."""

    async def count_waiting(self, device_id: str, *, now: int, limit: int) -> int:
        del device_id, now, limit
        return 0

    async def waiting(self, device_id: str, **_: Any) -> tuple[Message, ...]:
        del device_id
        return ()

    async def acknowledge(self, pairs: list[tuple[str, str]], now: int) -> None:
        del now
        assert pairs == []


class SlowTopics:
    """The `Broadcasts` port in memory; a read waits until it is let go, and sees the past."""

    def __init__(self, *topics: str) -> None:
        self.stored: dict[str, list[Message]] = {topic: [] for topic in topics}
        self.advanced: list[tuple[str, int]] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.is_read = asyncio.Event()

    async def subscriptions(self, device_id: str) -> tuple[Subscription, ...]:
        del device_id
        return tuple(Subscription(topic=topic, cursor=0) for topic in self.stored)

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: object = None
    ) -> int:
        del storage_policy, once
        sequence = len(self.stored[message.topic or ""]) + 1
        self.store(message.topic or "", sequence)
        return sequence

    def store(self, topic: str, sequence: int) -> None:
        self.stored[topic].append(make_broadcast(topic, sequence=sequence))

    async def missed(
        self, app_id: str, topic: str, *, cursor: int, now: int, limit: int
    ) -> tuple[Message, ...]:
        del app_id, now
        self.is_read.set()
        found = [m for m in self.stored[topic] if m.sequence > cursor][:limit]
        await self.may_read.wait()
        return tuple(found)

    async def advance(self, device_id: str, topic: str, cursor: int) -> None:
        del device_id
        self.advanced.append((topic, cursor))


class FakeConnection:
    """A connection that notes what it would have sent, and acknowledges when told to."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.session = DeviceSession(NOW)
        self.topics: dict[str, TopicCursor] | None = None
        self.sent = 0
        self._dispatch = dispatch

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame():
                    self.sent += 1
                case Refill(least):
                    self._dispatch.refill(self, least)
                case Acknowledged(messages):
                    self._dispatch.acknowledge(self, messages)
                case _:
                    raise AssertionError(effect)

    def acknowledge_all(self) -> None:
        ids = list(self.session._in_flight or ())
        self.carry_out(self.session._take(Ack(ids=ids), NOW))


def make_dispatch(topics: SlowTopics) -> Dispatch:
    return Dispatch(
        messages=cast("Messages", NoMessages()),
        broadcasts=cast("Broadcasts", topics),
        connections=Connections(),
        clock=FixedClock(),
        metrics=GatewayMetrics(CollectorRegistry()),
        stored_limit=1000,
    )


async def finish(dispatch: Dispatch) -> None:
    """Wait for the work that nobody awaits."""
    while dispatch._tasks:
        await asyncio.wait(dispatch._tasks)


async def connect(dispatch: Dispatch) -> FakeConnection:
    connection = FakeConnection(dispatch)
    await dispatch.connect(connection, make_device(), None)
    return connection


async def test_what_is_published_while_a_topic_is_read_is_read_after_it() -> None:
    topics = SlowTopics("news")
    topics.store("news", 1)
    topics.may_read.clear()
    dispatch = make_dispatch(topics)
    connection = await connect(dispatch)
    await topics.is_read.wait()
    await dispatch.publish(make_broadcast("news"), StoragePolicy.ALL)
    topics.may_read.set()
    await finish(dispatch)
    assert connection.sent == 1 + 2  # the ready and both messages


async def test_one_read_takes_no_more_than_one_chunk_of_all_topics_together() -> None:
    topics = SlowTopics(*(f"topic{number}" for number in range(5)))
    for topic in topics.stored:
        for sequence in range(1, CHUNK + 1):
            topics.store(topic, sequence)
    dispatch = make_dispatch(topics)
    connection = await connect(dispatch)
    await finish(dispatch)
    assert connection.sent == 1 + CHUNK
    while connection.session._in_flight:
        connection.acknowledge_all()
        await finish(dispatch)
    assert connection.sent == 1 + 5 * CHUNK


async def test_acknowledged_messages_of_a_topic_move_its_cursor_once() -> None:
    topics = SlowTopics("news", "sport")
    for sequence in range(1, 11):
        topics.store("news", sequence)
        topics.store("sport", sequence)
    dispatch = make_dispatch(topics)
    connection = await connect(dispatch)
    await finish(dispatch)
    connection.acknowledge_all()
    await finish(dispatch)
    assert sorted(topics.advanced) == [("news", 10), ("sport", 10)]
