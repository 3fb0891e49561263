"""Messages to topics: published to connected subscribers, read later by those that missed them.

Every message is published to all nodes. A node that misses one finds a gap in the sequences, and
reads the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence

import msgspec

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pacing import Pace, cut
from clarion.push.connections import Connection, Connections, TopicCursor, offer, read_store
from clarion.push.forwarding import Forwarding, decode_message, decode_pair, encode
from clarion.push.model import Device, Message, PushPriority, StoragePolicy, SubscriptionState
from clarion.push.sql.topics import Broadcasts
from clarion.push.topic_batch import TopicBatch, cut_batch
from clarion.sockets.tasks import BackgroundTasks

CHUNK = 64
# Messages of one topic that are being offered on this node; the response to one more waits.
OFFERING_LIMIT = 100
# How long, and to how many devices, messages are offered before acknowledgements are read. Both
# are limits, because the time that writing takes is not always part of the first.
OFFER_TURN_S = 0.01
OFFERED_AT_ONCE = 1_000
# In one read of their last sequences.
TOPICS_AT_ONCE = 2_000
# Messages of one topic deferred for a device that is not awake; beyond this they are sent.
DEFERRED_LIMIT = 1_000
MESSAGE = "push.topic_message"
SUBSCRIBED = "push.subscribed"
UNSUBSCRIBED = "push.unsubscribed"
DELETED = "push.topic_deleted"
# A device, a topic, and the cursor of its subscription.
_decode_subscription = msgspec.msgpack.Decoder(tuple[str, str, int]).decode


class TopicDispatch:
    """Publishes to topics, and maintains the subscriptions of connected devices."""

    def __init__(
        self,
        broadcasts: Broadcasts,
        connections: Connections,
        clock: Clock,
        tasks: BackgroundTasks,
        forwarding: Forwarding,
    ) -> None:
        self._broadcasts = broadcasts
        self._connections = connections
        self._clock = clock
        self._tasks = tasks
        self._pace = Pace()
        self._offer_pace = Pace(OFFER_TURN_S)
        # By app and topic: the messages that are being offered to the subscribers, in order.
        self._offering: dict[tuple[str, str], deque[Message]] = {}
        self._has_room = asyncio.Event()
        # For each connection that is reading its subscriptions: the topics that were unsubscribed
        # meanwhile, and may be among what it reads.
        self._unsubscribed: dict[Connection, set[str]] = {}
        self._forwarding = forwarding
        self._bus = forwarding.bus
        self._bus.subscribe(MESSAGE, self._take_messages)
        self._bus.subscribe(SUBSCRIBED, self._take_subscribed)
        self._bus.subscribe(UNSUBSCRIBED, self._take_unsubscribed)
        self._bus.subscribe(DELETED, self._take_deleted)

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Store a message to a topic, and start to offer it to the subscribers connected here.

        False if the topic was deleted, or had a message with the same id.
        """
        sequence = await self._broadcasts.publish(message, storage_policy, once)
        if isinstance(sequence, StoredResponse):
            return sequence
        if sequence is None:
            return False
        await self.announce(message._replace(sequence=sequence))
        return True

    async def announce(self, message: Message) -> None:
        """Start to offer a stored message after the earlier ones; wait if there are too many."""
        self._bus.publish(MESSAGE, encode(message))
        waiting = self._start_offering(message)
        waiting.append(message)
        while len(waiting) > OFFERING_LIMIT:
            self._has_room.clear()
            await self._has_room.wait()

    def _start_offering(self, message: Message) -> deque[Message]:
        """Return the queue of a topic, from which messages are offered."""
        key = (message.app_id, message.topic or "")
        waiting = self._offering.get(key)
        if waiting is None:
            waiting = self._offering[key] = deque()
            self._tasks.start(self._offer_to_all(key, waiting))
        return waiting

    def _take_messages(self, several: Sequence[bytes]) -> None:
        for message in self._forwarding.read(MESSAGE, several, decode_message):
            if self._connections.has_subscribers(message.app_id, message.topic or ""):
                self._take_message(message)

    def _take_message(self, message: Message) -> None:
        """Offer a message from another node, which does not wait for this one.

        If too many are being offered, it replaces the last one: subscribers find the gap and read
        the store.
        """
        waiting = self._start_offering(message)
        if len(waiting) > OFFERING_LIMIT:
            waiting.pop()
        waiting.append(message)

    async def _offer_to_all(self, key: tuple[str, str], waiting: deque[Message]) -> None:
        try:
            while waiting:
                batch = cut_batch(waiting, self._clock.monotonic())
                subscribers = enumerate(self._connections.subscribers(*key), 1)
                async for number, connection in self._offer_pace.over(subscribers):
                    self._offer_batch(connection, batch, key[1])
                    if number % OFFERED_AT_ONCE == 0:
                        await asyncio.sleep(0)
                for _ in batch.messages:
                    waiting.popleft()
                self._has_room.set()
        finally:
            waiting.clear()
            del self._offering[key]
            self._has_room.set()

    def _offer_batch(self, connection: Connection, batch: TopicBatch, topic: str) -> None:
        cursor = (connection.topics or {}).get(topic)
        if cursor is None:
            return
        if batch.first == cursor.read + 1 and not cursor.is_behind and batch.are_stored:
            effects = connection.session.offer_batch(batch, self._clock.monotonic())
            if effects is not None:
                cursor.read = batch.last
                cursor.outstanding.update(batch.sequences)
                connection.carry_out(effects)
                return
        for message in batch.messages:
            self._offer(connection, message, cursor)

    def _offer(self, connection: Connection, message: Message, cursor: TopicCursor) -> None:
        if not message.is_stored:
            offer(connection, message, self._clock.monotonic())
            # It has a sequence but is not stored: the next one is expected after it.
            if message.sequence == cursor.read + 1 and not cursor.is_behind:
                cursor.read = message.sequence
        elif message.sequence <= cursor.read:
            return  # it subscribed, or read the store, after the message was published
        elif cursor.is_behind or message.sequence != cursor.read + 1:
            _fall_behind(connection, cursor)
        elif offer(connection, message, self._clock.monotonic()):
            cursor.read = message.sequence
            cursor.outstanding.add(message.sequence)
        elif connection.session.puts_off(message) and len(cursor.deferred) < DEFERRED_LIMIT:
            cursor.read = message.sequence
            cursor.deferred[message.sequence] = message.priority
        else:
            _fall_behind(connection, cursor)

    async def subscribe(self, device: Device, topic: str) -> bool:
        """Subscribe a device from now on; False if the topic was deleted."""
        cursor = await self._broadcasts.subscribe(
            device.app_id, device.id, topic, self._clock.now()
        )
        if cursor is None:
            return False
        connection = self._connections.get(device.id)
        if connection is not None:
            self._subscribe(connection, device.app_id, topic, cursor)
        else:
            self._bus.send_to_holder(SUBSCRIBED, device.id, encode((device.id, topic, cursor)))
        return True

    def _subscribe(self, connection: Connection, app_id: str, topic: str, cursor: int) -> None:
        if topic not in (connection.topics or ()):
            self._connections.subscribe(app_id, topic, connection, TopicCursor(cursor, cursor))
            read_store(connection)

    def _take_subscribed(self, several: Sequence[bytes]) -> None:
        subscribed = self._forwarding.read(SUBSCRIBED, several, _decode_subscription)
        for device_id, topic, cursor in subscribed:
            connection = self._connections.get(device_id)
            if connection is not None and connection.session.device is not None:
                self._subscribe(connection, connection.session.device.app_id, topic, cursor)

    async def unsubscribe(self, device: Device, topic: str) -> bool:
        """Unsubscribe a device; False if it was not subscribed."""
        was_subscribed = await self._broadcasts.unsubscribe(device.id, topic)
        connection = self._connections.get(device.id)
        if connection is not None:
            self._unsubscribe(connection, device.app_id, topic)
        else:
            self._bus.send_to_holder(UNSUBSCRIBED, device.id, encode((device.id, topic)))
        return was_subscribed

    def _unsubscribe(self, connection: Connection, app_id: str, topic: str) -> None:
        self._connections.unsubscribe(app_id, topic, connection)
        if connection in self._unsubscribed:
            self._unsubscribed[connection].add(topic)

    def _take_unsubscribed(self, several: Sequence[bytes]) -> None:
        for device_id, topic in self._forwarding.read(UNSUBSCRIBED, several, decode_pair):
            connection = self._connections.get(device_id)
            if connection is not None and connection.session.device is not None:
                self._unsubscribe(connection, connection.session.device.app_id, topic)

    def remove_subscribers(self, app_id: str, topic: str) -> None:
        """Unsubscribe all connections from a topic that was deleted."""
        self._remove_subscribers(app_id, topic)
        self._bus.publish(DELETED, encode((app_id, topic)))

    def _take_deleted(self, several: Sequence[bytes]) -> None:
        for app_id, topic in self._forwarding.read(DELETED, several, decode_pair):
            self._remove_subscribers(app_id, topic)

    def _remove_subscribers(self, app_id: str, topic: str) -> None:
        for connection in self._connections.subscribers(app_id, topic):
            self._connections.unsubscribe(app_id, topic, connection)

    async def resume(
        self, connection: Connection, device: Device, known: dict[str, int] | None
    ) -> None:
        """Subscribe a new connection to the topics of its device, each from its cursor.

        `known` has the last sequences that the device itself says it has received.
        """
        unsubscribed = self._unsubscribed[connection] = set()
        try:
            subscriptions = await self._broadcasts.subscriptions(device.id)
        finally:
            del self._unsubscribed[connection]
        if connection.session.is_closed:
            return
        for subscription in subscriptions:
            topic = subscription.topic
            if topic not in unsubscribed:
                start = max(subscription.cursor, (known or {}).get(topic, 0))
                cursor = TopicCursor(start, start)
                self._connections.subscribe(device.app_id, topic, connection, cursor)

    async def catch_up(self, app_id: str, connections: Collection[Connection]) -> None:
        """Compare the subscriptions of an app's connections with the store.

        This finds subscriptions, unsubscriptions and messages from other nodes.
        """
        # A connection that resumes reads its subscriptions itself.
        before = {
            each: dict(each.topics or {}) for each in connections if each not in self._unsubscribed
        }
        ids = {each: each.session.device.id for each in before if each.session.device is not None}
        self._unsubscribed.update((each, set()) for each in before)
        try:
            found = await self._broadcasts.find_subscriptions(app_id, ids.values())
        finally:
            unsubscribed = {each: self._unsubscribed.pop(each) for each in before}
        for connection, device_id in ids.items():
            if connection.session.is_closed:
                continue
            states = found.get(device_id, {})
            for topic, cursor in before[connection].items():
                if topic not in states and (connection.topics or {}).get(topic) is cursor:
                    self._connections.unsubscribe(app_id, topic, connection)
            for topic in states.keys() - unsubscribed[connection]:
                self._compare(connection, app_id, topic, states[topic])

    async def catch_up_published(
        self, known: Mapping[tuple[str, str], int]
    ) -> dict[tuple[str, str], int]:
        """Have subscribers read what other nodes have published since `known`.

        Return the last sequences by app and topic: `known` of the next call.
        """
        last: dict[tuple[str, str], int] = {}
        for app_id, topics in self._connections.list_topics().items():
            for some in cut(topics, TOPICS_AT_ONCE):
                found = await self._broadcasts.find_last_sequences(app_id, some)
                last |= {(app_id, topic): sequence for topic, sequence in found.items()}
        for (app_id, topic), sequence in last.items():
            if known.get((app_id, topic), -1) < sequence:
                async for each in self._pace.over(self._connections.subscribers(app_id, topic)):
                    cursor = (each.topics or {}).get(topic)
                    if cursor is not None and cursor.read < sequence:
                        _fall_behind(each, cursor)
        return last

    def _compare(
        self, connection: Connection, app_id: str, topic: str, state: SubscriptionState
    ) -> None:
        cursor = (connection.topics or {}).get(topic)
        if cursor is None:
            self._subscribe(connection, app_id, topic, state.cursor)
        elif cursor.read < state.last_sequence:
            _fall_behind(connection, cursor)

    async def read_missed(
        self, connection: Connection, least: PushPriority, now: int
    ) -> tuple[list[Message], bool]:
        """Return messages that a connection missed, about a chunk, and whether these are all."""
        device = connection.session.device
        read: list[Message] = []
        for topic, cursor in list((connection.topics or {}).items()):
            if device is None or not cursor.wants(least):
                continue
            if len(read) >= CHUNK:
                return read, False
            try:
                read += await self._read_topic(device.app_id, topic, cursor, least, now)
            except ServiceError:
                if not read:
                    raise
                return read, False  # the cursors of these have moved: they are not read again
        return read, not any(cursor.wants(least) for cursor in (connection.topics or {}).values())

    async def _read_topic(
        self, app_id: str, topic: str, cursor: TopicCursor, least: PushPriority, now: int
    ) -> list[Message]:
        if len(cursor.deferred) >= DEFERRED_LIMIT:
            least = PushPriority.LOW
        cursor.is_behind = False  # a message that is published during the read sets it again
        due = cursor.due(least)
        try:
            found = await self._broadcasts.missed(
                app_id, topic, cursor=cursor.start(due), now=now, limit=CHUNK
            )
        except ServiceError:
            cursor.is_behind = True
            raise
        is_all = len(found) < CHUNK
        cursor.is_behind = cursor.is_behind or not is_all
        return cursor.take(found, due, least, is_all=is_all)


def _fall_behind(connection: Connection, cursor: TopicCursor) -> None:
    cursor.is_behind = True
    read_store(connection)
