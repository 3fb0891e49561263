"""T12, T14: PostgreSQL crashes, restarts and misbehaves while three nodes work on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from tests.faults.cluster_run import CLIENTS, CONVERGED_S, ClusterRun, run_cluster
from tests.faults.sizes import SIZES
from tests.faults.test_postgres_crash import ENDS
from tests.lanes import is_measured
from tests.servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

CONNECTIONS = 80
# In one transaction of twenty, at its end, as PostgreSQL reports conflicts between transactions.
# The next try is another transaction.
INJECT = """
CREATE FUNCTION lose_conflict() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (pg_current_xact_id()::text::bigint * 7919) % 20 = 0 THEN
    RAISE EXCEPTION 'injected'
    USING ERRCODE = CASE WHEN random() < 0.5 THEN '40001' ELSE '40P01' END;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER lose_conflict AFTER INSERT OR UPDATE ON {table}
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION lose_conflict();
"""
TERMINATE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'clarion' ORDER BY random() LIMIT $1"""


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"max_connections": str(CONNECTIONS)}) as server:
        yield server


@asynccontextmanager
async def connected(run: ClusterRun) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(run.url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_nodes_lose_nothing_when_postgres_is_killed_and_stopped(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """T12: under load on three nodes, which serve again by themselves."""
    slowest_s = 0.0
    async with run_cluster(tmp_path, postgres, redis) as run:
        async with run.under_load():
            for end in ENDS * SIZES.cluster_rounds:
                await asyncio.to_thread(end, postgres)
                await asyncio.to_thread(postgres.start)
                slowest_s = max(slowest_s, await run.progress())
        await run.settle()
        faults = await run.find_faults()
        figures(
            f"T12 on three nodes: {len(ENDS) * SIZES.cluster_rounds} kills and stops, slowest "
            f"{slowest_s:.1f} s until the next 100 requests, {await run.describe()}"
        )
    assert faults[:20] == []
    assert run.settled_s <= CONVERGED_S or not is_measured()


async def terminate_backends(run: ClusterRun) -> None:
    async with connected(run) as connection:
        for _ in range(10 * SIZES.cluster_rounds):
            await connection.execute(TERMINATE, run.chance.randint(1, 4))
            await run.progress(10)


async def exhaust_connections(run: ClusterRun) -> None:
    """Take every connection that the server has, so that the nodes get none back."""
    async with AsyncExitStack() as stack, connected(run) as connection:
        await connection.execute(TERMINATE, CONNECTIONS)
        with suppress(asyncpg.TooManyConnectionsError):
            for _ in range(CONNECTIONS):
                await stack.enter_async_context(connected(run))
        await connection.execute(TERMINATE, CONNECTIONS)
        await asyncio.sleep(SIZES.cluster_fault_s)  # the time without a connection


async def lock_table(run: ClusterRun) -> None:
    """Hold the table that every event is stored in."""
    async with connected(run) as connection, connection.transaction():
        await connection.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(SIZES.lock_s)  # the time of the lock


async def idle_in_transaction(run: ClusterRun) -> None:
    """Lock the rows of some inboxes, and do nothing: their users wait, nothing is lost."""
    async with connected(run) as connection, connection.transaction():
        await connection.fetch("SELECT * FROM inboxes ORDER BY user_id LIMIT 5 FOR UPDATE")
        await asyncio.sleep(SIZES.lock_s)  # the time of the transaction


async def inject_conflicts(run: ClusterRun) -> None:
    """Let one commit of twenty fail: clients must not notice."""
    async with connected(run) as connection:
        await connection.execute(INJECT.format(table="events"))
        await run.progress(10)
        before = len(run.senders.unknown)
        await run.progress(300 * SIZES.cluster_rounds)
        assert len(run.senders.unknown) == before
        await connection.execute("DROP FUNCTION lose_conflict CASCADE")


async def test_without_retries_clients_notice_conflicts(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """T14, the control: a node that does not run a batch again is found by the same check."""
    async with run_cluster(tmp_path, postgres, redis, without="retries") as run:
        async with run.senders.running(CLIENTS):
            with pytest.raises(AssertionError):
                await inject_conflicts(run)
            run.senders.stop()
        figures(f"T14, control without retries: {dict(run.senders.statuses)}")


MISBEHAVIOUR = [
    terminate_backends,
    exhaust_connections,
    lock_table,
    idle_in_transaction,
    inject_conflicts,
]


async def test_nodes_retry_when_postgres_misbehaves(
    tmp_path: Path,
    postgres: PostgresServer,
    redis: RedisServer,
    figures: Callable[[str], None],
) -> None:
    """T14: clients see 503 at most, never 500, and nothing is lost."""
    async with run_cluster(tmp_path, postgres, redis) as run:
        async with run.under_load():
            for misbehave in MISBEHAVIOUR:
                before = run.senders.statuses.copy()
                await misbehave(run)
                took_s = await run.progress()
                seen = dict(run.senders.statuses - before)
                figures(f"T14 {misbehave.__name__}: {seen}, then 100 in {took_s:.1f} s")
        await run.settle()
        faults = await run.find_faults()
        figures(f"T14 on three nodes: {await run.describe()}")
    assert faults[:20] == []
