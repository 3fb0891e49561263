"""Acknowledgements of devices, recorded in batches: messages as delivered, cursors of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.push.connections import Connection
from clarion.push.model import Message, MessageStatus
from clarion.push.port import Broadcasts, Messages
from clarion.sockets.tasks import BackgroundTasks
from clarion.telemetry.logs import get_logger
from clarion.telemetry.metrics import GatewayMetrics
from clarion.telemetry.traces import OFF, Attribute, Kind, Tracer

RETRY_S = 1.0
# Rows in one unit. To settle as many takes a few milliseconds.
ROWS_LIMIT = 500
T = TypeVar("T")
_Acknowledged = tuple[Connection, Message]


@dataclass(slots=True)
class Acknowledgements:
    """Records what devices acknowledge, all acknowledgements of one moment together."""

    messages: Messages
    broadcasts: Broadcasts
    clock: Clock
    metrics: GatewayMetrics
    tasks: BackgroundTasks
    tracer: Tracer = OFF
    _acknowledged: list[_Acknowledged] = field(default_factory=list)
    # By device and topic: the cursors that have moved since they were last stored.
    _moved: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, connection: Connection, messages: tuple[Message, ...]) -> None:
        """Record messages as delivered."""
        self.skip(connection, messages)
        self._acknowledged += ((connection, message) for message in messages)

    def skip(self, connection: Connection, messages: tuple[Message, ...]) -> None:
        """Move the cursors of topics past messages, delivered or not to be sent any more.

        They move at once and are stored later: a device that disconnects meanwhile may connect
        again before that.
        """
        if not self._acknowledged and not self._moved:
            self.tasks.start(self._record())
        device = connection.session.device
        for message in messages:
            topic = message.topic or ""
            cursor = (connection.topics or {}).get(topic)
            if cursor is not None and device is not None and cursor.acknowledge(message.sequence):
                self._moved[device.id, topic] = cursor.acknowledged

    async def _record(self) -> None:
        batch, self._acknowledged = self._acknowledged, []
        moved, self._moved = self._moved, {}
        for cursors in _cut(list(moved.items())):
            await _repeat(self._advance, cursors)
        for part in _cut(batch):
            await _repeat(self._acknowledge, part)
            self._settle(part)

    async def _advance(self, cursors: Sequence[tuple[tuple[str, str], int]]) -> None:
        # Started together, so that they are written in the same commits.
        await asyncio.gather(*(self.broadcasts.advance(*key, to) for key, to in cursors))

    async def _acknowledge(self, part: Sequence[_Acknowledged]) -> None:
        direct = [message for _, message in part if message.topic is None]
        plain = [(each.device_id, each.id) for each in direct if each.notification_id is None]
        notifying = [each for each in direct if each.notification_id is not None]
        await self.messages.acknowledge(plain, self.clock.now(), notifying)

    def _settle(self, part: Sequence[_Acknowledged]) -> None:
        now = self.clock.now()
        for connection, message in part:
            # Not negative: the clock may have been set since.
            seconds = max(0, now - message.created_at) / 1000
            was_connected = message.created_at >= connection.session.connected_at
            self.metrics.observe_delivery(message.priority, seconds if was_connected else None)
            if message.trace is not None:
                self._trace(message, now - message.created_at)
            connection.carry_out(connection.session.settle((message,)))

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
        span = self.tracer.start("acknowledge", message.trace, Kind.CONSUMER, about, age_ms=age_ms)
        span.end()


async def _repeat(write: Callable[[Sequence[T]], Awaitable[None]], part: Sequence[T]) -> None:
    """Write until it is written: devices do not repeat acknowledgements."""
    while True:
        try:
            return await write(part)
        except ServiceError as error:
            get_logger().warning("acknowledgements_wait", code=error.code, count=len(part))
            await asyncio.sleep(RETRY_S)


def _cut(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut rows into parts that are written and settled without delaying others."""
    return (rows[start : start + ROWS_LIMIT] for start in range(0, len(rows), ROWS_LIMIT))
