"""Runs seeds: prints what breaks, and how to see it again."""

import argparse
import gc
import random
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from clarion import pacing
from tests.simulation.invariants import find_breaks, watch
from tests.simulation.loop import SeededLoop, Stalled
from tests.simulation.world import World


@contextmanager
def simulated_time(loop: SeededLoop) -> Iterator[None]:
    """Measure slices of work by the clock of the loop: by that of the machine no run is repeated."""
    real = pacing.time
    clock = types.SimpleNamespace(perf_counter=loop.time, thread_time=loop.time)
    pacing.time = clock  # type: ignore[assignment]
    try:
        yield
    finally:
        pacing.time = real


@contextmanager
def logs_taken(errors: list[str]) -> Iterator[None]:
    """Take what is logged as an error; drop the rest."""

    def take(_logger: Any, method: str, line: dict[str, Any]) -> Any:
        if method in ("error", "exception", "critical"):
            errors.append(f"logged {line.get('event')}: {line.get('exc_info') or line}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


def run(seed: int) -> tuple[World, list[str]]:
    """Run a seed; return what became of it, and what broke."""
    random.seed(seed)
    chance = random.Random(seed)
    loop = SeededLoop(chance)
    world = World(seed, loop, chance)
    watch(world.disk)
    breaks = ["everybody waits for somebody"]
    with simulated_time(loop), logs_taken(world.errors):
        try:
            loop.run_until_complete(world.play())
            breaks = find_breaks(world)
        except Stalled:
            pass
        finally:
            loop.abandon()
    return world, breaks


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trace", action="store_true")
    a = parser.parse_args()
    seeds = [a.seed] if a.seed is not None else range(a.seeds)
    began = time.perf_counter()
    bad = 0
    run(0)
    gc.collect(); gc.freeze(); gc.disable()
    for seed in seeds:
        t = time.perf_counter()
        world, breaks = run(seed)
        print(seed, world.trace, len(world.lines), world.loop.steps, f"{time.perf_counter()-t:.2f}s virtual {world.loop.time():.0f}s", dict(world.faults.counts), flush=True)
        for b in breaks[:8]: print("   BREAK", b)
        bad += bool(breaks)
        if a.trace: print("\n".join(world.lines))
    print(f"{len(seeds)/(time.perf_counter()-began):.1f} seeds/s, {bad} bad")
    return 0


if __name__ == "__main__":
    sys.exit(main())
