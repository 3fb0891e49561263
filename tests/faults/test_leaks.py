"""T35: whatever comes and goes, a server keeps no memory, no descriptor, no task and no thread."""

import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.administrators import make_key
from tests.faults.churn import Churn
from tests.faults.clarion_server import ClarionServer
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]
CENSUS = Path(__file__).with_name("census")
LOOK_EVERY_S = 0.5
# What is under way when the clients have gone ends by itself: jobs, close frames, idle connections.
SETTLE_LIMIT_S = 60.0
MIB = 1 << 20
CALM_BLOCKS = 100
# Of the default executor of asyncio: they start when all others are busy, and stay.
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)
# The log begins anew at 12,000 pages of 4 KiB; at twice that the writer waits for its thread.
WAL_LIMIT_MIB = 100
# Its cache of pages has at most 64 MiB; until it is full it grows.
WRITER_LIMIT_MIB = 128


@dataclass(frozen=True)
class Holdings:
    """What a server holds, after everything that nobody refers to was freed."""

    at: float
    descriptors: int
    threads: int
    tasks: dict[str, int]
    blocks: int
    memory_mib: float

    def exceeds(self, other: "Holdings") -> bool:
        return (
            self.descriptors > other.descriptors
            or self.threads > other.threads + POOL_THREADS
            or sum(self.tasks.values()) > sum(other.tasks.values())
        )

    def __str__(self) -> str:
        return (
            f"{self.descriptors} descriptors, {self.threads} threads,"
            f" {sum(self.tasks.values())} tasks, {self.blocks:,} blocks, {self.memory_mib:.1f} MiB"
        )


class Watched:
    """A server, seen from outside. Its writer is a process of its own, seen apart."""

    def __init__(self, server: ClarionServer, folder: Path) -> None:
        self.server = server
        self._folder = folder

    async def look(self) -> Holdings:
        """Count what it holds now."""
        pids = self.server.family
        answer = self._folder / f"{self.server.pid}.json"
        answer.unlink(missing_ok=True)
        # Before it is asked: it counts in a thread.
        descriptors, threads = count_entries(pids, "fd"), count_entries(pids, "task")
        self.server.signal(signal.SIGUSR1)
        async with asyncio.timeout(SETTLE_LIMIT_S):
            while not answer.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
        found = json.loads(answer.read_text())
        memory_mib = found["own_kib"] / 1024
        return Holdings(
            time.monotonic(), descriptors, threads, found["tasks"], found["blocks"], memory_mib
        )

    async def settle(self, limit: Holdings | None = None) -> Holdings:
        """Wait until it holds no more than a limit, or no more than a moment before."""
        until = time.monotonic() + SETTLE_LIMIT_S
        before = await self.look()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = await self.look()
            is_calm = not now.exceeds(limit) if limit else not before.exceeds(now)
            # What is known of connections that have ended is forgotten within seconds.
            is_calm = is_calm and before.blocks - now.blocks < CALM_BLOCKS
            if is_calm or time.monotonic() > until:
                return now
            before = now

    @property
    def wal_mib(self) -> float:
        path = self.server.data / "clarion.db-wal"
        return path.stat().st_size / MIB if path.exists() else 0.0

    @property
    def writer_mib(self) -> float:
        text = Path(f"/proc/{self.server.writer_pid}/smaps_rollup").read_text()
        own = (line for line in text.splitlines() if line.startswith("Private_"))
        return sum(int(line.split()[1]) for line in own) / 1024


def count_entries(pids: list[int], folder: str) -> int:
    """Return how many entries the folder of each process in `/proc` has, all together."""
    return sum(len(list(Path(f"/proc/{pid}/{folder}").iterdir())) for pid in pids)


@dataclass(frozen=True)
class Growth:
    """How a server grew while it was seen, as straight lines through what it held."""

    seen: list[Holdings]

    @property
    def memory_mib_per_h(self) -> float:
        """Of the memory; the caches of pages of SQLite let it jump by some MiB."""
        return self._find_slope([each.memory_mib for each in self.seen])

    @property
    def blocks_per_h(self) -> float:
        """Of the blocks that Python objects take; a MiB has about 12,000."""
        return self._find_slope([float(each.blocks) for each in self.seen])

    @property
    def floor_mib(self) -> float:
        """Of the least memory: the last third compared with the first."""
        part = -(-len(self.seen) // 3)
        first, last = self.seen[:part], self.seen[-part:]
        return min(each.memory_mib for each in last) - min(each.memory_mib for each in first)

    def _find_slope(self, values: list[float]) -> float:
        times = [each.at for each in self.seen]
        return statistics.linear_regression(times, values).slope * 3600


def make_environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(CENSUS), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "CLARION_TEST_CENSUS": str(folder)}


async def test_nothing_is_kept_of_what_comes_and_goes(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    folder = tmp_path / "census"
    folder.mkdir()
    async with ClarionServer(tmp_path, environment=make_environment(folder)) as server:
        app: dict[str, Any] = json.loads((server.data / "first-run.json").read_bytes())["app"]
        admin_key = await asyncio.to_thread(make_key, f"sqlite:///{server.data / 'clarion.db'}")
        churn = Churn(
            server.port, server.gateway_port, app, admin_key, app_every_s=SIZES.leak_app_every_s
        )
        watched = Watched(server, folder)
        await churn.prepare()
        await warm_up(churn)
        seen = [await watched.settle()]
        churn.rounds.clear()
        for _ in range(SIZES.leak_slices):
            await churn.run(SIZES.leak_slice_s)
            seen.append(await watched.settle(seen[0]))
        growth = Growth(seen)
        figures(describe(watched, churn, growth))
        assert not seen[-1].exceeds(seen[0]), (seen[0].tasks, seen[-1].tasks)
        assert watched.wal_mib <= WAL_LIMIT_MIB
        assert watched.writer_mib <= WRITER_LIMIT_MIB
        assert growth.floor_mib <= SIZES.leak_floor_mib
        assert growth.blocks_per_h <= SIZES.leak_blocks_per_h
        assert min(churn.rounds.values()) >= SIZES.leak_slices, churn.rounds


async def warm_up(churn: Churn) -> None:
    """Churn until what is cached is full, as far as that can be counted from outside."""
    await churn.run(SIZES.leak_warm_up_s)
    while churn.rounds["render"] < SIZES.leak_warm_up_renders:
        await churn.run(SIZES.leak_slice_s)


def describe(watched: Watched, churn: Churn, growth: Growth) -> str:
    first, last = growth.seen[0], growth.seen[-1]
    rounds = ", ".join(f"{name} {count}" for name, count in churn.rounds.items())
    return (
        f"T35: {last.at - first.at:.0f} s after a warm-up;"
        f" rounds: {rounds};"
        f" {first} → {last}; slope {growth.memory_mib_per_h:+.1f} MiB/h,"
        f" {growth.blocks_per_h:+,.0f} blocks/h, floor {growth.floor_mib:+.1f} MiB;"
        f" thousands of blocks: {' '.join(f'{each.blocks / 1000:.0f}' for each in growth.seen)};"
        f" writer {watched.writer_mib:.0f} MiB, WAL {watched.wal_mib:.0f} MiB"
    )
