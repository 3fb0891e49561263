"""Processor time in units of the machine that runs the tests, so that limits hold on any."""

import statistics
import time
from collections.abc import Callable
from functools import cache

ROUNDS = 5
# What the fixed piece of work takes on a machine of 2024.
UNIT_S = 0.001


def count_units(work: Callable[[], object]) -> float:
    """Return how many times as long as the unit some work takes: the median of several rounds."""
    return measure(work) / unit_s()


@cache
def unit_s() -> float:
    """Return what a fixed piece of work takes here."""
    return measure(lambda: sum(number * number for number in range(20_000)))


def measure(work: Callable[[], object]) -> float:
    return statistics.median(_measure_once(work) for _ in range(ROUNDS))


def _measure_once(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
