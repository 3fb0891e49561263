"""A device and its connections, over a network that delays, loses and cuts."""

import asyncio
import json
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from picows import WSMsgType

from clarion.sockets.protocol import PONG, CloseCode
from tests.simulation.faults import Faults
from tests.simulation.loop import SeededLoop
from tests.simulation.node import Node

_SHORTEST, _SHORT, _LONG = 125, 126, 127
AGAIN_S = 1.0
# The longest time that a device is away.
AWAY_S = 60


@dataclass
class Spell:
    """A time in which a device was connected and ready."""

    node: int
    began: float
    ended: float = math.inf


class Wire:
    """One connection, as picows shows it to the server. What is sent arrives in its order."""

    def __init__(self, node: Node, device: "SimulatedDevice", faults: Faults) -> None:
        self.request = SimpleNamespace(path=b"/v1/gateway", headers={})
        self.is_disconnected = self.is_close_frame_sent = False
        self.underlying_transport = self
        self.node = node.number
        self._node, self._device, self._faults = node, device, faults
        self._loop = device.loop
        self._to_device: deque[tuple[str, Any]] = deque()
        self._to_server: deque[bytes] = deque()
        self._gone = self._loop.create_future()
        self.socket: Any = node.accept()
        node.ended.add_done_callback(lambda _: self._lose(), context=Context())

    # What the server does.

    def send(self, _type: WSMsgType, data: bytes) -> None:
        self._queue("text", data)

    def write(self, wire: bytes) -> None:
        for payload in split(wire):
            self._queue("text", payload)

    def send_pong(self, data: bytes) -> None:
        del data

    def send_close(self, code: int, _reason: bytes = b"") -> None:
        self.is_close_frame_sent = True
        self._queue("close", int(code))

    def disconnect(self, *, graceful: bool = True) -> None:
        del graceful
        self._lose()

    async def wait_disconnected(self) -> None:
        await asyncio.shield(self._gone)

    # What the device does.

    def open(self) -> None:
        self._node.call(self._faults.delay_s("network"), self._connect)

    def say(self, data: bytes) -> None:
        """Send a frame to the server."""
        self._to_server.append(data)
        self._node.call(self._faults.delay_s("network"), self._arrive)

    def cut(self) -> None:
        """End it on both sides, each of which learns it in its time."""
        self._lose()

    def _connect(self) -> None:
        if not self._node.is_ready:
            self._lose()
        elif not self.is_disconnected:
            self.socket.on_ws_connected(self)
            self._device.greet(self)

    def _arrive(self) -> None:
        data = self._to_server.popleft()
        if not self.is_disconnected:
            frame: Any = SimpleNamespace(
                msg_type=WSMsgType.TEXT,
                fin=True,
                tail_size=0,
                payload_size=len(data),
                get_payload_as_bytes=lambda: data,
            )
            self.socket.on_ws_frame(self, frame)

    def _queue(self, kind: str, content: Any) -> None:
        self._to_device.append((kind, content))
        self._loop.call_apart(self._faults.delay_s("network"), self._deliver)

    def _deliver(self) -> None:
        kind, content = self._to_device.popleft()
        if self._device.wire is not self or self.is_disconnected:
            return
        if kind == "close":
            self._device.refused(CloseCode(content) if content in set(CloseCode) else None)
            self._lose()
        else:
            self._device.subscribe(self, content)

    def _lose(self) -> None:
        if self.is_disconnected:
            return
        self.is_disconnected = True
        self._device.end_spell(self)
        self._node.call(self._faults.delay_s("network"), self._notify_server)
        self._loop.call_apart(self._faults.delay_s("network"), lambda: self._device.lost(self))

    def _notify_server(self) -> None:
        self.socket.on_ws_disconnected(self)
        if not self._gone.done():
            self._gone.set_result(None)


def split(wire: bytes) -> list[bytes]:
    """Return the payloads of text frames of a server."""
    payloads, at = [], 0
    while at < len(wire):
        size, at = wire[at + 1], at + 2
        if size == _SHORT:
            size, at = int.from_bytes(wire[at : at + 2], "big"), at + 2
        elif size == _LONG:
            size, at = int.from_bytes(wire[at : at + 8], "big"), at + 8
        payloads.append(wire[at : at + size])
        at += size
    return payloads


class SimulatedDevice:
    """A device that stays connected, and acknowledges what it has got."""

    def __init__(
        self,
        loop: SeededLoop,
        faults: Faults,
        find_node: Callable[[], Node | None],
        device_id: str,
        token: str,
        secret: str,
        note: Callable[[str], None],
    ) -> None:
        self.loop, self._faults, self._find_node = loop, faults, find_node
        self.id, self._token, self._secret, self._note = device_id, token, secret, note
        self.wire: Wire | None = None
        self.is_revoked = self._is_away = False
        # When messages came first.
        self.received: dict[str, float] = {}
        self.spells: list[Spell] = []

    def connect(self) -> None:
        """Connect, now or as soon as there is a server."""
        if self.is_revoked or self._is_away or self.wire is not None:
            return
        node = self._find_node()
        if node is None or not node.is_ready:
            self._retry()
            return
        self.wire = Wire(node, self, self._faults)
        self.wire.open()

    def leave(self) -> None:
        """Be away for some time."""
        self._is_away = True
        if self.wire is not None:
            self.wire.cut()
        self.loop.call_apart(AWAY_S * self._faults.chance.random(), self._return)

    def _return(self) -> None:
        self._is_away = False
        self.connect()

    def _retry(self) -> None:
        self.loop.call_apart(AGAIN_S * (0.5 + self._faults.chance.random()), self.connect)

    def greet(self, wire: Wire) -> None:
        """Say hello: the connection is open."""
        hello = {"type": "hello", "token": self._token, "secret": self._secret}
        wire.say(json.dumps(hello).encode())

    def subscribe(self, wire: Wire, data: bytes) -> None:
        """Take what the server says."""
        frame = json.loads(data)
        if frame["type"] == "ping":
            wire.say(PONG)
        elif frame["type"] == "ready":
            self.spells.append(Spell(wire.node, self.loop.awake()))
        elif frame["type"] == "notification":
            self.received.setdefault(frame["id"], self.loop.awake())
            self._note(f"{self.id[-4:]} got {frame['id'][-12:]}")
            if self._faults.happens("cut"):
                wire.cut()
            elif not self._faults.happens("ack_lost"):
                wire.say(json.dumps({"type": "ack", "id": frame["id"]}).encode())

    def refused(self, code: CloseCode | None) -> None:
        """Take note that the server has closed the connection."""
        if code in (CloseCode.REVOKED, CloseCode.NOT_AUTHORISED):
            self.is_revoked = True

    def lost(self, wire: Wire) -> None:
        """Connect again: the connection has ended."""
        if self.wire is wire:
            self.wire = None
            self._retry()

    def end_spell(self, wire: Wire) -> None:
        """Take note that nothing comes over a connection any more."""
        if self.wire is wire and self.spells:
            self.spells[-1].ended = min(self.spells[-1].ended, self.loop.awake())
