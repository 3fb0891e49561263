"""Runs first in every Python process that has this folder on its PYTHONPATH: its clock can be set.

The time of day is moved by the seconds in a file, which a test may change; the monotonic clock is
not, as when an operator or NTP sets the clock of a machine.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

# The name is in `tests/faults/test_clock_steps.py`, too.
ORDERS = Path(os.environ["CLARION_TEST_CLOCK_ORDERS"])


def step(read: Callable[[], int]) -> Callable[[], int]:
    """Return a clock that differs from this one by as much as the file says."""
    return lambda: read() + int(ORDERS.read_text()) * 1_000_000_000


time.time_ns = step(time.time_ns)
time.time = lambda: time.time_ns() / 1_000_000_000
