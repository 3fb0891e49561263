"""T01 and T20 for the gateway: kills of the server and of connections while devices are sent to."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.installation import Installation
from clarion.clock import SystemClock
from clarion.push.sql.messages import SqlMessages
from tests.faults.clarion_server import ClarionServer
from tests.faults.gateway.devices import ChaosDevices
from tests.faults.gateway.history import (
    History,
    Record,
    count_ends,
    find_faults,
    read_history,
    waiting_devices,
)
from tests.faults.gateway.pushes import Provider, Push, plan
from tests.faults.sizes import SIZES
from tests.lanes import is_measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

SEED = 20_260_103
READY_LIMIT_S = 5.0
# Low priority waits for the next window, and a window is looked for every five seconds.
DRAIN_LIMIT_S = 60.0
ASK_EVERY_S = 0.5
# Longer than the one attempt that a one-shot message has.
LATER_MS = 5 * 60_000
ENVIRONMENT = {
    "CLARION_LOW_PRIORITY_WINDOW_S": "5",
    "CLARION_DEVICE_MESSAGES_PER_MINUTE": "1000000",
}


@dataclass(frozen=True, kw_only=True)
class ChaosTest:
    """A server, its devices, and a provider that is about to push to them."""

    server: ClarionServer
    installation: Installation
    device_ids: list[str]
    devices: ChaosDevices
    provider: Provider
    pushes: dict[str, Push]
    chance: random.Random

    async def push_through_faults(self, kills: int) -> float:
        """Push everything while the server is killed; return the slowest start."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.devices.disconnect_at_random(SIZES.chaos_disconnects_per_second))
            pushing = group.create_task(self.provider.push_all(SIZES.chaos_rate))
            slowest_s = await self._kill_at_random(kills)
            await pushing
            self.devices.stabilise()
        return slowest_s

    async def _kill_at_random(self, kills: int) -> float:
        """Kill the server whenever it has accepted a random share."""
        slowest_s = 0.0
        for share in sorted(self.chance.sample(range(len(self.pushes)), kills)):
            await self.provider.reach(share)
            self.provider.server_is_up.clear()
            has_writer = not self.installation.settings.database
            await self.server.kill(with_writer=has_writer and self.chance.random() < 0.5)
            slowest_s = max(slowest_s, await self.server.start())
            self.provider.server_is_up.set()
        return slowest_s

    async def settle(self) -> dict[int, list[Record]]:
        """Return the history when nothing waits any more, or when it has had its time."""
        await self._expire_attempts()
        history = await self._read(range(len(self.device_ids)))
        give_up = asyncio.get_running_loop().time() + DRAIN_LIMIT_S
        while behind := waiting_devices(history, self.pushes):
            if asyncio.get_running_loop().time() > give_up:
                break
            await asyncio.sleep(ASK_EVERY_S)
            history |= await self._read(behind)
        return history

    async def _read(self, devices: range | list[int]) -> dict[int, list[Record]]:
        return await read_history(self.server, self.device_ids, devices)

    async def _expire_attempts(self) -> None:
        """End what has one attempt, or a short life, and did not arrive: time is an argument."""
        async with self.installation.opened() as engine:
            later = SystemClock().now() + LATER_MS
            await SqlMessages(engine).expire(later, len(self.pushes))

    def find_faults(self, history: History) -> list[str]:
        kept = {number: device.kept.keys() for number, device in enumerate(self.devices.devices)}
        return find_faults(self.pushes, self.provider.accepted, kept, history)

    def describe(self, history: History) -> str:
        devices, provider = self.devices, self.provider
        return (
            f"{len(self.device_ids):,} devices, {devices.disconnects:,} disconnected, "
            f"{len(provider.accepted):,} accepted of {len(self.pushes):,} pushes, "
            f"{len(provider.unknown):,} unknown and retried, {devices.arrivals:,} arrivals of "
            f"{len(devices.kept_ids):,} messages, ends {dict(count_ends(history))}"
        )


async def set_up(
    stack: AsyncExitStack,
    folder: Path,
    *,
    devices: int,
    pushes: int,
    database: str = "",
    acknowledges_early: bool = False,
) -> ChaosTest:
    """Start a server and bring the devices online."""
    chance = random.Random(SEED)
    planned = plan(chance, devices=devices, count=pushes)
    environment = {**ENVIRONMENT, "CLARION_DATABASE": database}
    server = await stack.enter_async_context(ClarionServer(folder, environment=environment))
    installation = Installation.read(server.data, database)
    device_ids = await installation.add_devices(devices)
    chaos_devices = ChaosDevices(
        devices, server.gateway_port, chance=chance, acknowledges_early=acknowledges_early
    )
    await stack.enter_async_context(chaos_devices.running())
    return ChaosTest(
        server=server,
        installation=installation,
        device_ids=device_ids,
        devices=chaos_devices,
        provider=Provider(server.port, installation.push_headers(), planned),
        pushes={push.id: push for push in planned},
        chance=chance,
    )


async def survive(folder: Path, figures: Callable[[str], None], database: str, part: int) -> None:
    """Run a part of the chaos, then compare what was accepted and what arrived."""
    kills = SIZES.chaos_kills // part
    async with AsyncExitStack() as stack:
        chaos = await set_up(
            stack,
            folder,
            devices=SIZES.chaos_devices // part,
            pushes=SIZES.chaos_pushes // part,
            database=database,
        )
        slowest_s = await chaos.push_through_faults(kills)
        history = await chaos.settle()
    figures(
        f"gateway chaos, {database.partition(':')[0] or 'sqlite'}: {kills} kills, "
        f"{chaos.describe(history)}, slowest ready {slowest_s:.2f} s"
    )
    assert dict(chaos.provider.refused) == {}
    assert chaos.provider.accepted == set(chaos.pushes)
    assert chaos.find_faults(history)[:20] == []
    assert slowest_s <= READY_LIMIT_S or not is_measured()


@pytest.mark.core
@pytest.mark.rest
async def test_every_accepted_message_reaches_its_device(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """Whatever dies meanwhile, accepted = delivered + collapsed + expired, and nothing waits."""
    await survive(tmp_path, figures, database="", part=1)


async def test_the_same_on_postgresql(
    tmp_path: Path, figures: Callable[[str], None], postgres_database: str
) -> None:
    """Here reads take their time, and more can happen between two steps."""
    await survive(tmp_path, figures, database=postgres_database, part=2)


@pytest.mark.core
@pytest.mark.rest
async def test_devices_that_acknowledge_too_early_are_found_to_lose(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """The control: devices that break the protocol lose messages, and the same checks find it."""
    async with AsyncExitStack() as stack:
        chaos = await set_up(stack, tmp_path, devices=50, pushes=1_000, acknowledges_early=True)
        await chaos.push_through_faults(kills=0)
        history = await chaos.settle()
    faults = chaos.find_faults(history)
    figures(f"gateway chaos, control: {len(faults)} losses shown, {chaos.describe(history)}")
    assert faults
    assert all("its device does not have it" in fault for fault in faults)
