"""A device at the other end of the wire, and the gateway around it on stores in memory."""

import json
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from clarion.push.apns.request import Push
from clarion.push.connections import Connections, TopicCursor
from clarion.push.dispatch import Dispatch
from clarion.push.model import Device, Message, PushPriority, StoragePolicy
from clarion.push.session import Acknowledged, Authorise, DeviceSession, Dropped, Effect, Refill
from clarion.sockets.protocol import Close, SendFrame
from clarion.telemetry.metrics import GatewayMetrics
from tests.factories import DAY, FixedClock, make_broadcast, make_device
from tests.unit.push.memory import Gates, MemoryBroadcasts, MemoryMessages, settle

STORED_LIMIT = 1_000


class Phone:
    """The `Connection` port: a device that keeps what it gets, and acknowledges when told to."""

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
                    self._dispatch.acknowledge(self, messages)
                case Dropped(messages):
                    self._dispatch.drop(self, messages)
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


class House:
    """The gateway: its dispatch, its stores, and one device that may be connected."""

    def __init__(self, stored_limit: int = STORED_LIMIT) -> None:
        self.clock = FixedClock()
        self.gates = Gates()
        self.messages = MemoryMessages(self.gates)
        self.broadcasts = MemoryBroadcasts(self.gates)
        self.connections = Connections()
        self.device = make_device()
        self.dispatch = Dispatch(
            messages=self.messages,
            broadcasts=self.broadcasts,
            connections=self.connections,
            clock=self.clock,
            metrics=GatewayMetrics(CollectorRegistry()),
            stored_limit=stored_limit,
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
        self.dispatch.start(self.dispatch.connect(phone, self.device, None))
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
        assert await self.dispatch.publish(message, storage_policy) is True
        await settle()
        return message

    def stored(self) -> list[str]:
        """Return the ids of what waits for the device."""
        return [message.id for message in self.messages.stored(self.device.id)]

    def cursor(self, topic: str = "news") -> int:
        return self.broadcasts.cursors[self.device.id, topic]
