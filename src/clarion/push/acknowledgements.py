"""Acknowledgements of devices, recorded in batches: messages as delivered, cursors of topics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.push.connections import Connection
from clarion.push.model import Message
from clarion.push.port import Broadcasts, Messages
from clarion.sockets.tasks import BackgroundTasks
from clarion.telemetry.logs import get_logger
from clarion.telemetry.metrics import GatewayMetrics

RETRY_S = 1.0


@dataclass(slots=True)
class Acknowledgements:
    """Records what devices acknowledge, all acknowledgements of one moment together."""

    messages: Messages
    broadcasts: Broadcasts
    clock: Clock
    metrics: GatewayMetrics
    tasks: BackgroundTasks
    _acknowledged: list[tuple[Connection, Message]] = field(default_factory=list)
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
        now = self.clock.now()
        direct = [(m.device_id, m.id) for _, m in batch if m.topic is None]
        while True:
            try:
                await self.messages.acknowledge(direct, now)
                # Started together, so that they are written in the same commits.
                await asyncio.gather(*(self.broadcasts.advance(*key, moved[key]) for key in moved))
                break
            except ServiceError as error:
                # Devices do not repeat acknowledgements, so the write is repeated.
                get_logger().warning("acknowledgements_wait", code=error.code, count=len(batch))
                await asyncio.sleep(RETRY_S)
        for connection, message in batch:
            self.metrics.observe_delivery(message.priority, max(0, now - message.created_at) / 1000)
            connection.carry_out(connection.session.settle((message,)))
