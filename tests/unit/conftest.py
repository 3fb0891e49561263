"""A store in the memory of this process: the real statements, without the writer process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw
import pytest

from clarion.access.administrators.sql.stores import AdminStores, make_admin_stores
from clarion.access.known_apps import KnownApps
from clarion.access.model import UserKey
from clarion.access.sql import AppKeys, Apps, Keys, Tickets, open_user_keys
from clarion.access.vault import Vault
from clarion.errors import Conflict
from clarion.store.batch import Done, arrange
from clarion.store.group_commit import Rows
from clarion.store.sqlite.runner import SqliteRunner
from clarion.store.statement import Row, Statement, Unit, Value
from tests.factories import FixedClock
from tests.migrated import copy_migrated


class MemoryEngine:
    """The `Engine` contract on SQLite in memory: each unit is a batch of its own."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.reads = 0
        self._connection = connection
        self._runner = SqliteRunner(connection)

    async def write(self, unit: Unit) -> Rows | None:
        report = self._runner.run(arrange([unit]))
        if report.failed:
            raise Conflict
        (outcome,) = report.outcomes([unit])
        return outcome.rows if isinstance(outcome, Done) else None

    async def write_apart(self, unit: Unit) -> Rows | None:
        return await self.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        self.reads += 1
        return self._connection.execute(statement.text, statement.bind(**values)).fetchall()


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    with open_in_memory() as opened:
        yield opened


@pytest.fixture
def other_engine() -> Iterator[MemoryEngine]:
    """Another database."""
    with open_in_memory() as opened:
        yield opened


@contextmanager
def open_in_memory() -> Iterator[MemoryEngine]:
    connection = copy_migrated()
    yield MemoryEngine(connection)
    connection.close()


@pytest.fixture
def apps(engine: MemoryEngine) -> Apps:
    return Apps(engine)  # type: ignore[arg-type]


@pytest.fixture
def keys(engine: MemoryEngine) -> Keys:
    return Keys(engine)  # type: ignore[arg-type]


@pytest.fixture
def user_keys(engine: MemoryEngine) -> AppKeys[UserKey]:
    return open_user_keys(engine)  # type: ignore[arg-type]


@pytest.fixture
def tickets(engine: MemoryEngine) -> Tickets:
    return Tickets(engine)  # type: ignore[arg-type]


@pytest.fixture
def admins(engine: MemoryEngine) -> AdminStores:
    return make_admin_stores(engine)  # type: ignore[arg-type]


@pytest.fixture
def vault() -> Vault:
    return Vault(bytes(range(32)))


@pytest.fixture
def known_apps(apps: Apps, user_keys: AppKeys[UserKey], vault: Vault) -> KnownApps:
    return KnownApps(apps, user_keys, vault)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()
