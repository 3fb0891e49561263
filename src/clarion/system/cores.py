"""How many processors this process may use."""

from __future__ import annotations

import os
from pathlib import Path

# What a container may use of them, as "QUOTA PERIOD" in microseconds, or "max PERIOD".
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def count_cores(quota: Path = _QUOTA) -> int:
    """Return how many processors this process may use: a container often has few of a machine's."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return max(1, min(allowed, _read_quota(quota, allowed)))


def _read_quota(path: Path, otherwise: int) -> int:
    try:
        used, period = path.read_text().split()
        return -(-int(used) // int(period))
    except (OSError, ValueError):  # there is none, or it is "max"
        return otherwise
