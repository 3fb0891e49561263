"""Replaces the master key in a process of its own, which kills itself on the way."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clarion.app import key_rotation
from clarion.clock import SystemClock
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.opening import open_engine
from clarion.store.statement import Unit
from clarion.system.data_directory import DataDirectory
from tests.faults.migrating import PROCESSES, KillSwitch

PROCESSES.set_forkserver_preload(["tests.faults.migrating", __name__])


class KilledDirectory(DataDirectory):
    """May end before or after the keys are replaced."""

    def __init__(self, path: Path, switch: KillSwitch) -> None:
        super().__init__(path)
        self._switch = switch

    def write_master_keys(self, keys: Sequence[bytes]) -> None:
        self._switch.count()
        super().write_master_keys(keys)
        self._switch.count()


class KilledEngine:
    """May end before a commit, during it, or after it."""

    def __init__(self, engine: Engine, switch: KillSwitch) -> None:
        self._engine = engine
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def write(self, unit: Unit) -> Rows | None:
        self._switch.count()
        writing = asyncio.ensure_future(self._engine.write(unit))
        await asyncio.sleep(0)
        self._switch.count()
        rows = await writing
        self._switch.count()
        return rows


def rotate(path: Path, url: str, kill_at: int) -> None:
    """Run a rotation that dies by SIGKILL at a step; with 0, or if there are fewer, it ends."""
    asyncio.run(_rotate(path, url, KillSwitch(kill_at)))


async def _rotate(path: Path, url: str, switch: KillSwitch) -> None:
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    directory = KilledDirectory(path, switch)
    killed: Any = KilledEngine(engine, switch)
    with directory.replace_keys():
        await key_rotation.rotate(
            directory, killed, url, SystemClock(), on_progress=lambda _done, _total: None
        )
    await engine.close()
