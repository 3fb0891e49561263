"""How long a thread waits for the interpreter lock beside a busy event loop.

`python -m bench.interpreter_lock` shows why the SQLite writer is a process: a thread that comes
back from a call into the kernel must take the lock again, and a loop that gives it up often, but
only for microseconds at a time, is faster than the thread can wake. Run it on a quiet machine: with
no core to spare, the thread runs in bursts and only the longest wait says anything.
"""

import asyncio
import os
import sys
import tempfile
import threading
from time import perf_counter

import uvloop

from bench.table import duration

SECONDS = 1.0
TURN_US = (20, 100, 1000)
SWITCH_INTERVALS_S = (0.005, 0.0001, 0.00001)


class Writer(threading.Thread):
    """Writes one page over and over, and notes how long each call took to come back."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.is_over = False

    def run(self) -> None:
        with tempfile.TemporaryFile() as file:
            while not self.is_over:
                started = perf_counter()
                os.pwrite(file.fileno(), bytes(4096), 0)
                self.waits.append(perf_counter() - started)


async def keep_busy(turn_us: int) -> None:
    """Work in turns of that length; between two of them the loop looks for input."""
    end = perf_counter() + SECONDS
    while perf_counter() < end:
        turn_ends = perf_counter() + turn_us / 1e6
        while perf_counter() < turn_ends:
            pass
        await asyncio.sleep(0)


def measure(turn_us: int, switch_interval_s: float) -> list[float]:
    sys.setswitchinterval(switch_interval_s)
    writer = Writer()
    writer.start()
    uvloop.run(keep_busy(turn_us))
    writer.is_over = True
    writer.join()
    return sorted(writer.waits)


def main() -> None:
    print("turn of the loop  switch interval  writes in 1 s       p99   longest")
    for interval_s in SWITCH_INTERVALS_S:
        for turn_us in TURN_US:
            waits = measure(turn_us, interval_s)
            p99, longest = waits[int(len(waits) * 0.99)], waits[-1]
            print(
                f"{duration(turn_us / 1e6):>16}  {duration(interval_s):>15}  {len(waits):>13,}"
                f"  {duration(p99):>8}  {duration(longest):>8}"
            )


if __name__ == "__main__":
    main()
