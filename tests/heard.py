"""Nodes in one process that record what they tell, and can be made deaf."""

from collections.abc import Collection

from tests.hub import Hub, HubBus


class RecordedBus(HubBus):
    """While it is not hearing it reaches nobody, and nobody reaches it."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self.told: list[tuple[str, bytes]] = []

    def tell(self, subject: str, data: bytes) -> None:
        self.told.append((subject, data))
        if self.is_hearing:
            super().tell(subject, data)

    def tell_holder(self, subject: str, device_id: str, data: bytes) -> None:
        self.told.append((subject, data))
        if self.is_hearing:
            super().tell_holder(subject, device_id, data)

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        return await super().find_held(device_ids) if self.is_hearing else frozenset()

    def take(self, subject: str, data: bytes) -> None:
        """Receive something again, as it was told."""
        self._take(subject, data)

    def hear_again(self) -> None:
        self.is_hearing = True
        self.miss()

    def _take(self, subject: str, data: bytes) -> None:
        if self.is_hearing:
            super()._take(subject, data)


class RecordedHub(Hub):
    def join(self) -> RecordedBus:
        bus = RecordedBus(self)
        self.nodes.append(bus)
        return bus
