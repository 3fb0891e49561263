"""The registry: what is cached, for how long, and what a change does to it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.access.vault import Vault
from clarion.push.connections import Connections
from clarion.push.model import Device, DeviceDetails, InvalidationReason, Platform
from clarion.push.registry import (
    DISCONNECTED_KNOWN_MS,
    DISCONNECTED_UNKNOWN_MS,
    ENTRIES_LIMIT,
    INVALID_KEPT,
    KNOWN_MS,
    UNKNOWN_MS,
    Registry,
    hash_secret,
    new_token,
)
from clarion.push.sql.devices import Devices
from tests.factories import NOW, FixedClock, make_device
from tests.recorded_bus import RecordedHub
from tests.replacing import replace
from tests.unit.push.gates import GatedStore

VAULT = Vault(b"k" * 32)
DETAILS = DeviceDetails(label="new")


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
def devices(store: GatedStore) -> Devices:
    """The devices as they are stored, whatever the registry has cached."""
    return Devices(store.open)


@pytest.fixture
def registry(store: GatedStore, clock: FixedClock) -> Registry:
    return Registry(Devices(store.gated), Connections(), clock, VAULT)


@pytest.fixture
async def device(devices: Devices) -> Device:
    device = make_device()
    await devices.add(device)
    return device


async def test_a_known_token_is_looked_up_once_an_hour(
    registry: Registry, store: GatedStore, device: Device, clock: FixedClock
) -> None:
    assert await registry.find(device.app_id, device.token_hash) == device
    clock.advance(KNOWN_MS - 1)
    assert await registry.find(device.app_id, device.token_hash) == device
    assert store.reads == 1
    clock.advance(1)
    await registry.find(device.app_id, device.token_hash)
    assert store.reads == 2


async def test_an_unknown_token_is_looked_up_once_in_five_minutes(
    registry: Registry, store: GatedStore, clock: FixedClock
) -> None:
    assert await registry.find("app", b"unknown") is None
    clock.advance(UNKNOWN_MS - 1)
    assert await registry.find("app", b"unknown") is None
    assert store.reads == 1
    clock.advance(1)
    await registry.find("app", b"unknown")
    assert store.reads == 2


async def test_hits_and_misses_are_counted(registry: Registry, device: Device) -> None:
    for _ in range(3):
        await registry.find(device.app_id, device.token_hash)
    assert (registry.hits, registry.misses) == (2, 1)


async def test_a_device_is_cached_for_an_hour(registry: Registry, device: Device) -> None:
    assert registry.get_cached("app", device.token_hash, NOW) is None
    found = await registry.find(device.app_id, device.token_hash)
    assert found == device
    assert registry.get_cached("app", device.token_hash, NOW + KNOWN_MS - 1) is found
    assert registry.get_cached("app", device.token_hash, NOW + KNOWN_MS) is None
    assert (registry.hits, registry.misses) == (1, 1)


async def test_an_unknown_token_is_not_a_cached_device(registry: Registry) -> None:
    await registry.find("app", b"unknown")
    assert registry.get_cached("app", b"unknown", NOW) is None


async def test_a_device_that_changed_is_not_cached(registry: Registry, device: Device) -> None:
    await registry.find(device.app_id, device.token_hash)
    await registry.renew_secret(device)
    assert registry.get_cached("app", device.token_hash, NOW) is None


CHANGES: dict[str, Callable[[Registry, Device], Awaitable[object]]] = {
    "refresh": lambda registry, device: registry.refresh(device, is_by_app=True),
    "renew_secret": lambda registry, device: registry.renew_secret(device),
    "update": lambda registry, device: registry.update("app", device.id, DETAILS),
    "invalidate": lambda registry, device: registry.invalidate(
        "app", device.id, InvalidationReason.REVOKED
    ),
    "delete": lambda registry, device: registry.delete("app", device.id),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
async def test_after_a_change_the_device_is_found_as_it_is(
    registry: Registry,
    devices: Devices,
    device: Device,
    change: Callable[[Registry, Device], Awaitable[object]],
) -> None:
    await registry.find(device.app_id, device.token_hash)
    await change(registry, device)
    assert await registry.find(device.app_id, device.token_hash) == await devices.get(
        "app", device.id
    )


async def test_a_new_device_is_found_though_it_was_unknown(
    registry: Registry, devices: Devices
) -> None:
    device = make_device()
    assert await registry.find(device.app_id, device.token_hash) is None
    assert await registry.add(device)
    assert await registry.find(device.app_id, device.token_hash) == device
    assert await registry.add(make_device(token_hash=device.token_hash)) is None
    assert await devices.find(device.app_id, device.token_hash) == device


async def test_changing_what_is_not_there_changes_nothing(registry: Registry) -> None:
    assert await registry.update("app", "nobody", DETAILS) is None
    assert await registry.invalidate("app", "nobody", InvalidationReason.REVOKED) is None
    assert await registry.delete("app", "nobody") is None


async def test_a_look_up_under_way_during_a_change_is_made_again(
    registry: Registry, store: GatedStore, devices: Devices, device: Device
) -> None:
    store.gates.are_open = False
    finding = asyncio.ensure_future(registry.find(device.app_id, device.token_hash))
    await store.gates.let_pass()  # it has read the device, and has not returned it yet
    ending = asyncio.ensure_future(
        registry.invalidate("app", device.id, InvalidationReason.REVOKED)
    )
    for _ in range(2):
        await store.gates.let_pass(1)
    assert ending.done()
    await store.gates.let_all_pass()
    invalid = await devices.get("app", device.id)
    assert invalid is not None
    assert not invalid.is_valid
    assert await finding == invalid
    store.gates.are_open = True
    assert await registry.find(device.app_id, device.token_hash) == invalid


async def test_changes_of_other_devices_do_not_disturb_a_look_up(
    registry: Registry, store: GatedStore, devices: Devices, device: Device
) -> None:
    other = make_device()
    await devices.add(other)
    store.gates.are_open = False
    finding = asyncio.ensure_future(registry.find(device.app_id, device.token_hash))
    await store.gates.let_pass()
    changing = asyncio.ensure_future(registry.update("app", other.id, DETAILS))
    await store.gates.let_all_pass()
    assert await finding == device
    assert await changing
    await registry.find(device.app_id, device.token_hash)
    assert store.reads == 1


@given(
    acts=st.lists(st.sampled_from([*sorted(CHANGES), "find", "add"]), max_size=6),
    order=st.lists(st.integers(0, 9), max_size=40),
)
async def test_in_any_interleaving_the_registry_ends_up_right(
    acts: list[str], order: list[int]
) -> None:
    store, device = GatedStore(), make_device()
    devices = Devices(store.open)
    await devices.add(device)
    registry = Registry(Devices(store.gated), Connections(), FixedClock(), VAULT)
    store.gates.are_open = False
    tasks = [asyncio.ensure_future(act_on(registry, device, act)) for act in acts]
    for number in order:
        await store.gates.let_pass(number)
    await store.gates.let_all_pass()
    await asyncio.gather(*tasks)
    store.gates.are_open = True
    found = await registry.find(device.app_id, device.token_hash)
    assert found == await devices.find(device.app_id, device.token_hash)


async def act_on(registry: Registry, device: Device, act: str) -> None:
    match act:
        case "find":
            await registry.find(device.app_id, device.token_hash)
        case "add":
            await registry.add(make_device(token_hash=device.token_hash))
        case _:
            await CHANGES[act](registry, device)


async def test_the_cache_has_a_limit_and_the_oldest_entry_is_evicted(
    registry: Registry, store: GatedStore
) -> None:
    for n in range(ENTRIES_LIMIT):
        registry._cache.put(("app", n.to_bytes(4, "big")), None, NOW + KNOWN_MS, 0)
    await registry.find("app", b"one more")
    assert len(registry._cache) == ENTRIES_LIMIT
    assert ("app", (0).to_bytes(4, "big")) not in registry._cache._entries
    assert store.reads == 1


async def test_a_device_with_its_secret_is_authorised(registry: Registry) -> None:
    device, secret = registry.propose(
        app_id="app", token="AB12", platform=Platform.CLARION, details=DETAILS
    )
    await registry.add(device)
    assert await registry.authorise("ab12", secret) == device
    assert await registry.authorise("AB12", secret) == device
    assert await registry.authorise("ab12", "another") is None
    assert await registry.authorise("other", secret) is None


async def test_an_invalid_device_is_not_authorised(registry: Registry) -> None:
    device, secret = registry.propose(
        app_id="app", token="token", platform=Platform.CLARION, details=DETAILS
    )
    await registry.add(device)
    await registry.authorise("token", secret)
    await registry.invalidate("app", device.id, InvalidationReason.REVOKED)
    assert await registry.authorise("token", secret) is None


async def test_with_a_new_secret_the_old_one_is_refused(registry: Registry) -> None:
    device, old = registry.propose(
        app_id="app", token="token", platform=Platform.CLARION, details=DETAILS
    )
    await registry.add(device)
    new = await registry.renew_secret(device)
    assert await registry.authorise("token", old) is None
    assert await registry.authorise("token", new) == replace(device, secret_hash=hash_secret(new))


async def test_a_proposed_device_is_not_stored_and_holds_no_secret(
    registry: Registry, devices: Devices
) -> None:
    device, secret = registry.propose(
        app_id="app", token="token", platform=Platform.WEB, details=DETAILS
    )
    assert await devices.find(device.app_id, device.token_hash) is None
    assert (device.created_at, device.last_seen_at, device.platform) == (NOW, NOW, Platform.WEB)
    assert secret.encode() not in device.secret_hash
    assert device.is_valid


def test_tokens_are_64_hexadecimal_digits_and_differ() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(bytes.fromhex(token)) == 32 for token in tokens)


@pytest.mark.parametrize("limit", [1, 3])
async def test_one_device_too_many_revokes_the_least_recently_seen(
    devices: Devices, clock: FixedClock, limit: int
) -> None:
    registry = Registry(devices, Connections(), clock, VAULT, per_user=limit)
    of_ana = DeviceDetails(user_id="ana")
    made = [make_device(details=of_ana, last_seen_at=NOW + n) for n in range(limit + 2)]
    for device in made:
        assert await registry.add(device)
    assert await reasons_of(devices, made) == [InvalidationReason.REVOKED] * 2 + [None] * limit
    await registry.refresh(made[-1], is_by_app=True)
    assert await reasons_of(devices, made) == [InvalidationReason.REVOKED] * 2 + [None] * limit


async def test_devices_without_a_user_are_not_limited(devices: Devices, clock: FixedClock) -> None:
    registry = Registry(devices, Connections(), clock, VAULT, per_user=1)
    made = [make_device() for _ in range(3)]
    for device in made:
        assert await registry.add(device)
    assert await reasons_of(devices, made) == [None] * 3


async def reasons_of(devices: Devices, made: list[Device]) -> list[InvalidationReason | None]:
    found = [await devices.find(device.app_id, device.token_hash) for device in made]
    return [device.invalidation_reason for device in found if device]


async def test_registering_and_dropping_devices_leaves_a_bounded_number_of_rows(
    devices: Devices, clock: FixedClock
) -> None:
    registry = Registry(devices, Connections(), clock, VAULT, per_user=2)
    of_ana = DeviceDetails(user_id="ana")
    for _ in range(50):
        clock.advance(1)
        await registry.add(make_device(details=of_ana, last_seen_at=clock.now()))
    kept = (await devices.list("app", "ana", after=None, limit=100)).items
    assert (len(kept), sum(each.is_valid for each in kept)) == (2 + INVALID_KEPT, 2)
    for _ in range(30):
        clock.advance(1)
        device = make_device(details=of_ana, last_seen_at=clock.now())
        await registry.add(device)
        await registry.invalidate("app", device.id, InvalidationReason.USER_OPT_OUT)
    kept = (await devices.list("app", "ana", after=None, limit=100)).items
    assert len(kept) <= 2 + INVALID_KEPT + 1


async def test_a_secret_that_is_renewed_during_a_hello_lets_nobody_in(
    registry: Registry, store: GatedStore
) -> None:
    device, old = registry.propose(
        app_id="app", token="token", platform=Platform.CLARION, details=DETAILS
    )
    await registry.add(device)
    store.gates.are_open = False
    saying_hello = asyncio.ensure_future(registry.authorise("token", old))
    await store.gates.let_pass()  # it has read the device, and has not returned it yet
    renewing = asyncio.ensure_future(registry.renew_secret(device))
    for _ in range(2):
        await store.gates.let_pass(1)
    assert renewing.done()
    await store.gates.let_all_pass()
    assert await saying_hello is None


# Several nodes.


class Nodes:
    """Two registries on one store."""

    def __init__(self, store: GatedStore, clock: FixedClock) -> None:
        hub = RecordedHub()
        self.buses = [hub.join(), hub.join()]
        self.here, self.there = (
            Registry(Devices(store.gated), Connections(), clock, VAULT) for _ in range(2)
        )
        for registry, bus in zip((self.here, self.there), self.buses, strict=True):
            registry.changed.join(bus)


@pytest.fixture
async def nodes(store: GatedStore, clock: FixedClock) -> Nodes:
    return Nodes(store, clock)


async def test_a_token_that_is_registered_on_one_node_is_known_on_the_others(nodes: Nodes) -> None:
    device = make_device()
    assert await nodes.there.find("app", device.token_hash) is None
    await nodes.here.add(device)
    await asyncio.sleep(0)
    assert await nodes.there.find("app", device.token_hash) == device


async def test_a_device_that_is_revoked_on_one_node_is_invalid_on_the_others(
    nodes: Nodes, device: Device, clock: FixedClock
) -> None:
    found = await nodes.there.find("app", device.token_hash)
    assert found is not None
    assert nodes.there.get_cached("app", device.token_hash, clock.now()) is found
    await nodes.here.invalidate("app", device.id, InvalidationReason.REVOKED)
    await asyncio.sleep(0)
    assert nodes.there.get_cached("app", device.token_hash, clock.now()) is None
    assert not nodes.there.is_current(found)
    read = await nodes.there.find("app", device.token_hash)
    assert read is not None
    assert not read.is_valid


@pytest.mark.parametrize(
    ("change", "lifetime"),
    [
        ("none", DISCONNECTED_KNOWN_MS),
        ("invalid", DISCONNECTED_UNKNOWN_MS),
        ("unknown", DISCONNECTED_UNKNOWN_MS),
    ],
)
async def test_while_the_bus_is_disconnected_devices_are_known_for_seconds(
    nodes: Nodes, store: GatedStore, clock: FixedClock, change: str, lifetime: int
) -> None:
    device = make_device()
    if change != "unknown":
        await nodes.here.add(device)
    if change == "invalid":
        await nodes.here.invalidate("app", device.id, InvalidationReason.REVOKED)
    await asyncio.sleep(0)
    nodes.buses[1].is_connected = False
    for wait, reads in ((0, 1), (lifetime - 1, 0), (1, 1), (-2, 1)):
        before = store.reads
        clock.advance(wait)
        cached = nodes.there.get_cached("app", device.token_hash, clock.now())
        assert (cached is not None) is (not reads and change != "unknown")
        await nodes.there.find("app", device.token_hash)
        assert store.reads - before == reads


async def test_what_was_cached_while_the_bus_was_connected_is_old_when_it_is_not(
    nodes: Nodes, device: Device, clock: FixedClock
) -> None:
    await nodes.there.find("app", device.token_hash)
    clock.advance(DISCONNECTED_KNOWN_MS)
    assert nodes.there.get_cached("app", device.token_hash, clock.now()) is not None
    nodes.buses[1].is_connected = False
    assert nodes.there.get_cached("app", device.token_hash, clock.now()) is None


async def test_no_device_is_cached_over_a_gap(
    nodes: Nodes, device: Device, clock: FixedClock
) -> None:
    await nodes.there.find("app", device.token_hash)
    nodes.buses[1].miss()
    assert nodes.there.get_cached("app", device.token_hash, clock.now()) is None


async def test_a_device_that_is_authenticated_during_a_gap_is_read_again(
    nodes: Nodes, devices: Devices, store: GatedStore
) -> None:
    device, secret = nodes.here.propose(
        app_id="app", token="t", platform=Platform.CLARION, details=DeviceDetails()
    )
    await devices.add(device)
    store.gates.are_open = False
    asking = asyncio.ensure_future(nodes.there.authorise("t", secret))
    await store.gates.let_pass()  # it has read, and has not returned what
    await devices.set_secret("app", device.id, b"new")
    nodes.buses[1].miss()
    await store.gates.let_all_pass()
    assert await asking is None
