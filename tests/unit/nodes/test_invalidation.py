"""What several nodes have cached is dropped on all of them."""

import asyncio

import pytest

from clarion.nodes.invalidation import Invalidation
from tests.recorded_bus import RecordedBus, RecordedHub


class Cache:
    """Records what it was called to forget."""

    def __init__(self, bus: RecordedBus) -> None:
        self.forgotten: list[object] = []
        self.forget = Invalidation(
            "test.entry", self._forget, lambda: self.forgotten.append("everything")
        )
        self.forget.join(bus)

    def _forget(self, app_id: str, token_hash: bytes) -> None:
        self.forgotten.append((app_id, token_hash))


@pytest.fixture
async def caches() -> list[Cache]:
    hub = RecordedHub()
    return [Cache(hub.join()) for _ in range(3)]


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_key_is_forgotten_here_at_once_and_then_on_every_node(caches: list[Cache]) -> None:
    caches[0].forget("app", b"\x00\xff")
    assert [each.forgotten for each in caches] == [[("app", b"\x00\xff")], [], []]
    await settle()
    assert [each.forgotten for each in caches] == [[("app", b"\x00\xff")]] * 3


async def test_everything_is_forgotten_after_a_gap() -> None:
    bus = RecordedHub().join()
    cache = Cache(bus)
    bus.is_connected = False
    bus.reconnect()
    assert cache.forgotten == ["everything"]


@pytest.mark.parametrize("data", [b"\xc1", b"\x91\xa1a"])
async def test_everything_is_forgotten_if_a_key_cannot_be_read(data: bytes) -> None:
    hub = RecordedHub()
    cache = Cache(hub.join())
    hub.join().publish("test.entry", data)
    await settle()
    assert cache.forgotten == ["everything"]


async def test_without_a_bus_only_this_node_forgets() -> None:
    forgotten: list[str] = []
    forget = Invalidation("test.entry", forgotten.append, forgotten.clear)
    forget("a")
    assert forgotten == ["a"]
    assert forget.bus.is_connected
