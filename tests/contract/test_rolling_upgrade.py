"""Nodes of two releases on one PostgreSQL: what is added comes first, what is removed last."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

import asyncpg
import pytest

from clarion.access.sql import Keys
from clarion.errors import MigrationError, StartError, StoreUnavailable
from clarion.store.migrations.plan import (
    Migration,
    MigrationStep,
    apply_to_postgres,
    find_newest,
    load,
)
from clarion.store.opening import open_engine
from clarion.store.postgres.engine import PostgresEngine
from clarion.store.postgres.release_locks import hold_release
from tests.factories import make_key

OLD = load("postgres")
OLD_NEWEST = find_newest("postgres")
# As a later release would have them.
ADDED = Migration(9001, "note", "ALTER TABLE api_keys ADD COLUMN note TEXT NOT NULL DEFAULT ''")
REMOVED = Migration(9002, "no_label", "ALTER TABLE api_keys DROP COLUMN label", MigrationStep.AFTER)
MORE = Migration(9003, "more", "CREATE TABLE more (id TEXT PRIMARY KEY)")
NEW = [*OLD, ADDED, REMOVED, MORE]
WAIT_S = 30


class Postponed(list[tuple[str, int]]):
    """What was postponed, and for how many nodes."""

    def note(self, migration: Migration, nodes: Sequence[str]) -> None:
        self.append((migration.title, len(nodes)))


@pytest.fixture
async def connection(postgres_database: str) -> AsyncIterator[asyncpg.Connection]:
    """Of somebody who migrates; the database is as the earlier release made it."""
    connection = await asyncpg.connect(postgres_database)
    await apply_to_postgres(connection, OLD)
    yield connection
    await connection.close()


async def open_old(url: str, newest: int = OLD_NEWEST) -> PostgresEngine:
    """Open the database as a node of a release."""
    engine = await open_engine(
        url,
        waiting_limit=100,
        batch_limit=100,
        on_broken=print,
        on_connect=partial(hold_release, newest),
    )
    assert isinstance(engine, PostgresEngine)
    return engine


@pytest.fixture
async def old_node(
    connection: asyncpg.Connection, postgres_database: str
) -> AsyncIterator[PostgresEngine]:
    engine = await open_old(postgres_database)
    assert not connection.is_closed()
    yield engine
    await engine.close()


async def test_an_earlier_release_goes_on_beside_what_was_added(
    connection: asyncpg.Connection, old_node: PostgresEngine, postgres_database: str
) -> None:
    postponed = Postponed()
    applied = await apply_to_postgres(connection, NEW, on_postponed=postponed.note)
    assert applied == ["9001 note", "9003 more"]
    assert postponed == [("9002 no_label", 1)]
    keys = Keys(old_node)
    key = make_key("app")
    await keys.create(key)
    assert await keys.find(key.id) == key
    assert await apply_to_postgres(connection, OLD) == []
    again = await open_old(postgres_database)
    assert await Keys(again).find(key.id) == key
    await again.close()


async def test_the_rest_is_applied_when_no_earlier_release_is_left(
    connection: asyncpg.Connection, old_node: PostgresEngine, postgres_database: str
) -> None:
    postponed = Postponed()
    await apply_to_postgres(connection, NEW, on_postponed=postponed.note)
    await old_node.close()
    newer = await open_old(postgres_database, MORE.version)
    assert await apply_to_postgres(connection, NEW, on_postponed=postponed.note) == [
        "9002 no_label"
    ]
    await newer.close()
    assert len(postponed) == 1
    with pytest.raises(MigrationError, match="is at migration 9002, but this release"):
        await apply_to_postgres(connection, OLD)
    with pytest.raises((StoreUnavailable, StartError)):
        await open_old(postgres_database)


async def test_a_new_database_gets_everything_in_order(postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    assert (await apply_to_postgres(connection, NEW))[-3:] == [
        ADDED.title,
        REMOVED.title,
        MORE.title,
    ]
    await connection.close()


async def test_a_node_that_starts_while_another_migrates_waits_and_is_refused(
    connection: asyncpg.Connection, postgres_database: str
) -> None:
    """Either the migration sees the node, or the node the migration."""
    other = await asyncpg.connect(postgres_database)
    blocker = await asyncpg.connect(postgres_database)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("LOCK TABLE api_keys IN ACCESS SHARE MODE")
    migrating = asyncio.create_task(apply_to_postgres(connection, [*OLD, REMOVED]))
    await until_locked(blocker)
    starting = asyncio.create_task(hold_release(OLD_NEWEST, other))
    await until_waiting(blocker)
    await transaction.rollback()
    assert await asyncio.wait_for(migrating, WAIT_S) == [REMOVED.title]
    with pytest.raises(StoreUnavailable, match="upgraded: it is at migration 9002"):
        await asyncio.wait_for(starting, WAIT_S)
    for each in (other, blocker):
        await each.close()


async def test_a_change_of_a_table_in_use_does_not_block_others_for_long(
    connection: asyncpg.Connection, old_node: PostgresEngine, postgres_database: str
) -> None:
    """It gives up its place after two seconds, and tries again."""
    blocker = await asyncpg.connect(postgres_database)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("LOCK TABLE api_keys IN ACCESS SHARE MODE")
    migrating = asyncio.create_task(apply_to_postgres(connection, [*OLD, ADDED]))
    await until_locked(blocker)
    await asyncio.wait_for(Keys(old_node).find("any"), WAIT_S)
    assert not migrating.done()
    await transaction.rollback()
    await blocker.close()
    assert await asyncio.wait_for(migrating, WAIT_S) == [ADDED.title]


async def test_a_change_that_others_wait_for_while_it_waits_for_them_is_tried_again(
    connection: asyncpg.Connection, postgres_database: str
) -> None:
    """PostgreSQL ends one of two that wait for each other: whichever looks for it, so not this."""
    both = Migration(ADDED.version, "both", "LOCK TABLE apps; LOCK TABLE api_keys")
    settings = {"deadlock_timeout": "1h"}
    blocker = await asyncpg.connect(postgres_database, server_settings=settings)
    async with blocker.transaction():
        await blocker.execute("LOCK TABLE api_keys")
        migrating = asyncio.create_task(apply_to_postgres(connection, [*OLD, both]))
        await until_locked(blocker)
        await asyncio.wait_for(blocker.execute("LOCK TABLE apps"), WAIT_S)
    await blocker.close()
    assert await asyncio.wait_for(migrating, WAIT_S) == [both.title]


async def until_locked(connection: asyncpg.Connection) -> None:
    """Wait until a migration waits for a table."""
    await until(
        connection,
        "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'api_keys'::regclass",
    )


async def until_waiting(connection: asyncpg.Connection) -> None:
    """Wait until a node waits for the migration."""
    await until(
        connection,
        """SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
    )


async def until(connection: asyncpg.Connection, count: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await connection.fetchval(count):  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.01)
