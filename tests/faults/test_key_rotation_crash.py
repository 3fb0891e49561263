"""Item 31: the rotation of the master key is killed at every step, and then run again."""

import asyncio
import itertools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from clarion.access.vault import AesVault
from clarion.data_directory import DataDirectory
from clarion.key_rotation import SEALED, count_keys
from clarion.store.opening import migrate, open_engine
from tests.faults.migrating import PROCESSES
from tests.faults.rotating import rotate
from tests.faults.sizes import SIZES
from tests.sealed_values import open_all, plant

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

STEPS_AT_MOST = 60
PROCESS_LIMIT_S = 60


async def rotate_in_process(directory: DataDirectory, url: str, kill_at: int) -> int:
    process = PROCESSES.Process(target=rotate, args=(directory.path, url, kill_at))
    process.start()
    await asyncio.to_thread(process.join, PROCESS_LIMIT_S)
    assert process.exitcode is not None, "the rotation does not end"
    return process.exitcode


async def plant_more(directory: DataDirectory, url: str, number: int) -> None:
    """Seal as a server that is started now would, and read everything there is."""
    vault = AesVault(*directory.read_master_keys())
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    assert await open_all(engine, vault) == len(SEALED) * number, f"killed at step {number}"
    await plant(engine, vault, 1, first=number)
    await engine.close()


async def test_a_killed_rotation_loses_nothing_and_is_finished_by_the_next(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    directory, url = DataDirectory(tmp_path), f"sqlite:///{tmp_path / 'clarion.db'}"
    directory.ensure()
    directory.ensure_master_keys()
    await migrate(url)
    await plant_more(directory, url, 0)
    for step in itertools.islice(itertools.count(1), STEPS_AT_MOST):
        ended = await rotate_in_process(directory, url, kill_at=step)
        await plant_more(directory, url, step)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        assert await rotate_in_process(directory, url, kill_at=0) == 0
    figures(f"Item 31: rotation killed at each of {step - 1} steps, all secrets readable")
    assert 10 < step < STEPS_AT_MOST
    vault = AesVault(*directory.read_master_keys())
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    assert await count_keys(engine.fetch) == {vault.key_id: len(SEALED) * (step + 1)}
    assert await open_all(engine, vault) == len(SEALED) * (step + 1)
    await engine.close()
    assert len(directory.read_master_keys()) == 1
