"""Runs first in every Python process that has this folder on its PYTHONPATH: it can be counted.

SIGUSR1 has it write to a file what it holds: asyncio tasks, blocks of memory, and bytes that are
its own. For a look at what grows, `CLARION_TEST_TYPES` adds how many objects of each type there
are, and PYTHONTRACEMALLOC where memory was allocated.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from types import FrameType

# The name is in `tests/faults/test_leaks.py`, too.
FOLDER = Path(os.environ["CLARION_TEST_CENSUS"])
HAS_TYPES = "CLARION_TEST_TYPES" in os.environ
PLACES = 60
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _pad: None)


def count(_number: int, _frame: FrameType | None) -> None:
    tasks = [task for task in asyncio.all_tasks() if not task.done()]
    names = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
    # In a thread, so that the event loop is not blocked while it collects.
    threading.Thread(target=write, args=(dict(names),)).start()


def write(tasks: dict[str, int]) -> None:
    gc.collect()
    trim(0)
    found = {"tasks": tasks, "blocks": sys.getallocatedblocks(), "own_kib": read_own_kib()}
    if HAS_TYPES:
        found["types"] = Counter(type(each).__qualname__ for each in gc.get_objects())
    if tracemalloc.is_tracing():
        places = tracemalloc.take_snapshot().statistics("lineno")[:PLACES]
        found["places"] = {str(each.traceback): each.size for each in places}
    path = FOLDER / f"{os.getpid()}.json"
    path.with_suffix(".new").write_text(json.dumps(found))
    path.with_suffix(".new").replace(path)


def read_own_kib() -> int:
    """Return the memory of this process that it shares with no other."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


signal.signal(signal.SIGUSR1, count)
