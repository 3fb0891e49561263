"""The rotation of the master key: everything is sealed again, and nothing is ever unreadable."""

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clarion.access.vault import Vault, key_id_of
from clarion.app import key_rotation
from clarion.app.key_rotation import SEALED, count_keys, find_unreadable, refuse_retired_key
from clarion.errors import CommandFailed, InternalError, StartError, StoreUnavailable
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.lifecycle.sealing import PAGE_ROWS
from clarion.store.opening import migrate, open_engine, sqlite_path
from clarion.store.postgres.key_locks import hold_key
from clarion.store.statement import Unit
from clarion.system.data_directory import DataDirectory
from tests.conftest import run_sql
from tests.factories import FixedClock
from tests.sealed_values import COLUMNS, PLANTED, open_all, plant, read_rows

TABLES = [column.table for column in SEALED]
STEPS_AT_MOST = 50
# They alone hold locks of this kind.
DISCONNECT_WRITERS = """SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 2
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    directory = DataDirectory(tmp_path / "data")
    directory.ensure()
    directory.ensure_master_keys()
    return directory


@pytest.fixture
def old(directory: DataDirectory) -> Vault:
    return Vault(*directory.read_master_keys())


async def rotate(directory: DataDirectory, engine: Engine, url: str) -> bytes:
    return await key_rotation.rotate(
        directory, engine, url, FixedClock(), on_progress=lambda _done, _total: None
    )


class Killed(BaseException):
    """The process ends here."""


class Switch:
    """Ends the process at the call of the given number."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Killed


class DyingDirectory(DataDirectory):
    """Dies before or after it has replaced the keys."""

    def __init__(self, path: Path, switch: Switch) -> None:
        super().__init__(path)
        self._switch = switch

    def write_master_keys(self, keys: Sequence[bytes]) -> None:
        self._switch.count()
        super().write_master_keys(keys)
        self._switch.count()


class DyingEngine:
    """Dies before or after a commit."""

    def __init__(self, engine: Engine, switch: Switch) -> None:
        self._engine = engine
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def write(self, unit: Unit) -> Rows | None:
        self._switch.count()
        rows = await self._engine.write(unit)
        self._switch.count()
        return rows


async def test_everything_is_sealed_with_the_new_key(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    await plant(engine, old, 3)
    before = directory.read_master_keys()
    new = await rotate(directory, engine, database_url)
    (key,) = directory.read_master_keys()
    assert key not in before
    assert new == key_id_of(key) != old.key_id
    assert await count_keys(engine.fetch) == {new: COLUMNS * 3 + 1}
    assert await open_all(engine, Vault(key)) == COLUMNS * 3
    with pytest.raises(InternalError, match=f"key {new.hex()}"):
        await open_all(engine, old)


async def test_a_rotation_reads_page_after_page(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    await plant(engine, old, PAGE_ROWS + 3)
    shown: list[tuple[int, int]] = []
    await key_rotation.rotate(
        directory, engine, database_url, FixedClock(), lambda *each: shown.append(each)
    )
    total = COLUMNS * (PAGE_ROWS + 3)
    assert shown[-1] == (total + 1, total + 1)
    assert shown == sorted(shown)
    assert await open_all(engine, Vault(*directory.read_master_keys())) == total


async def test_a_rotation_can_follow_another(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    await plant(engine, old, 1)
    for _ in range(3):
        await rotate(directory, engine, database_url)
    assert await open_all(engine, Vault(*directory.read_master_keys())) == COLUMNS
    assert await count_keys(engine.fetch) == {
        key_id_of(directory.read_master_keys()[0]): COLUMNS + 3
    }


async def test_a_rotation_that_ends_anywhere_loses_nothing_and_is_resumed(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    await plant(engine, old, 1)
    for step in itertools.islice(itertools.count(1), STEPS_AT_MOST):
        switch = Switch(step)
        dying: Any = DyingEngine(engine, switch)
        try:
            await rotate(DyingDirectory(directory.path, switch), dying, database_url)
        except Killed:
            vault = Vault(*directory.read_master_keys())
            assert await open_all(engine, vault) == COLUMNS * step
            # Servers that start now seal with the new key.
            await plant(engine, vault, 1, first=step)
            await rotate(directory, engine, database_url)
        else:
            break
        assert len(directory.read_master_keys()) == 1
    assert 10 < step < STEPS_AT_MOST
    vault = Vault(*directory.read_master_keys())
    assert set(await count_keys(engine.fetch)) == {vault.key_id}
    assert await open_all(engine, vault) == COLUMNS * step


@pytest.mark.parametrize("table", TABLES)
async def test_a_value_that_is_moved_to_another_row_cannot_be_read(
    engine: Engine, old: Vault, table: str
) -> None:
    await plant(engine, old, 2)
    (column,) = (each for each in SEALED if each.table == table)
    first, second = await read_rows(engine, table)
    assert old.open(first[-1], column.find_context(first))
    for row, sealed in ((first, second[-1]), (second, first[-1])):
        with pytest.raises(InternalError, match=r"master\.key"):
            old.open(sealed, column.find_context(row))


async def test_a_value_that_is_moved_to_another_column_cannot_be_read(
    engine: Engine, old: Vault
) -> None:
    await plant(engine, old, 1)
    rows = {each: (await read_rows(engine, each.table))[0] for each in SEALED}
    for column, row in rows.items():
        for other, values in rows.items():
            if other is not column:
                with pytest.raises(InternalError):
                    old.open(row[-1], other.find_context(values))


async def test_a_value_that_cannot_be_read_keeps_the_old_key(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    await plant(engine, old, 2)
    providers = SEALED[TABLES.index("providers")]
    row = (await read_rows(engine, "providers"))[0]
    damaged = providers.replace().step(
        **providers.read_key(row), before=row[-1], sealed=row[-1][:-1] + b"\0"
    )
    await engine.write(Unit("", (damaged,)))
    with pytest.raises(CommandFailed, match=r"providers\.secrets cannot be decrypted for app_id"):
        await rotate(directory, engine, database_url)
    assert len(directory.read_master_keys()) == 2


async def test_keys_that_are_missing_are_named(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    other = Vault(b"x" * 32)
    await plant(engine, other, 1)
    with pytest.raises(CommandFailed, match=rf"not in master\.key: {other.key_id.hex()}"):
        await rotate(directory, engine, database_url)
    assert directory.read_master_keys() == DataDirectory(directory.path).read_master_keys()
    assert len(directory.read_master_keys()) == 1
    assert f"does not have its key {other.key_id.hex()}" in str(
        await find_unreadable(engine.fetch, old)
    )


async def test_a_key_that_was_replaced_is_refused(
    engine: Engine, database_url: str, directory: DataDirectory, old: Vault
) -> None:
    await refuse_retired_key(engine, old.key_id)
    await rotate(directory, engine, database_url)
    with pytest.raises(StartError, match=rf"{old.key_id.hex()} in master\.key was replaced"):
        await refuse_retired_key(engine, old.key_id)


async def test_a_rotation_waits_for_nodes_that_use_the_old_key(
    emptied_database: str, directory: DataDirectory, old: Vault
) -> None:
    """On PostgreSQL: the key is added, the nodes are restarted, and the old key is removed."""
    url = emptied_database
    engine = await open_node(url, old)
    await plant(engine, old, 1)
    with pytest.raises(
        CommandFailed, match=r"Copy master\.key to the data directory of every node"
    ):
        await rotate(directory, engine, url)
    new = Vault(*directory.read_master_keys())
    assert await count_keys(engine.fetch) == {old.key_id: COLUMNS}
    restarted = await open_node(url, new)
    await plant(restarted, new, 1, first=1)
    with pytest.raises(CommandFailed, match="servers still use the old one"):
        await rotate(directory, restarted, url)
    # A node that has not restarted reads what others sealed, when master.key is copied to it.
    running = Vault(b"o" * 32, reread=directory.read_master_keys)
    assert await open_all(engine, running) == COLUMNS * 2
    await engine.close()
    await rotate(directory, restarted, url)
    assert await count_keys(restarted.fetch) == {new.key_id: COLUMNS * 2 + 1}
    with pytest.raises(StoreUnavailable, match="was replaced by `clarion vault rotate`"):
        await open_node(url, old)
    await restarted.close()


async def test_a_node_that_lost_its_connection_cannot_go_on_with_a_replaced_key(
    emptied_database: str, directory: DataDirectory, old: Vault
) -> None:
    """Without a connection it holds no lock; what it has sealed is refused when it is back."""
    url = emptied_database
    node = await open_node(url, old)
    await plant(node, old, 1)
    other = await open_node(url, Vault(b"x" * 32))
    await run_sql(url, DISCONNECT_WRITERS)
    new = await rotate(directory, other, url)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await plant(node, old, 1, first=1)
    assert await count_keys(node.fetch) == {new: COLUMNS + 1}
    await node.close()
    await other.close()


async def test_no_secret_is_in_the_files_of_the_database(
    sqlite_database: str, directory: DataDirectory, old: Vault
) -> None:
    await migrate(sqlite_database)
    engine = await open_engine(sqlite_database, waiting_limit=100, batch_limit=100, on_broken=print)
    await plant(engine, old, 5)
    before = read_files(sqlite_database)
    await rotate(directory, engine, sqlite_database)
    for content in (before, read_files(sqlite_database)):
        assert b"device-4" in content
        assert PLANTED not in content
    await engine.close()
    assert PLANTED not in read_files(sqlite_database)


def read_files(url: str) -> bytes:
    """Return the content of a SQLite database and its write-ahead log."""
    path = Path(sqlite_path(url) or "")
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


async def open_node(url: str, vault: Vault) -> Engine:
    return await open_engine(
        url,
        waiting_limit=100,
        batch_limit=100,
        on_broken=print,
        on_connect=partial(hold_key, vault.key_id),
    )
