"""Runs seeds, prints what breaks, and how to see it again: `make simulate ARGS="--seeds 1000"`.

A run is the same each time in every process: Python must hash alike, so it starts itself anew with
a fixed seed for that.
"""

import argparse
import gc
import multiprocessing
import os
import random
import sys
import time
import types
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog

from clarion import pacing
from tests.simulation.faults import ODDS
from tests.simulation.invariants import find_breaks, watch
from tests.simulation.loop import MOST_STEPS, Endless, SeededLoop, Stalled
from tests.simulation.world import World

HASH_SEED = "PYTHONHASHSEED"
_SHOWN = 10
_LINE_EVERY_S = 1.0
# Seeds that a process gets at once.
_AT_ONCE = 5


class Run(NamedTuple):
    """What became of a seed."""

    world: World
    breaks: Sequence[str]


@contextmanager
def simulated_time(loop: SeededLoop) -> Iterator[None]:
    """Measure slices of work by the clock of the loop: by the machine's, no run is repeated."""
    module: Any = pacing
    real = module.time
    module.time = types.SimpleNamespace(perf_counter=loop.time, thread_time=loop.time)
    try:
        yield
    finally:
        module.time = real


@contextmanager
def simulated_chance(chance: random.Random) -> Iterator[None]:
    """Take secrets from the seed: rows are sorted by what is made of them."""
    places: tuple[tuple[Any, str], ...] = ((os, "urandom"), (random, "_urandom"))
    real = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, chance.randbytes)
    try:
        yield
    finally:
        for (module, name), each in zip(places, real, strict=True):
            setattr(module, name, each)


@contextmanager
def logs_taken(errors: list[str]) -> Iterator[None]:
    """Take what is logged as an error; drop the rest."""

    def take(_logger: Any, method: str, line: Any) -> Any:
        if method in ("error", "exception", "critical"):
            errors.append(f"logged {line.pop('event')}: {line}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


def run(seed: int, without: Collection[str] = (), most: int | None = None) -> Run:
    """Run a seed, without some kinds of faults, and with at most so many acts a round."""
    random.seed(seed)
    chance = random.Random(seed)
    loop = SeededLoop(chance)
    world = World(loop, chance, without=without, most=most)
    watch(world.disk)
    secrets = simulated_chance(random.Random(seed))
    with simulated_time(loop), secrets, logs_taken(world.errors):
        try:
            loop.run_until_complete(world.play())
        except Stalled:
            world.errors.append("everybody waits for somebody else")
        except Endless:
            world.errors.append(f"it does not come to rest within {MOST_STEPS:,} steps")
        except Exception as error:  # noqa: BLE001 - whatever a caller may be answered with
            world.errors.append(f"somebody was answered with {error!r}")
        breaks = find_breaks(world)
        loop.abandon()
    return Run(world, breaks)


def shrink(seed: int) -> tuple[list[str], int | None, Run]:
    """Find the least with which a seed still breaks: few kinds of faults, and few acts."""
    found, without, most = run(seed), list[str](), None
    for kind in sorted(ODDS):
        if (tried := run(seed, [*without, kind])).breaks:
            found, without = tried, [*without, kind]
    for count in (1, 2, 3, 5, 8, 13, 21):
        if (tried := run(seed, without, count)).breaks:
            return without, count, tried
    return without, most, found


def show(seed: int, found: Run, arguments: str = "") -> None:
    """Print what broke, and how to run it again."""
    print(f"seed {seed} breaks, trace {found.world.trace}:")
    for each in found.breaks[:_SHOWN]:
        print(f"  {each}")
    if len(found.breaks) > _SHOWN:
        print(f"  and {len(found.breaks) - _SHOWN} more")
    print(f'  Run it again with: make simulate ARGS="--seed {seed}{arguments} --trace"')


def show_shrunk(seed: int) -> None:
    """Print the least with which a seed breaks."""
    without, most, found = shrink(seed)
    arguments = "".join(f" --without {each}" for each in without)
    arguments += "" if most is None else f" --most {most}"
    kinds = sorted(found.world.faults.kinds) or ["no faults"]
    print(f"With {', '.join(kinds)} alone{'' if most is None else f', {most} acts a round'}:")
    show(seed, found, arguments)


class Result(NamedTuple):
    """What a seed has shown, as a process tells it to another."""

    seed: int
    steps: int
    virtual_s: float
    faults: Counter[str]
    is_broken: bool


def run_one(seed: int) -> Result:
    """Run a seed; if it breaks, print how, and the least with which it does."""
    found = run(seed)
    if found.breaks:
        show(seed, found)
        show_shrunk(seed)
    world = found.world
    return Result(
        seed, world.loop.steps, world.loop.time(), world.faults.counts, bool(found.breaks)
    )


def prepare() -> None:
    """Search no garbage beside that of a run, which is a third of the time."""
    gc.disable()
    run(0)
    gc.freeze()


def run_many(seeds: Sequence[int], jobs: int, *, stops: bool) -> int:
    """Run seeds in some processes, or until one breaks; return how many break."""
    began = shown_at = time.perf_counter()
    count, broken, steps, virtual_s, faults = 0, 0, 0, 0.0, Counter[str]()
    with multiprocessing.Pool(jobs, prepare) as pool:
        for count, each in enumerate(pool.imap_unordered(run_one, seeds, _AT_ONCE), 1):
            broken += each.is_broken
            steps += each.steps
            virtual_s += each.virtual_s
            faults += each.faults
            if broken and stops:
                break
            if sys.stderr.isatty() and time.perf_counter() - shown_at > _LINE_EVERY_S:
                shown_at = time.perf_counter()
                print(f"\r{count:,} of {len(seeds):,} seeds", end="", file=sys.stderr, flush=True)
    took_s = time.perf_counter() - began
    print(
        f"{count:,} seeds in {took_s:.1f} s ({count / took_s:.1f}/s), {broken} of them "
        f"break; {steps:,} steps, {virtual_s / 3600:.1f} simulated hours, {faults.total():,} "
        "faults: " + ", ".join(f"{kind} {times:,}" for kind, times in sorted(faults.items()))
    )
    return broken


def main() -> int:
    if os.environ.get(HASH_SEED) != "0":
        environment = {**os.environ, HASH_SEED: "0"}
        command = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606 - itself
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--stop", action="store_true", help="stop at the first that breaks")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help=f"at the same time ({jobs})")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="print its story")
    parser.add_argument("--without", action="append", default=[], choices=sorted(ODDS))
    parser.add_argument("--most", type=int, help="at most so many acts a round")
    options = parser.parse_args()
    if options.seed is None:
        seeds = range(options.first, options.first + options.seeds)
        return int(run_many(seeds, options.jobs, stops=options.stop) > 0)
    found = run(options.seed, options.without, options.most)
    if options.trace:
        print("\n".join(found.world.lines))
    print(f"seed {options.seed}: trace {found.world.trace}, {len(found.breaks)} breaks")
    if found.breaks:
        show(options.seed, found)
    return int(bool(found.breaks))


if __name__ == "__main__":
    sys.exit(main())
