"""The `Bus` port inside one process: nodes that a test joins."""

import asyncio
from collections import defaultdict
from collections.abc import Collection

from clarion.nodes.receivers import Receivers


class Hub:
    """What the nodes of a test share: who they are, and who holds which device."""

    def __init__(self) -> None:
        self.nodes: list[HubBus] = []
        self.holders: dict[str, tuple[int, HubBus]] = {}

    def join(self) -> "HubBus":
        bus = HubBus(self)
        self.nodes.append(bus)
        return bus

    def leave(self, bus: "HubBus") -> None:
        """Take a node away, as if it were stopped."""
        self.nodes.remove(bus)
        self.holders = {key: each for key, each in self.holders.items() if each[1] is not bus}


class HubBus:
    """The `Bus` port of one node. A test sets `is_connected`, and calls `miss` for a gap."""

    def __init__(self, hub: Hub) -> None:
        self.is_connected = True
        self._hub = hub
        self._receivers = Receivers()
        self.subscribe = self._receivers.subscribe
        self.on_gap = self._receivers.on_gap
        self.on_replaced = self._receivers.on_replaced
        # Let this node know that it may have missed something.
        self.miss = self._receivers.miss
        self._incoming: dict[str, list[bytes]] = defaultdict(list)
        self._replaced: list[str] = []
        self._is_called = False

    def publish(self, subject: str, data: bytes) -> None:
        for node in self._hub.nodes:
            if node is not self:
                node._take(subject, data)

    def send_to_holder(self, subject: str, device_id: str, data: bytes) -> None:
        _, holder = self._hub.holders.get(device_id, (0, self))
        if holder is not self:
            holder._take(subject, data)

    def hold(self, device_id: str, since: int) -> None:
        former_since, former = self._hub.holders.get(device_id, (since, self))
        if former is not self and former_since > since:
            self._lose(device_id)
            return
        self._hub.holders[device_id] = (since, self)
        if former is not self:
            former._lose(device_id)

    def release(self, device_id: str) -> None:
        if self._hub.holders.get(device_id, (0, None))[1] is self:
            del self._hub.holders[device_id]

    async def settle(self) -> None:
        """What is held is seen at once."""

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        holders = self._hub.holders
        return frozenset(
            each for each in device_ids if each in holders and holders[each][1] is not self
        )

    def _take(self, subject: str, data: bytes) -> None:
        self._incoming[subject].append(data)
        self._call_soon()

    def _lose(self, device_id: str) -> None:
        self._replaced.append(device_id)
        self._call_soon()

    def _call_soon(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._receive)

    def _receive(self) -> None:
        incoming, self._incoming = self._incoming, defaultdict(list)
        replaced, self._replaced = self._replaced, []
        self._is_called = False
        for subject, said in incoming.items():
            self._receivers.receive(subject, said)
        self._receivers.replace(replaced)
