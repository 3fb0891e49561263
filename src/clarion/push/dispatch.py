"""Messages to devices: stored, then offered to the device's connection, then acknowledged.

A message is durable before the provider is answered. Only then is it offered to the connection of
the device, which is looked up again, so that a device that connected meanwhile is not missed. If it
is not connected here, the message is forwarded to the node that has its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.nodes.bus import ALONE, Bus
from clarion.push.acknowledgements import RETRY_S, Acknowledgements
from clarion.push.connections import Connection, Connections, offer, read_store
from clarion.push.device_circuits import DeviceCircuits
from clarion.push.forwarding import Forwarding
from clarion.push.messages import Messages
from clarion.push.metrics import GatewayMetrics
from clarion.push.model import (
    Device,
    Message,
    MessageContent,
    MessageReason,
    MessageStatus,
    PushPriority,
)
from clarion.push.sql.topics import Broadcasts
from clarion.push.stored_limit import StoredLimit
from clarion.push.topic_dispatch import CHUNK, TopicDispatch
from clarion.sockets.tasks import BackgroundTasks
from clarion.telemetry.traces import OFF, Tracer, find_context


class Dispatch:
    """Accepts messages to devices, and serves the connections of devices."""

    def __init__(  # noqa: PLR0913 - a line for each dependency
        self,
        *,
        messages: Messages,
        broadcasts: Broadcasts,
        connections: Connections,
        clock: Clock,
        metrics: GatewayMetrics,
        stored_limit: int,
        bus: Bus = ALONE,
        gather_s: float = 0,
        tracer: Tracer = OFF,
        circuits: DeviceCircuits | None = None,
    ) -> None:
        """`gather_s` is how long acknowledgements wait for others after a commit."""
        self.tasks = BackgroundTasks()
        self.forwarding = Forwarding(bus, connections, clock)
        self.topics = TopicDispatch(broadcasts, connections, clock, self.tasks, self.forwarding)
        self.acknowledgements = Acknowledgements(
            messages,
            broadcasts,
            clock,
            metrics,
            self.tasks,
            gather_s=gather_s,
            tracer=tracer,
        )
        # Devices that connected or disconnected since this was last emptied, and when their newest
        # connection to this node was opened.
        self.seen: dict[str, int] = {}
        self._messages = messages
        self._connections = connections
        self._clock = clock
        self.circuits = DeviceCircuits() if circuits is None else circuits
        self._metrics = metrics
        self._stored = StoredLimit(messages, clock, stored_limit)
        self._last_sequence = 0

    # For providers.

    async def accept(self, device: Device, push: MessageContent, message_id: str) -> bool:
        """Store a push and offer it; False if it is a repeat. Returns after the commit."""
        message, status, reason = self.make_message(device, push, message_id)
        if status is MessageStatus.EXPIRED and await self._is_reachable(device.id):
            status, reason = MessageStatus.PENDING, None
        is_new = await self._messages.add(message, status, reason)
        await self.announce(message, status, is_repeat=not is_new)
        return is_new

    async def _is_reachable(self, device_id: str) -> bool:
        """Return whether the device is connected to another node, or by now to this one."""
        elsewhere = await self.forwarding.bus.find_held((device_id,))
        return bool(elsewhere) or self._connections.get(device_id) is not None

    async def fail(self, device: Device, message_id: str) -> None:
        """Fail a message whose device was invalidated while it was stored."""
        await self._messages.fail(device.id, message_id, self._clock.now())
        self._metrics.count_ended("failed")

    async def expire(self, now: int, limit: int) -> int:
        """Expire messages whose time has passed, at most `limit`; return how many."""
        expired = await self._messages.expire(now, limit)
        self._metrics.count_ended("expired", expired)
        return expired

    async def cancel(self, device: Device, message_id: str) -> bool:
        """Cancel a waiting message; False if it is not waiting, or was just acknowledged.

        A device that has received it may still show it.
        """
        if not await self._messages.cancel(device.id, message_id, self._clock.now()):
            return False
        if connection := self._connections.get(device.id):
            connection.carry_out(connection.session.withdraw(message_id))
        else:
            self.forwarding.withdraw(device.id, message_id)
        return True

    # For a unit of another slice: make the message, store it with `add_steps` of `sql/messages.py`,
    # and announce it after the commit.

    def make_message(
        self,
        device: Device,
        content: MessageContent,
        message_id: str,
        notification_id: str | None = None,
    ) -> tuple[Message, MessageStatus, MessageReason | None]:
        """Return a message with the status and the reason that it is stored with."""
        now = self._clock.now()
        # Later ones sort later, also within a millisecond and when the clock is set back.
        self._last_sequence = max(self._last_sequence + 1, now * 1000)
        message = Message(
            id=message_id,
            device_id=device.id,
            app_id=device.app_id,
            sequence=self._last_sequence,
            payload=content.payload,
            priority=content.priority,
            collapse_id=content.collapse_id,
            is_stored=content.is_stored,
            created_at=now,
            expires_at=content.expires_at,
            notification_id=notification_id,
            trace=find_context(),
        )
        is_online = self._connections.get(device.id) is not None
        return message, *_first_status(message, is_online=is_online)

    async def announce(
        self, message: Message, status: MessageStatus, *, is_repeat: bool = False
    ) -> None:
        """Offer a stored message to the device's connection, and trim the stored messages.

        A repeat may have been delivered before: the connection reads the store to see if it waits.
        """
        # Looked up after the commit: a device that connected meanwhile is not missed.
        connection = self._connections.get(message.device_id)
        if is_repeat:
            # The first response was lost, and perhaps the offer with it.
            if connection is not None:
                read_store(connection)
            else:
                self.forwarding.announce_waiting(message.device_id)
            return
        self._metrics.count(message.priority, status)
        is_taken = connection is not None and offer(connection, message, self._clock.monotonic())
        if connection is None and status is not MessageStatus.EXPIRED:
            self._forward(message)
        if message.is_stored and not is_taken and self._stored.add_one(message.device_id):
            await self._stored.trim(message.device_id)

    def _forward(self, message: Message) -> None:
        """Forward a message, unless it is stored and the circuit of its device is open."""
        now = self._clock.monotonic()
        if not (message.is_stored and self.circuits.puts_off(message.device_id, now)):
            self.forwarding.forward(message)

    # For connections.

    async def connect(
        self, connection: Connection, device: Device, known: dict[str, int] | None
    ) -> None:
        """Add a device's connection, and start to send what the device missed."""
        session = connection.session
        session.device = device
        # Newer than every stored connection, also if the clock was set back since.
        session.connected_at = max(self._clock.now(), (device.connected_at or 0) + 1)
        self._connections.add(device.id, connection)
        self.forwarding.bus.hold(device.id, session.connected_at)
        self._note_seen(device.id, session.connected_at)
        # Read when other nodes know the connection: they forward what they store later.
        await self.forwarding.bus.settle()
        await self.topics.resume(connection, device, known)
        pending = await self._messages.count_waiting(
            device.id, now=self._clock.now(), limit=self._stored.limit
        )
        has_missed = pending > 0 or bool(connection.topics)
        connection.carry_out(session.welcome(pending, has_missed=has_missed))

    def disconnect(self, connection: Connection) -> None:
        """Remove a connection; unacknowledged messages are still stored."""
        session = connection.session
        session.is_closed = True
        if self._connections.remove(connection) and session.device is not None:
            self.forwarding.bus.release(session.device.id)
            self._note_seen(session.device.id, session.connected_at)

    def _note_seen(self, device_id: str, connected_at: int) -> None:
        self.seen[device_id] = connected_at
        self._stored.forget(device_id)

    async def find_recent(self, after: int, limit: int) -> Sequence[tuple[int, str]]:
        """Return the messages waiting after a sequence for devices of these apps connected here."""
        app_ids = self._connections.list_apps()
        if not app_ids:
            return ()
        now = self._clock.now()
        return await self._messages.find_recent(app_ids, after=after, now=now, limit=limit)

    def read_stored(self, device_ids: Iterable[str]) -> None:
        """Let those of the devices that are connected here read the stored messages."""
        for connection in self._connections.find(device_ids):
            read_store(connection)

    async def catch_up(self, app_id: str, connections: Collection[Connection]) -> None:
        """Let connections of an app read stored messages, in case these were not announced."""
        ready = [each for each in connections if each.session.is_ready]
        devices = [each.session.device.id for each in ready if each.session.device is not None]
        for device_id in await self._messages.find_waiting(devices, self._clock.now()):
            if connection := self._connections.get(device_id):
                read_store(connection)
        await self.topics.catch_up(app_id, ready)

    def refill(self, connection: Connection, least: PushPriority) -> None:
        """Read more stored messages for a connection, of at least this priority."""
        self.tasks.start(self._refill(connection, least))

    async def _refill(self, connection: Connection, least: PushPriority) -> None:
        try:
            found, is_all = await self._read(connection, least, self._clock.now())
        except ServiceError:
            await asyncio.sleep(RETRY_S)
            found, is_all = [], False
        now = self._clock.monotonic()
        connection.carry_out(connection.session.refill(found, now, is_all=is_all))

    async def _read(
        self, connection: Connection, least: PushPriority, now: int
    ) -> tuple[list[Message], bool]:
        """Return the next stored messages, and whether these are all."""
        session = connection.session
        if session.device is None or session.is_closed:
            return [], True
        found = await self._messages.waiting(
            session.device.id, now=now, limit=CHUNK, least=least, skip=session.in_hand
        )
        missed, are_all = await self.topics.read_missed(connection, least, now)
        return [*found, *missed], len(found) < CHUNK and are_all


def _first_status(
    message: Message, *, is_online: bool
) -> tuple[MessageStatus, MessageReason | None]:
    if is_online:
        return MessageStatus.PENDING, None
    if message.is_stored:
        return MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE
    return MessageStatus.EXPIRED, MessageReason.NOT_STORED
