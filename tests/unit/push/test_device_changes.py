"""Changes of connected devices that other nodes made."""

import asyncio
from collections.abc import Collection
from typing import cast

import pytest

from clarion.access.vault import Vault
from clarion.errors import StoreUnavailable
from clarion.nodes.bus import NoBus
from clarion.push.connections import Connection, Connections
from clarion.push.device_changes import DeviceChanges
from clarion.push.model import Device, DeviceDetails, InvalidationReason
from clarion.push.registry import Registry
from clarion.push.session import DeviceSession, Effect
from clarion.push.sql.devices import Devices
from clarion.sockets.protocol import APP_IS_DELETED, Close, CloseCode
from tests.factories import NOW, FixedClock, make_device
from tests.recorded_bus import RecordedHub
from tests.replacing import replace
from tests.unit.conftest import MemoryEngine

DISCONNECTED = NoBus(is_alone=False)
ANA, BO = DeviceDetails(user_id="ana"), DeviceDetails(user_id="bo")


class Phone:
    """The `Connection` port: a connected device, and the code with which it was closed."""

    topics = None

    def __init__(self, device: Device) -> None:
        self.session = DeviceSession(NOW)
        self.session.device = device
        self.session.connected_at = NOW
        self.closed: CloseCode | None = None
        self.reason = ""
        self.is_closed = asyncio.Event()

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Close):
                self.closed, self.reason = effect.code, effect.reason
                self.is_closed.set()


async def find_none() -> None:
    """Find no deleted app."""


class Node:
    """A node with one connected device, and the store that another node writes to."""

    def __init__(self, engine: MemoryEngine, clock: FixedClock) -> None:
        self.elsewhere = Devices(engine)  # type: ignore[arg-type]
        self.registry = Registry(self.elsewhere, Connections(), clock, Vault(b"k" * 32))
        self.device = make_device(details=ANA)
        self.phone = Phone(self.device)

    async def connect(self) -> None:
        await self.elsewhere.add(self.device)
        self.registry.connections.add(self.device.id, cast("Connection", self.phone))

    async def change(self, change: str) -> None:
        """Change the device as another node does."""
        devices, device = self.elsewhere, self.device
        match change:
            case "secret":
                await devices.set_secret("app", device.id, b"new")
            case "user":
                await devices.update("app", device.id, BO, NOW)
            case "label":
                await devices.update("app", device.id, DeviceDetails(label="new"), NOW)
            case "seen":
                await devices.touch({device.id: NOW}, NOW + 1)
            case "revoked":
                await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
            case "deleted":
                await devices.delete("app", device.id, NOW)
            case _:
                assert change == "nothing"


@pytest.fixture
async def node(engine: MemoryEngine, clock: FixedClock) -> Node:
    node = Node(engine, clock)
    await node.connect()
    return node


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("nothing", None),
        ("seen", None),
        ("label", None),
        ("secret", CloseCode.REVOKED),
        ("revoked", CloseCode.REVOKED),
        ("deleted", CloseCode.REVOKED),
        ("user", CloseCode.RESTARTING),
    ],
)
async def test_a_connection_ends_if_it_must_not_go_on(
    node: Node, change: str, code: CloseCode | None
) -> None:
    found = await node.registry.find("app", node.device.token_hash)
    assert found is not None
    await node.change(change)
    await node.registry.check("app", [node.device])
    assert node.phone.closed == code
    # What is cached is read again, too.
    assert node.registry.is_current(found) is (code is None)


@pytest.mark.parametrize(
    ("opened_at", "code"), [(NOW - 1, None), (NOW, None), (NOW + 1, CloseCode.REPLACED)]
)
async def test_a_connection_ends_if_another_node_has_a_newer_one(
    node: Node, opened_at: int, code: CloseCode | None
) -> None:
    await node.elsewhere.touch({node.device.id: opened_at}, NOW + 2)
    await node.registry.check("app", [node.device])
    assert node.phone.closed == code


async def test_devices_of_a_deleted_app_get_that_as_the_reason(node: Node) -> None:
    await node.change("deleted")

    async def end_app() -> None:
        await node.registry.connections.disconnect_app("app")

    await node.registry.check("app", [node.device], end_app)
    assert node.phone.reason == APP_IS_DELETED


async def test_the_loop_checks_until_it_is_cancelled(node: Node) -> None:
    running = asyncio.create_task(
        DeviceChanges(node.registry, find_none, DISCONNECTED, pause_s=0.001).run()
    )
    await node.change("secret")
    await asyncio.wait_for(node.phone.is_closed.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_connection_that_has_not_said_hello_is_left_alone(node: Node) -> None:
    waiting = Phone(replace(node.device, id="waiting"))
    waiting.session.device = None
    node.registry.connections.add("waiting", cast("Connection", waiting))
    running = asyncio.create_task(
        DeviceChanges(node.registry, find_none, DISCONNECTED, pause_s=0.001).run()
    )
    await node.change("deleted")
    await asyncio.wait_for(node.phone.is_closed.wait(), 10)
    running.cancel()
    assert waiting.closed is None


class TwoNodes:
    """A node that changes a device, and another one to which it is connected."""

    def __init__(self, node: Node, engine: MemoryEngine, clock: FixedClock) -> None:
        hub = RecordedHub()
        self.bus = hub.join()
        devices = Devices(engine)  # type: ignore[arg-type]
        self.here = Registry(devices, Connections(), clock, Vault(b"k" * 32))
        self.here.changed.join(hub.join())
        node.registry.changed.join(self.bus)
        self.changes = DeviceChanges(node.registry, find_none, self.bus, pause_s=0.001)


@pytest.fixture
async def two_nodes(node: Node, engine: MemoryEngine, clock: FixedClock) -> TwoNodes:
    return TwoNodes(node, engine, clock)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("secret", CloseCode.REVOKED),
        ("revoked", CloseCode.REVOKED),
        ("deleted", CloseCode.REVOKED),
        ("user", CloseCode.RESTARTING),
    ],
)
async def test_a_device_that_another_node_changes_is_disconnected_when_that_is_announced(
    node: Node, two_nodes: TwoNodes, change: str, code: CloseCode
) -> None:
    device, here = node.device, two_nodes.here
    running = asyncio.create_task(two_nodes.changes.run_announced())
    match change:
        case "secret":
            await here.renew_secret(device)
        case "user":
            await here.update("app", device.id, BO)
        case "revoked":
            await here.invalidate("app", device.id, InvalidationReason.REVOKED)
        case _:
            await here.delete("app", device.id)
    await asyncio.wait_for(node.phone.is_closed.wait(), 30)
    assert node.phone.closed is code
    running.cancel()


async def test_a_change_that_concerns_nobody_here_reads_nothing(
    node: Node, two_nodes: TwoNodes, engine: MemoryEngine
) -> None:
    await two_nodes.here.add(make_device())
    reads = engine.reads
    await asyncio.sleep(0)
    assert (node.registry.announced, engine.reads) == ({}, reads)


async def test_what_was_announced_is_checked_again_if_the_store_does_not_answer(
    node: Node, two_nodes: TwoNodes
) -> None:
    find_many, failures = node.elsewhere.find_many, [True]

    async def fail_once(app_id: str, device_ids: Collection[str]) -> dict[str, Device]:
        if failures:
            failures.clear()
            raise StoreUnavailable
        return await find_many(app_id, device_ids)

    node.elsewhere.find_many = fail_once  # type: ignore[method-assign]
    running = asyncio.create_task(two_nodes.changes.run_announced())
    await two_nodes.here.renew_secret(node.device)
    await asyncio.wait_for(node.phone.is_closed.wait(), 30)
    running.cancel()


async def test_all_are_checked_after_a_gap(node: Node, two_nodes: TwoNodes) -> None:
    running = asyncio.create_task(two_nodes.changes.run())
    await node.change("secret")
    two_nodes.bus.miss()
    await asyncio.wait_for(node.phone.is_closed.wait(), 30)
    running.cancel()
