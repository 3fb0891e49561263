"""T01, T43: the server is killed while it works on events; nothing is lost, nothing doubled."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.clarion_server import ClarionServer
from tests.faults.pipeline_load import Senders, plan, set_up
from tests.faults.pipeline_state import count_jobs, find_faults, read_state, reading
from tests.faults.sizes import CRASH, SIZES
from tests.lanes import is_measured
from tests.leases import shorten_leases

pytestmark = CRASH

SEED = 20_260_104
CLIENTS = 30
READY_LIMIT_S = 5.0
# What a killed server had in hand is done by then.
REDELIVERY_LIMIT_S = 60.0
LOOK_EVERY_S = 0.1
LONGEST_WAIT_S = 0.05


async def kill_at_random(
    server: ClarionServer,
    senders: Senders,
    marks: list[int],
    chance: random.Random,
    url: str,
) -> float:
    """Kill the server whenever so much is accepted; return the slowest start."""
    slowest_s, is_postgres = 0.0, url.startswith("postgres")
    for mark in marks:
        await senders.reach(mark)
        # Right behind an answer, few requests are stored and not answered: those are the hard ones.
        await asyncio.sleep(chance.uniform(0, LONGEST_WAIT_S))
        senders.server_is_up.clear()
        await server.kill(with_writer=not is_postgres and chance.random() < 0.5)
        if is_postgres:
            await shorten_leases(url, SIZES.lease_left_ms)
        slowest_s = max(slowest_s, await server.start())
        senders.server_is_up.set()
    return slowest_s


async def drain(url: str) -> float:
    """Wait until nothing is left to do, and return the seconds that took."""
    began = time.monotonic()
    async with reading(url) as fetch:
        # Nothing signals us: the work goes on in another process.
        while await count_jobs(fetch) and time.monotonic() - began < REDELIVERY_LIMIT_S:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
    return time.monotonic() - began


async def send_through_kills(
    server: ClarionServer, url: str, kills: int, figures: Callable[[str], None]
) -> list[str]:
    """Send everything while the server is killed; return what is wrong in the store at the end."""
    chance = random.Random(SEED)
    requests = list(plan(SIZES.pipeline_events, chance))
    marks = sorted(chance.sample(range(len(requests) // 20, len(requests)), kills))
    async with server:
        await set_up(server)
        senders = Senders(server, requests)
        began = time.monotonic()
        async with senders.running(CLIENTS):
            slowest_s = await kill_at_random(server, senders, marks, chance, url)
        sent_s = time.monotonic() - began
        drained_s = await drain(url)
        async with reading(url) as fetch:
            state = await read_state(fetch)
    faults = list(find_faults(state, requests, senders.accepted))
    figures(
        f"T01 pipeline on {url.partition(':')[0]}: {len(state.events):,} events, "
        f"{sum(state.received.values()):,} notifications, {kills} kills, "
        f"{len(senders.unknown):,} requests unknown and retried, sent in {sent_s:.1f} s, "
        f"drained in {drained_s:.1f} s, slowest ready {slowest_s:.2f} s, "
        f"{sum(each.startswith('lost') for each in faults)} lost, "
        f"{sum(each.startswith('doubled') for each in faults)} doubled, seed {SEED}"
    )
    assert slowest_s <= READY_LIMIT_S or not is_measured()
    return faults


async def test_a_killed_server_notifies_every_user_once(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    server = ClarionServer(tmp_path)
    url = f"sqlite:///{server.data / 'clarion.db'}"
    assert await send_through_kills(server, url, SIZES.pipeline_kills, figures) == []


async def test_on_postgres_the_leases_of_a_killed_server_run_out(
    tmp_path: Path, postgres_database: str, figures: Callable[[str], None]
) -> None:
    """Others may be at work there, so nobody may take over before the lease is over."""
    server = ClarionServer(tmp_path, environment={"CLARION_DATABASE": postgres_database})
    assert await send_through_kills(server, postgres_database, SIZES.pipeline_kills, figures) == []
