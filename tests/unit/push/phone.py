"""A device at the other end of a connection, and a gateway on a store in memory."""

import json
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from clarion.nodes.bus import ALONE, Bus
from clarion.push.apns.request import Push
from clarion.push.connections import Connections, TopicCursor
from clarion.push.dispatch import Dispatch
from clarion.push.metrics import GatewayMetrics
from clarion.push.model import (
    Device,
    Message,
    MessageReason,
    MessageStatus,
    PushPriority,
    StoragePolicy,
)
from clarion.push.session import Acknowledged, Authorise, DeviceSession, Dropped, Effect, Refill
from clarion.push.sql.messages import SqlHistory, SqlMessages
from clarion.push.sql.topics import Broadcasts
from clarion.sockets.protocol import Close, SendFrame
from tests.factories import DAY, FixedClock, make_broadcast, make_device
from tests.unit.push.gates import GatedStore, settle

STORED_LIMIT = 1_000


class Phone:
    """A `Connection` whose device keeps what it gets, and acknowledges when the test says so."""

    def __init__(self, dispatch: Dispatch, clock: FixedClock) -> None:
        self.session = DeviceSession(clock.now())
        self.topics: dict[str, TopicCursor] | None = None
        self.got: list[dict[str, Any]] = []
        self.unacknowledged: list[str] = []
        self.is_ready = False
        self.close: Close | None = None
        self._dispatch = dispatch
        self._clock = clock

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame(data):
                    self._take(json.loads(data))
                case Acknowledged(messages):
                    self._dispatch.acknowledgements.add(self, messages)
                case Dropped(messages):
                    self._dispatch.acknowledgements.skip(self, messages)
                case Refill(least):
                    self._dispatch.refill(self, least)
                case Close():
                    self.close = effect
                case Authorise():
                    raise AssertionError(effect)

    def _take(self, frame: dict[str, Any]) -> None:
        self.is_ready = self.is_ready or frame["type"] == "ready"
        if frame["type"] == "notification":
            assert self.is_ready
            assert self.close is None
            assert frame["id"] not in [each["id"] for each in self.got], "sent twice"
            self.got.append(frame)
            self.unacknowledged.append(frame["id"])

    @property
    def ids(self) -> list[str]:
        return [frame["id"] for frame in self.got]

    def say(self, **frame: Any) -> None:
        data = json.dumps(frame).encode()
        self.carry_out(self.session.receive(data, is_text=True, now=self._clock.now()))

    def acknowledge(self, count: int = 1_000) -> None:
        """Acknowledge the oldest of what has come."""
        ids, self.unacknowledged = self.unacknowledged[:count], self.unacknowledged[count:]
        self.say(type="ack", ids=ids)


class Gateway:
    """A dispatch, its store, and one device that may be connected."""

    def __init__(
        self,
        stored_limit: int = STORED_LIMIT,
        *,
        bus: Bus = ALONE,
        beside: "Gateway | None" = None,
    ) -> None:
        """With `beside`: another node on the same store, for the same device."""
        self.clock: FixedClock = beside.clock if beside else FixedClock()
        self.store: GatedStore = beside.store if beside else GatedStore()
        self.gates = self.store.gates
        self.broadcasts = Broadcasts(self.store.open)
        self.connections = Connections()
        self.device: Device = beside.device if beside else make_device()
        self.dispatch = Dispatch(
            messages=SqlMessages(self.store.gated, pause_s=0),
            broadcasts=Broadcasts(self.store.gated, pause_s=0),
            connections=self.connections,
            clock=self.clock,
            metrics=GatewayMetrics(CollectorRegistry()),
            stored_limit=stored_limit,
            bus=bus,
        )

    async def connect(
        self, device: Device | None = None, known: dict[str, int] | None = None
    ) -> Phone:
        """Connect a device and wait until it has what it can get."""
        phone = Phone(self.dispatch, self.clock)
        await self.dispatch.connect(phone, device or self.device, known)
        await settle()
        return phone

    def start_connecting(self) -> Phone:
        phone = Phone(self.dispatch, self.clock)
        self.dispatch.tasks.start(self.dispatch.connect(phone, self.device, None))
        return phone

    async def push(self, message_id: str, **changes: Any) -> bool:
        accepted = await self.dispatch.accept(self.device, self.make_push(**changes), message_id)
        await settle()
        return accepted

    def make_push(self, **changes: Any) -> Push:
        values: dict[str, Any] = {
            "id": None,
            "token_hash": self.device.token_hash,
            "bundle_id": "com.example.app",
            "priority": PushPriority.IMMEDIATE,
            "collapse_id": None,
            "is_stored": True,
            "expires_at": self.clock.now() + DAY,
            "payload": b'{"aps":{}}',
        }
        return Push(**values | changes)

    async def publish(self, topic: str = "news", **changes: Any) -> Message:
        message = make_broadcast(topic, created_at=self.clock.now(), **changes)
        storage_policy = StoragePolicy.ALL if message.is_stored else StoragePolicy.NONE
        assert await self.dispatch.topics.publish(message, storage_policy) is True
        await settle()
        return message

    async def subscribe(self, topic: str = "news") -> bool:
        return await self.dispatch.topics.subscribe(self.device, topic)

    async def unsubscribe(self, topic: str = "news") -> bool:
        return await self.dispatch.topics.unsubscribe(self.device, topic)

    async def stored(self) -> list[str]:
        """Return the ids of the messages that wait for the device."""
        messages = SqlMessages(self.store.open)
        found = await messages.waiting(self.device.id, now=self.clock.now(), limit=10_000)
        return [message.id for message in found]

    async def state_of(self, message_id: str) -> tuple[MessageStatus, MessageReason | None]:
        record = await SqlHistory(self.store.open).get("app", self.device.id, message_id)
        assert record is not None
        return record.status, record.reason

    async def cursor(self, topic: str = "news") -> int:
        subscriptions = await self.broadcasts.subscriptions(self.device.id)
        return next(each.cursor for each in subscriptions if each.topic == topic)

    async def last_sequence(self, topic: str = "news") -> int:
        """Return the sequence of the last message: there a new subscriber starts."""
        cursor = await self.broadcasts.subscribe("app", "another", topic, self.clock.now())
        assert cursor is not None
        return cursor
