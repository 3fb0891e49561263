"""Acknowledgements of devices, recorded in batches: messages as delivered, cursors of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.pacing import Pace, cut
from clarion.push.connections import Connection, TopicCursor
from clarion.push.messages import Messages
from clarion.push.metrics import GatewayMetrics
from clarion.push.model import Message, MessageStatus
from clarion.push.sql.topics import Broadcasts
from clarion.sockets.tasks import BackgroundTasks
from clarion.telemetry.outages import Work
from clarion.telemetry.traces import OFF, Attribute, StepKind, Tracer

RETRY_S = 1.0
# The pause after each commit, so that acknowledgements that arrive one by one share the next one.
# Nothing waits for it: if a crash loses an acknowledgement, the message is sent again, with its id.
GATHER_S = 0.02
# Rows in one unit. Settling that many takes a few milliseconds.
ROWS_LIMIT = 500
T = TypeVar("T")
_Delivered = dict[Connection, list[Message]]


class Acknowledgements:
    """Records what devices acknowledge, in one commit for all that arrive together."""

    def __init__(
        self,
        messages: Messages,
        broadcasts: Broadcasts,
        clock: Clock,
        metrics: GatewayMetrics,
        tasks: BackgroundTasks,
        *,
        gather_s: float = 0,
        tracer: Tracer = OFF,
    ) -> None:
        self._messages = messages
        self._broadcasts = broadcasts
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._gather_s = gather_s
        self._tracer = tracer
        self._pace = Pace()
        self._work = Work("acknowledgements")
        self._is_recording = False
        self._delivered: _Delivered = {}
        # The device and the topic of the cursors that may have moved since they were last stored.
        self._moved: dict[TopicCursor, tuple[str, str]] = {}

    def add(self, connection: Connection, messages: Sequence[Message]) -> None:
        """Record messages as delivered."""
        self.skip(connection, messages)
        delivered = self._delivered.get(connection)
        if delivered is None:
            self._delivered[connection] = list(messages)
        else:
            delivered.extend(messages)

    def skip(self, connection: Connection, messages: Sequence[Message]) -> None:
        """Move the cursors of topics past messages, delivered or not to be sent any more.

        The cursor is changed at once and stored later: a device may disconnect and reconnect in
        between.
        """
        if not self._is_recording:
            self._is_recording = True
            self._tasks.start(self._record())
        topics, device = connection.topics, connection.session.device
        if not topics or device is None:
            return
        for message in messages:
            cursor = topics.get(message.topic) if message.topic is not None else None
            if cursor is not None:
                cursor.outstanding.discard(message.sequence)
                if cursor not in self._moved:
                    self._moved[cursor] = device.id, message.topic or ""

    async def _record(self) -> None:
        try:
            while self._delivered or self._moved:
                await self._record_waiting()
                if self._gather_s:
                    await asyncio.sleep(self._gather_s)
        finally:
            self._is_recording = False

    async def _record_waiting(self) -> None:
        moved, self._moved = self._moved, {}
        delivered, self._delivered = self._delivered, {}
        rows = [(*key, cursor.acknowledged) for cursor, key in moved.items() if cursor.advance()]
        for part in cut(rows, ROWS_LIMIT):
            await _repeat(self._broadcasts.advance_many, part, self._work)
        direct = [each for some in delivered.values() for each in some if each.topic is None]
        for some in cut(direct, ROWS_LIMIT):
            await _repeat(self._acknowledge, some, self._work)
        async for connection, messages in self._pace.over(delivered.items()):
            self._settle(connection, messages)

    async def _acknowledge(self, some: Sequence[Message]) -> None:
        plain = [(each.device_id, each.id) for each in some if each.notification_id is None]
        notifying = [each for each in some if each.notification_id is not None]
        await self._messages.acknowledge(plain, self._clock.now(), notifying)

    def _settle(self, connection: Connection, messages: Sequence[Message]) -> None:
        now, connected_at = self._clock.now(), connection.session.connected_at
        for message in messages:
            # Not negative: the clock may have been set back since.
            seconds = max(0, now - message.created_at) / 1000
            was_connected = message.created_at >= connected_at
            self._metrics.observe_delivery(message.priority, seconds if was_connected else None)
            if message.trace is not None:
                self._trace(message, now - message.created_at)
        connection.carry_out(connection.session.settle(messages))

    def _trace(self, message: Message, age_ms: int) -> None:
        """Record the step from the commit of a message to that of its acknowledgement."""
        about: dict[str, Attribute] = {
            "clarion.app.id": message.app_id,
            "clarion.device.id": message.device_id,
            "clarion.message.id": message.id,
            "clarion.message.status": MessageStatus.DELIVERED.value,
        }
        if message.notification_id is not None:
            about["clarion.notification.id"] = message.notification_id
        span = self._tracer.start(
            "acknowledge", message.trace, StepKind.CONSUMER, about, age_ms=age_ms
        )
        span.end()


async def _repeat(
    write: Callable[[Sequence[T]], Awaitable[None]], part: Sequence[T], work: Work
) -> None:
    """Retry until it is written: devices do not repeat acknowledgements."""
    while True:
        try:
            await write(part)
        except ServiceError as error:
            work.fail(error)
            await asyncio.sleep(RETRY_S)
        else:
            return work.succeed()
