"""Several `Bus` objects joined in one process: the nodes of a test."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from clarion.nodes.bus import Receive, Replaced


class HubBus:
    """The `Bus` port. What is said arrives in the next turn of the loop."""

    def __init__(self, hub: "Hub") -> None:
        self.hub = hub
        self.is_hearing = True
        self.told: list[tuple[str, bytes]] = []
        self._receivers: dict[str, Receive] = {}
        self._on_gap: list[Callable[[], None]] = []
        self._on_replaced: list[Replaced] = []

    def hear(self, subject: str, receive: Receive) -> None:
        assert subject not in self._receivers, f"{subject} is heard twice"
        self._receivers[subject] = receive

    def on_gap(self, call: Callable[[], None]) -> None:
        self._on_gap.append(call)

    def on_replaced(self, call: Replaced) -> None:
        self._on_replaced.append(call)

    def tell(self, subject: str, data: bytes) -> None:
        self.told.append((subject, data))
        for other in self.hub.nodes:
            if other is not self:
                self._send(other, subject, data)

    def tell_holder(self, subject: str, device_id: str, data: bytes) -> None:
        self.told.append((subject, data))
        holder, _ = self.hub.held.get(device_id, (self, 0))
        if holder is not self:
            self._send(holder, subject, data)

    def _send(self, other: "HubBus", subject: str, data: bytes) -> None:
        if self.is_hearing and other.is_hearing:
            asyncio.get_running_loop().call_soon(other.receive, subject, data)

    def receive(self, subject: str, data: bytes) -> None:
        if subject in self._receivers:
            self._receivers[subject]([data])

    def hold(self, device_id: str, since: int) -> None:
        holder, held_since = self.hub.held.get(device_id, (self, 0))
        older = self if held_since > since else holder
        if older is holder:
            self.hub.held[device_id] = (self, since)
        if holder is not self:
            asyncio.get_running_loop().call_soon(older.replace, device_id)

    def replace(self, device_id: str) -> None:
        for call in self._on_replaced:
            call([device_id])

    def release(self, device_id: str) -> None:
        if self.hub.held.get(device_id, (None, 0))[0] is self:
            del self.hub.held[device_id]

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        found = ((each, self.hub.held.get(each, (self, 0))[0]) for each in device_ids)
        return frozenset(each for each, holder in found if self.is_hearing and holder is not self)

    # For tests.

    def go_deaf(self) -> None:
        self.is_hearing = False

    def hear_again(self) -> None:
        self.is_hearing = True
        for call in self._on_gap:
            call()


@dataclass
class Hub:
    """Joins the buses of several nodes."""

    nodes: list[HubBus] = field(default_factory=list)
    held: dict[str, tuple[HubBus, int]] = field(default_factory=dict)

    def join(self) -> HubBus:
        self.nodes.append(HubBus(self))
        return self.nodes[-1]
