"""T01, T05, T06, T11: the real server is killed, broken, filled up and stopped under load."""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.faults.clarion_server import ROOT, ClarionServer
from tests.faults.disk_faults import FULL, NO_SYNC, ORDERS, Orders
from tests.faults.load import Load, find_faults
from tests.faults.sizes import CRASH, SIZES
from tests.lanes import is_measured

pytestmark = CRASH

SEED = 20_260_102
READY_LIMIT_S = 5.0
GRACE_S = 10.0
RESTARTING = 1012


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    """The commands for the disk of `on_bad_disk`."""
    return Orders(tmp_path / "orders")


@pytest.fixture
def on_bad_disk(tmp_path: Path) -> ClarionServer:
    """A server whose writer process has a disk that fails on command."""
    path = [str(Path(__file__).parent / "bad_disk"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        ORDERS: str(tmp_path / "orders"),
    }
    return ClarionServer(tmp_path, environment=environment)


async def restart(server: ClarionServer, load: Load) -> float:
    """Start a server that has ended, and let the clients go on."""
    seconds = await server.start()
    load.server_is_up.set()
    return seconds


@pytest.mark.watched
async def test_a_killed_server_has_lost_nothing(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """T01: after every SIGKILL all that was accepted is there once, and it serves within 5 s."""
    chance, slowest_s = random.Random(SEED), 0.0
    async with ClarionServer(tmp_path) as server:
        load = Load(server)
        async with load.running(SIZES.clients):
            for _ in range(SIZES.server_kills):
                await load.reach(len(load.accepted) + 1)
                # The instant of the kill.
                await asyncio.sleep(chance.uniform(0.1, SIZES.longest_between_kills_s))
                load.server_is_up.clear()
                await server.kill(with_writer=chance.random() < 0.5)
                slowest_s = max(slowest_s, await restart(server, load))
        faults = await find_faults(server, load.accepted)
    figures(
        f"T01 {SIZES.server_kills} kills, {len(load.accepted):,} keys accepted, "
        f"{len(load.unknown):,} unknown and retried, slowest ready {slowest_s:.2f} s, seed {SEED}"
    )
    assert faults[:20] == []
    assert slowest_s <= READY_LIMIT_S or not is_measured()


async def open_socket(server: ClarionServer) -> ClientConnection:
    return await connect(f"ws://127.0.0.1:{server.gateway_port}/v1/gateway")


async def stop_under_load(server: ClarionServer, load: Load) -> float:
    """Send SIGTERM in the middle of the work and return the seconds to a clean end."""
    await load.reach(len(load.accepted) + 100)
    socket = await open_socket(server)
    load.server_is_up.clear()
    began = asyncio.get_running_loop().time()
    server.signal(signal.SIGTERM)
    assert await server.ended() == 0, server.log_tail
    seconds = asyncio.get_running_loop().time() - began
    await socket.wait_closed()
    assert socket.close_code == RESTARTING
    return seconds


@pytest.mark.watched
async def test_a_stopped_server_ends_in_good_order(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """T11: SIGTERM under load ends with 0 in the grace time; what was answered is there once."""
    slowest_s = 0.0
    async with ClarionServer(tmp_path) as server:
        load = Load(server)
        async with load.running(SIZES.clients):
            for _ in range(SIZES.server_stops):
                slowest_s = max(slowest_s, await stop_under_load(server, load))
                await restart(server, load)
        faults = await find_faults(server, load.accepted)
    figures(
        f"T11 {SIZES.server_stops} stops, {len(load.accepted):,} keys accepted, "
        f"{len(load.unknown):,} unanswered and retried, slowest stop {slowest_s:.2f} s, "
        f"answers {dict(load.statuses)}"
    )
    assert faults[:20] == []
    assert slowest_s <= GRACE_S or not is_measured()
    # A request that meets the closing of its idle connection gets no answer; the others do.
    assert len(load.unknown) <= SIZES.server_stops * SIZES.clients // 10


async def break_and_restart(
    server: ClarionServer, load: Load, break_it: Callable[[], object], mend: Callable[[], object]
) -> None:
    """Break the store under load: the server must stop by itself, with an error."""
    async with load.running(SIZES.clients):
        await load.reach(100)
        load.server_is_up.clear()
        break_it()
        assert await server.ended() == 1, server.log_tail
        events = server.events
        assert events.index("broken") < events.index("stopping"), server.log_tail
        mend()
        await restart(server, load)


async def test_a_server_without_its_writer_stops(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """T05: its writer killed, a server answers 503 and stops; what it accepted is there."""
    async with ClarionServer(tmp_path) as server:
        load = Load(server)
        await break_and_restart(
            server, load, lambda: os.kill(server.writer_pid, signal.SIGKILL), lambda: None
        )
        faults = await find_faults(server, load.accepted)
    figures(f"T05 writer killed: {len(load.accepted):,} accepted, answers {dict(load.statuses)}")
    assert faults[:20] == []
    assert load.statuses[503] > 0


async def test_a_server_stops_when_the_disk_fails_to_sync(
    on_bad_disk: ClarionServer, orders: Orders, figures: Callable[[str], None]
) -> None:
    """T05: after a failed fsync nothing is accepted, until a new start has read the disk again."""
    async with on_bad_disk as server:
        load = Load(server)
        await break_and_restart(server, load, lambda: orders.give(NO_SYNC), orders.withdraw)
        faults = await find_faults(server, load.accepted)
    figures(f"T05 sync failed: {len(load.accepted):,} accepted, answers {dict(load.statuses)}")
    assert faults[:20] == []
    assert load.statuses[503] > 0


async def test_a_full_disk_is_waited_out(
    on_bad_disk: ClarionServer, orders: Orders, figures: Callable[[str], None]
) -> None:
    """T06: with the disk full nothing is accepted; with space again, all is, without a restart."""
    async with on_bad_disk as server:
        load = Load(server)
        async with load.running(SIZES.clients):
            for _ in range(SIZES.disk_full_cycles):
                await fill_and_free(load, orders)
        faults = await find_faults(server, load.accepted)
    figures(f"T06 {SIZES.disk_full_cycles} times full, answers {dict(load.statuses)}")
    assert faults[:20] == []
    assert set(load.statuses) == {201, 507}


async def fill_and_free(load: Load, orders: Orders) -> None:
    await load.reach(len(load.accepted) + 100)
    orders.give(FULL)
    await load.see(507, times=SIZES.clients)  # by then every batch from before is answered
    accepted = len(load.accepted)
    await load.see(507, times=SIZES.clients)
    assert len(load.accepted) == accepted
    orders.withdraw()
    await load.reach(accepted + SIZES.clients)
