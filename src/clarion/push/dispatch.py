"""A checked push → stored, then in the device's mailbox. And back: acknowledgements → delivered.

Durable first: a message is answered for after its commit. Only then is it offered to the device's
connection, looked up afresh, so that a device that connected meanwhile is not missed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from clarion.errors import ClarionError, ServiceError
from clarion.idempotency.model import StoredResponse
from clarion.push.connections import Connection, TopicCursor
from clarion.push.model import Message, MessageReason, MessageStatus, PushPriority, StoragePolicy
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from clarion.clock import Clock
    from clarion.idempotency.model import IdempotencyClaim
    from clarion.push.apns.request import Push
    from clarion.push.connections import Connections
    from clarion.push.model import Device
    from clarion.push.port import Broadcasts, Messages
    from clarion.telemetry.metrics import GatewayMetrics

CHUNK = 64
COUNTS_LIMIT = 100_000
# Of one topic no more are put off for a device that is not awake; then they are sent.
PUT_OFF_LIMIT = 1_000
RETRY_S = 1.0


class Dispatch:
    """Takes messages in for devices, and hands them over."""

    def __init__(
        self,
        *,
        messages: Messages,
        broadcasts: Broadcasts,
        connections: Connections,
        clock: Clock,
        metrics: GatewayMetrics,
        stored_limit: int,
    ) -> None:
        self._messages = messages
        self._broadcasts = broadcasts
        self._connections = connections
        self._clock = clock
        self._metrics = metrics
        self._stored_limit = stored_limit
        self._last_sequence = 0
        # How much waits for a device; until that is counted, how much came since we know of it.
        self._stored: dict[str, tuple[bool, int]] = {}
        # Devices that came or went since somebody last asked.
        self.seen: set[str] = set()
        self._acknowledged: list[tuple[Connection, Message]] = []
        # The cursors that have moved since they were last stored, by device and topic.
        self._moved: dict[tuple[str, str], int] = {}
        # The connections that are being let in, and what they left since: they may have read that
        # they hear it before.
        self._left: dict[Connection, set[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # From providers.

    async def accept(self, device: Device, push: Push, message_id: str) -> bool:
        """Store a push and offer it; False if it is a repeat. Returns after the commit."""
        message = self._make_message(device, push, message_id)
        is_online = self._connections.get(device.id) is not None
        status, reason = _first_status(message, is_online=is_online)
        if not await self._messages.add(message, status, reason):
            self._remind(device.id)
            return False
        self._metrics.count(message.priority, status)
        connection = self._connections.get(device.id)
        is_taken = connection is not None and self._offer(connection, message)
        if message.is_stored and not is_taken:
            await self._keep_within_limit(device.id)
        return True

    async def fail(self, device: Device, message_id: str) -> None:
        """End a message whose device ended while it was stored."""
        end = (MessageStatus.FAILED, MessageReason.UNREGISTERED)
        await self._messages.finish(device.id, [message_id], *end, self._clock.now())

    def _make_message(self, device: Device, push: Push, message_id: str) -> Message:
        now = self._clock.now()
        # Later ones sort later, also within a millisecond and when the clock is set back.
        self._last_sequence = max(self._last_sequence + 1, now * 1000)
        return Message(
            id=message_id,
            device_id=device.id,
            app_id=device.app_id,
            sequence=self._last_sequence,
            payload=push.payload,
            priority=push.priority,
            collapse_id=push.collapse_id,
            is_stored=push.is_stored,
            created_at=now,
            expires_at=push.expires_at,
        )

    def _offer(self, connection: Connection, message: Message) -> bool:
        taken, effects = connection.session.offer(message, self._clock.now())
        connection.carry_out(effects)
        return taken

    def _remind(self, device_id: str) -> None:
        """Have a device's connection look for a message that is stored, and may not be offered.

        A repeat is asked for when the first answer was lost: perhaps the offer was lost with it.
        """
        connection = self._connections.get(device_id)
        if connection is not None:
            connection.carry_out(connection.session.fall_behind())

    async def _keep_within_limit(self, device_id: str) -> None:
        """Drop the least important of what waits for a device beyond the limit.

        Counting and trimming cost more than a push: both are done for one push in many, so that a
        device may have a sixteenth more stored than it should, 62 of 1,000.
        """
        limit, slack = self._stored_limit, self._stored_limit // 16
        is_exact, count = self._stored.get(device_id, (False, 0))
        count += 1
        if not is_exact and count > slack:
            count = await self._messages.count_waiting(
                device_id, now=self._clock.now(), limit=limit + slack + 1
            )
            is_exact = True
        if count > limit + slack:
            await self._messages.trim(device_id, limit, self._clock.now())
            count = limit
        if len(self._stored) >= COUNTS_LIMIT:
            self._stored.clear()
        self._stored[device_id] = (is_exact, count)

    # To topics.

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Write a message to its topic once, and offer it to all who hear it here and now."""
        sequence = await self._broadcasts.publish(message, storage_policy, once)
        if isinstance(sequence, StoredResponse):
            return sequence
        if sequence is None:
            return False
        topic = message.topic or ""
        numbered = message._replace(sequence=sequence)
        for connection in self._connections.hearing(message.app_id, topic):
            self._offer_broadcast(connection, numbered, topic)
        return True

    def _offer_broadcast(self, connection: Connection, message: Message, topic: str) -> None:
        cursor = (connection.topics or {}).get(topic)
        if cursor is None:
            return
        if not message.is_stored:
            self._offer(connection, message)
        elif cursor.is_behind or message.sequence != cursor.read + 1:
            cursor.is_behind = True
            connection.carry_out(connection.session.fall_behind())
        elif self._offer(connection, message):
            cursor.read = message.sequence
            cursor.outstanding.add(message.sequence)
        elif connection.session.puts_off(message) and len(cursor.put_off) < PUT_OFF_LIMIT:
            cursor.read = message.sequence
            cursor.put_off[message.sequence] = message.priority
        else:
            cursor.is_behind = True
            connection.carry_out(connection.session.fall_behind())

    async def subscribe(self, device: Device, topic: str) -> bool:
        """Let a device hear a topic from now on; False if the topic was deleted."""
        cursor = await self._broadcasts.subscribe(
            device.app_id, device.id, topic, self._clock.now()
        )
        if cursor is None:
            return False
        connection = self._connections.get(device.id)
        if connection is not None and topic not in (connection.topics or ()):
            self._connections.hear(device.app_id, topic, connection, TopicCursor(cursor, cursor))
            connection.carry_out(connection.session.fall_behind())
        return True

    async def unsubscribe(self, device: Device, topic: str) -> bool:
        """End that."""
        has_ended = await self._broadcasts.unsubscribe(device.id, topic)
        connection = self._connections.get(device.id)
        if connection is not None:
            self._connections.ignore(device.app_id, topic, connection)
            if connection in self._left:
                self._left[connection].add(topic)
        return has_ended

    # To and from connections.

    async def connect(
        self, connection: Connection, device: Device, known: dict[str, int] | None
    ) -> None:
        """Take a device's connection in and begin to give it what it missed."""
        session = connection.session
        session.recognise(device)
        self._connections.add(device.id, connection)
        self._stored.pop(device.id, None)
        self.seen.add(device.id)
        left = self._left[connection] = set()
        try:
            subscriptions = await self._broadcasts.subscriptions(device.id)
            pending = await self._messages.count_waiting(
                device.id, now=self._clock.now(), limit=self._stored_limit
            )
        finally:
            del self._left[connection]
        if session.is_closed:
            return
        for subscription in subscriptions:
            topic = subscription.topic
            start = max(subscription.cursor, (known or {}).get(topic, 0))
            if topic not in left:
                cursor = TopicCursor(start, start)
                self._connections.hear(device.app_id, topic, connection, cursor)
        connection.carry_out(session.welcome(pending))

    def refill(self, connection: Connection, least: PushPriority) -> None:
        """Read more of what waits for a device."""
        self.start(self._refill(connection, least))

    async def _refill(self, connection: Connection, least: PushPriority) -> None:
        now = self._clock.now()
        try:
            found, is_all = await self._read(connection, least, now)
        except ServiceError:
            await asyncio.sleep(RETRY_S)
            found, is_all = [], False
        connection.carry_out(connection.session.refill(found, now, is_all=is_all))

    async def _read(
        self, connection: Connection, least: PushPriority, now: int
    ) -> tuple[list[Message], bool]:
        """Return the next of what waits, and whether that is all."""
        session = connection.session
        if session.device is None or session.is_closed:
            return [], True
        found = await self._messages.waiting(
            session.device.id, now=now, limit=CHUNK, least=least, skip=session.in_hand
        )
        missed, are_all = await self._read_topics(connection, least, now)
        return [*found, *missed], len(found) < CHUNK and are_all

    async def _read_topics(
        self, connection: Connection, least: PushPriority, now: int
    ) -> tuple[list[Message], bool]:
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
        if len(cursor.put_off) >= PUT_OFF_LIMIT:
            least = PushPriority.LOW
        cursor.is_behind = False  # a message that comes while we read makes it true again
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

    def acknowledge(self, connection: Connection, messages: tuple[Message, ...]) -> None:
        """Record acknowledgements, those of all devices of this moment in one go."""
        self._move_cursors(connection, messages)
        self._acknowledged += ((connection, message) for message in messages)

    def drop(self, connection: Connection, messages: tuple[Message, ...]) -> None:
        """Let a topic's cursor pass messages that will not be sent; others the store ends."""
        self._move_cursors(connection, messages)

    def _move_cursors(self, connection: Connection, messages: tuple[Message, ...]) -> None:
        """Let the cursors of topics move at once: a device that leaves takes them along."""
        if not self._acknowledged and not self._moved:
            self.start(self._record_acknowledged())
        device = connection.session.device
        for message in messages:
            topic = message.topic or ""
            cursor = (connection.topics or {}).get(topic)
            if cursor is not None and device is not None and cursor.acknowledge(message.sequence):
                self._moved[device.id, topic] = cursor.acknowledged

    async def _record_acknowledged(self) -> None:
        batch, self._acknowledged = self._acknowledged, []
        moved, self._moved = self._moved, {}
        now = self._clock.now()
        direct = [(m.device_id, m.id) for _, m in batch if m.topic is None]
        while True:
            try:
                await self._store_acknowledged(direct, moved, now)
                break
            except ServiceError as error:
                # The device does not say it twice, so we do.
                get_logger().warning("acknowledgements_wait", code=error.code, count=len(batch))
                await asyncio.sleep(RETRY_S)
        for connection, message in batch:
            self._metrics.observe_delivery(message.priority, (now - message.created_at) / 1000)
            connection.carry_out(connection.session.settle((message.id,)))

    async def _store_acknowledged(
        self, direct: list[tuple[str, str]], moved: dict[tuple[str, str], int], now: int
    ) -> None:
        await self._messages.acknowledge(direct, now)
        # All at once: they meet in the same commits.
        await asyncio.gather(
            *(
                self._broadcasts.advance(device_id, topic, cursor)
                for (device_id, topic), cursor in moved.items()
            )
        )

    def disconnect(self, connection: Connection) -> None:
        """Let a connection go; what it had in hand is in the store."""
        connection.session.is_closed = True
        if self._connections.remove(connection) and connection.session.device is not None:
            self.seen.add(connection.session.device.id)
            self._stored.pop(connection.session.device.id, None)

    # Work that nobody awaits, but that is not forgotten either.

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Do work in the background, to its end."""
        task = asyncio.get_running_loop().create_task(_guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, grace_s: float) -> None:
        """Wait for what is under way, as long as the grace lasts."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()


async def _guard(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except ClarionError as error:
        # Nothing is lost: what was not recorded as delivered is sent again.
        get_logger().warning("gateway_work_failed", code=error.code)


def _first_status(
    message: Message, *, is_online: bool
) -> tuple[MessageStatus, MessageReason | None]:
    if is_online:
        return MessageStatus.PENDING, None
    if message.is_stored:
        return MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE
    return MessageStatus.EXPIRED, MessageReason.NOT_STORED
