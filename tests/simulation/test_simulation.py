"""T40: the pipeline and the gateway of a node, in orders that nobody thought of."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.sizes import SIZES
from tests.simulation.invariants import find_breaks
from tests.simulation.loop import NODE, SeededLoop, Stalled
from tests.simulation.run import Run, run

pytestmark = [
    pytest.mark.core,
    pytest.mark.rest("runs more seeds"),
    pytest.mark.timeout(SIZES.timeout_s),
]
ROOT = Path(__file__).resolve().parents[2]
# Each in a process of its own, so that all processors have something to do.
PARTS = 8
# What is done to a database in which nothing breaks, and what must be found then.
PLANTED = {
    "INSERT INTO jobs VALUES ('x', 0, 0, 0, 0, 'decide', 'a', 'e', 'u', '', '', '')": "the job x",
    "UPDATE events SET status = 'pending'": "is pending",
    "DELETE FROM events": "was accepted and is gone",
    "DELETE FROM notifications": "0 notifications of the event",
    "UPDATE inboxes SET unread_count = unread_count + 1": "are counted",
    "UPDATE inboxes SET sequence = sequence - 1": "went back",
    "UPDATE inboxes SET unread_count = -1": "fewer than no unread ones",
    "UPDATE deliveries SET status = 'queued'": "→ queued",
    "UPDATE messages SET status = 'queued'": "→ queued",
    "DELETE FROM messages": "was accepted and is gone",
}


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_breaks(part: int, figures: Callable[[str], None]) -> None:
    count = SIZES.simulated_seeds // PARTS
    done = simulate("--first", str(part * count), "--seeds", str(count), "--jobs", "1")
    figures(f"T40, part {part + 1}: {done.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_is_the_same_run_in_every_process() -> None:
    first, second = (simulate("--seed", "17", "--trace").stdout for _ in range(2))
    assert first == second
    assert "trace" in first
    assert "node 1 serves" in first


def test_a_seed_is_the_same_run_whatever_ran_before() -> None:
    """Else a seed that breaks among others would not break alone."""
    seeds = range(1_000, 1_020)
    once = [run(each).world.trace for each in seeds]
    assert [run(each).world.trace for each in reversed(seeds)] == once[::-1]


@pytest.fixture(scope="module")
def calm() -> Run:
    """A run in which events were sent and pushes received, and nothing broke."""
    return next(
        found
        for found in map(run, range(100))
        if not found.breaks
        and found.world.accepted
        and found.world.pushed
        and found.world.disk.read("SELECT 1 FROM messages WHERE status = 'delivered'")
        and found.world.disk.read("SELECT 1 FROM inboxes WHERE sequence > 0")
        and found.world.disk.read("SELECT 1 FROM deliveries WHERE status = 'delivered'")
        and not found.world.erasing
    )


@pytest.mark.parametrize(("change", "expected"), PLANTED.items(), ids=PLANTED.keys())
def test_what_is_planted_is_found(calm: Run, change: str, expected: str) -> None:
    """Control: an invariant that cannot fail proves nothing."""
    connection = calm.world.disk.connection
    connection.execute("SAVEPOINT planted")
    try:
        connection.execute(change)
        found = find_breaks(calm.world)
    finally:
        connection.execute("ROLLBACK TO planted")
    assert any(expected in each for each in found), found
    assert not find_breaks(calm.world)


def make_loop(seed: int = 1) -> SeededLoop:
    return SeededLoop(random.Random(seed))


def test_time_passes_only_while_nothing_is_to_be_done() -> None:
    loop = make_loop()
    loop.run_until_complete(asyncio.sleep(24 * 3600))
    assert 24 * 3600 <= loop.time() < 24 * 3600 + 1
    loop.abandon()


def test_the_seed_chooses_the_order() -> None:
    async def note(order: list[int], number: int) -> None:
        order.append(number)

    async def play() -> tuple[int, ...]:
        order: list[int] = []
        await asyncio.gather(*(note(order, each) for each in range(6)))
        return tuple(order)

    orders = []
    for seed in (*range(20), *range(20)):
        loop = make_loop(seed)
        orders.append(loop.run_until_complete(play()))
        loop.abandon()
    assert orders[:20] == orders[20:]
    assert len(set(orders)) > 10


def test_of_a_node_that_is_killed_nothing_runs() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            done.append(f"began on {NODE.get()}")
            await asyncio.sleep(1)
            done.append("went on")
        finally:
            done.append("cleaned up")

    async def play() -> list[str]:
        loop.run_on(7, work())
        await asyncio.sleep(0.5)
        loop.kill(7)
        await asyncio.sleep(5)
        return list(done)

    loop = make_loop()
    assert loop.run_until_complete(play()) == ["began on 7"]
    loop.abandon()


def test_a_run_in_which_everybody_waits_is_stalled() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    loop = make_loop()
    with pytest.raises(Stalled):
        loop.run_until_complete(wait())
    loop.abandon()
