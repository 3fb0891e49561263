"""T01 and T20 for the gateway: kills of the server and of connections while devices are sent to."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.installation import Installation
from clarion.clock import SystemClock
from clarion.store.sql.messages import SqlMessages
from tests.faults.clarion_server import ClarionServer
from tests.faults.gateway.fleet import Fleet
from tests.faults.gateway.ledger import (
    Record,
    count_ends,
    find_faults,
    read_history,
    waiting_devices,
)
from tests.faults.gateway.pushes import Kind, Provider, Push, plan
from tests.faults.sizes import SIZES

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


async def kill_at_random(server: ClarionServer, provider: Provider, chance: random.Random) -> float:
    """Kill the server whenever it has accepted a random share; return the slowest start."""
    slowest_s = 0.0
    for share in sorted(chance.sample(range(SIZES.chaos_pushes), SIZES.chaos_kills)):
        await provider.reach(share)
        provider.server_is_up.clear()
        await server.kill(with_writer=chance.random() < 0.5)
        slowest_s = max(slowest_s, await server.start())
        provider.server_is_up.set()
    return slowest_s


async def settle(
    server: ClarionServer, device_ids: list[str], pushes: dict[str, Push]
) -> dict[int, list[Record]]:
    """Return the history as soon as nothing waits any more, or when it has had its time."""
    await expire_attempts(server)
    history = await read_history(server, device_ids, range(len(device_ids)))
    give_up = asyncio.get_running_loop().time() + DRAIN_LIMIT_S
    while (behind := waiting_devices(history, pushes)) and (
        asyncio.get_running_loop().time() < give_up
    ):
        await asyncio.sleep(ASK_EVERY_S)
        history |= await read_history(server, device_ids, behind)
    return history


async def expire_attempts(server: ClarionServer) -> None:
    """End what has one attempt, or a short life, and did not arrive: time is an argument."""
    async with Installation.read(server.data).opened() as engine:
        await SqlMessages(engine).expire(SystemClock().now() + LATER_MS, SIZES.chaos_pushes)


async def test_every_accepted_message_reaches_its_device(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """Whatever dies meanwhile, accepted = delivered + collapsed + expired, and nothing waits."""
    chance = random.Random(SEED)
    pushes = plan(chance, devices=SIZES.chaos_devices, count=SIZES.chaos_pushes)
    by_id = {push.id: push for push in pushes}
    must_arrive = {push.id for push in pushes if push.kind is Kind.KEPT}
    async with ClarionServer(tmp_path, environment=ENVIRONMENT) as server:
        installation = Installation.read(server.data)
        device_ids = await installation.add_devices(SIZES.chaos_devices)
        provider = Provider(server.port, installation.push_headers(), pushes)
        fleet = Fleet(SIZES.chaos_devices, server.gateway_port, chance)
        async with fleet.living(), asyncio.TaskGroup() as group:
            tormenting = group.create_task(fleet.torment(SIZES.chaos_vanishing_a_second))
            pushing = group.create_task(provider.push_all(SIZES.chaos_rate))
            slowest_s = await kill_at_random(server, provider, chance)
            await pushing
            fleet.calm_down()
            await tormenting
            await fleet.until(lambda: must_arrive <= fleet.kept_ids, DRAIN_LIMIT_S)
            history = await settle(server, device_ids, by_id)
    kept = {number: device.kept.keys() for number, device in enumerate(fleet.devices)}
    faults = find_faults(by_id, provider.accepted, kept, history)
    figures(
        f"gateway chaos: {SIZES.chaos_devices:,} devices, {SIZES.chaos_kills} kills, "
        f"{fleet.vanished:,} devices cut off, {len(provider.accepted):,} accepted of "
        f"{len(pushes):,} pushes, {len(provider.unknown):,} unknown and retried, "
        f"{fleet.arrivals:,} arrivals of {len(fleet.kept_ids):,} messages, "
        f"ends {dict(count_ends(history))}, slowest ready {slowest_s:.2f} s"
    )
    assert dict(provider.refused) == {}
    assert provider.accepted == set(by_id)
    assert faults[:20] == []
    assert slowest_s <= READY_LIMIT_S
