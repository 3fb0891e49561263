"""One table: what is measured in the background for the metrics, and how often.

A scrape reads only numbers in memory; numbers that need a read of the store or the file system are
read here, with a limit.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from clarion.app.housekeeping import Task
from clarion.events.ledger import LedgerCheck
from clarion.events.metrics import watch_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from clarion.app.services import Services
    from clarion.app.stores import Stores
    from clarion.push.metrics import GatewayMetrics
    from clarion.push.sql.statistics import Statistics
    from clarion.settings import Settings
    from clarion.telemetry.metrics import Metrics

LEDGER_EVERY_S = 10.0
PENDING_EVERY_S = 15.0
DISK_EVERY_S = 15.0
# Counting this many takes a few milliseconds.
PENDING_LIMIT = 100_000


def list_measurements(stores: Stores, services: Services, settings: Settings) -> tuple[Task, ...]:
    """Return everything that is measured, and export it."""
    ledger = LedgerCheck(stores.ledger)
    watch_ledger(services.metrics.registry, ledger)
    pending = PendingCount(stores.statistics, services.gateway_metrics)
    disk = DiskSpace(settings.data, services.metrics)
    table = {
        "check_ledger": (LEDGER_EVERY_S, ledger.step),
        "count_pending_messages": (PENDING_EVERY_S, pending.step),
        "measure_disk": (DISK_EVERY_S, disk.step),
    }
    return tuple(Task(name, every_s, step, stores.clock) for name, (every_s, step) in table.items())


class PendingCount:
    """Counts the messages that wait for their devices."""

    def __init__(self, statistics: Statistics, metrics: GatewayMetrics) -> None:
        self._statistics = statistics
        self._metrics = metrics

    async def step(self, _now: int) -> int:
        self._metrics.pending = await self._statistics.count_pending(PENDING_LIMIT)
        return 0


class DiskSpace:
    """Measures the file system of the data directory."""

    def __init__(self, data: Path, metrics: Metrics) -> None:
        self._data = data
        usage = shutil.disk_usage(data)
        self._free, self._size = usage.free, usage.total
        metrics.watch_disk(lambda: (self._free, self._size))

    async def step(self, _now: int) -> int:
        # In a thread: a file system over a network may hang.
        usage = await asyncio.to_thread(shutil.disk_usage, self._data)
        self._free, self._size = usage.free, usage.total
        return 0
