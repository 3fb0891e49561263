"""Item 31: the rotation of the master key is killed at every step, and then run again."""

import signal
from collections.abc import Callable
from pathlib import Path

from clarion.access.vault import Vault
from clarion.app.key_rotation import count_keys
from clarion.store.opening import migrate, open_engine
from clarion.system.data_directory import DataDirectory
from tests.faults.migrating import run_apart
from tests.faults.rotating import rotate
from tests.faults.sizes import CRASH, SIZES
from tests.sealed_values import COLUMNS, open_all, plant

pytestmark = CRASH

STEPS_AT_MOST = 60


async def plant_more(directory: DataDirectory, url: str, number: int) -> None:
    """Seal as a server that is started now would, and read everything there is."""
    vault = Vault(*directory.read_master_keys())
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    assert await open_all(engine, vault) == COLUMNS * number, f"after {number} kills"
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
    for number, step in enumerate(range(1, STEPS_AT_MOST, SIZES.rotation_stride), 1):
        ended = await run_apart(rotate, tmp_path, url, step)
        await plant_more(directory, url, number)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        assert await run_apart(rotate, tmp_path, url, 0) == 0
    figures(
        f"Item 31: rotation killed {number - 1} times in {step - 1} steps, all secrets readable"
    )
    assert ended == 0
    assert step > 10
    vault = Vault(*directory.read_master_keys())
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    assert set(await count_keys(engine.fetch)) == {vault.key_id}
    assert await open_all(engine, vault) == COLUMNS * (number + 1)
    await engine.close()
    assert len(directory.read_master_keys()) == 1
