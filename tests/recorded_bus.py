"""Nodes in one process that record what they publish, and can be disconnected."""

from collections.abc import Collection

from tests.hub import Hub, HubBus


class RecordedBus(HubBus):
    """While it is disconnected it sends and receives nothing."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self.published: list[tuple[str, bytes]] = []

    def publish(self, subject: str, data: bytes) -> None:
        self.published.append((subject, data))
        if self.is_connected:
            super().publish(subject, data)

    def send_to_holder(self, subject: str, device_id: str, data: bytes) -> None:
        self.published.append((subject, data))
        if self.is_connected:
            super().send_to_holder(subject, device_id, data)

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        return await super().find_held(device_ids) if self.is_connected else frozenset()

    def take(self, subject: str, data: bytes) -> None:
        """Receive a message again."""
        self._take(subject, data)

    def reconnect(self) -> None:
        self.is_connected = True
        self.miss()

    def _take(self, subject: str, data: bytes) -> None:
        if self.is_connected:
            super()._take(subject, data)


class RecordedHub(Hub):
    def join(self) -> RecordedBus:
        bus = RecordedBus(self)
        self.nodes.append(bus)
        return bus
