"""Claims of several nodes on PostgreSQL: none waits for another, and no request for a claim."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from clarion.catalog.model import Priority
from clarion.events.model import DECISIONS, Job, JobOutcome
from clarion.events.sql.jobs import CLAIM, SqlQueue
from clarion.nodes.model import Node
from clarion.nodes.sql import NodeRecords
from clarion.store.engine import Engine
from clarion.store.opening import migrate
from clarion.store.postgres.runner import unveil
from tests.contract.conftest import nothing_left, opened
from tests.contract.test_node_races import BLOCKED
from tests.factories import NOW
from tests.pipeline import EACH_LANE, LEASE, PipelineStore

PATIENCE_S = 30.0


@pytest.fixture
async def engine(emptied_database: str) -> AsyncIterator[Engine]:
    await migrate(emptied_database)
    async with nothing_left(), opened(emptied_database) as engine:
        yield engine


@pytest.fixture
async def rival(engine: Engine, emptied_database: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection of another node for its claims."""
    assert engine.commit is not None
    connection = await asyncpg.connect(emptied_database)
    yield connection
    await connection.close()


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, "app")


def bind_claim(limit: int) -> tuple[object, ...]:
    return CLAIM.bind(
        pool=DECISIONS,
        lane=Priority.MEDIUM.value,
        app_id="app",
        now=NOW,
        until=NOW + LEASE,
        node_id="rival",
        limit=limit,
    )


async def claim(engine: Engine, node_id: str = "") -> tuple[Job, ...]:
    queue = SqlQueue(engine, node_id)
    return await queue.claim(DECISIONS, "app", EACH_LANE, now=NOW, until=NOW + LEASE)


async def test_a_claim_that_hangs_open_blocks_neither_claims_nor_requests(
    engine: Engine, rival: asyncpg.Connection, store: PipelineStore
) -> None:
    for _ in range(3):
        await store.accept()
    transaction = rival.transaction()
    await transaction.start()
    (held,) = await rival.fetch(unveil(CLAIM.text), *bind_claim(1))
    async with asyncio.timeout(PATIENCE_S):
        claimed = await claim(engine)
        assert len(claimed) == 2
        assert held["id"] not in {job.id for job in claimed}
        event = await store.accept()
        assert await store.write(*(JobOutcome(job=job) for job in claimed)) == [True, True]
    assert await rival.fetchval(BLOCKED) == 0
    await transaction.rollback()
    assert {job.id for job in await claim(engine)} == {held["id"], event.id}


async def test_the_check_notices_a_claim_that_waits(
    rival: asyncpg.Connection, store: PipelineStore, emptied_database: str
) -> None:
    """The control: without SKIP LOCKED the second claim waits for the first."""
    await store.accept()
    transaction = rival.transaction()
    await transaction.start()
    await rival.fetch(unveil(CLAIM.text), *bind_claim(1))
    third = await asyncpg.connect(emptied_database)
    waiting = asyncio.ensure_future(third.fetch(CLAIM.text, *bind_claim(1)))
    async with asyncio.timeout(PATIENCE_S):
        while not await rival.fetchval(BLOCKED):
            assert not waiting.done()
        await transaction.rollback()
        await waiting
    await third.close()


async def test_what_is_written_apart_holds_up_no_request(
    engine: Engine, rival: asyncpg.Connection, store: PipelineStore
) -> None:
    """A heart-beat waits for a row, and requests go on."""
    await rival.execute("INSERT INTO nodes VALUES ('a', 'a', '0', 1, 1)")
    transaction = rival.transaction()
    await transaction.start()
    await rival.execute("UPDATE nodes SET seen_at = 2")
    beat = asyncio.ensure_future(NodeRecords(engine).beat(Node("a", "a", "0", 1, 3), until=9))
    async with asyncio.timeout(PATIENCE_S):
        while not await rival.fetchval(BLOCKED):
            assert not beat.done()
        await store.accept()
        assert not beat.done()
        await transaction.commit()
        await beat


async def test_two_nodes_never_claim_the_same_job(engine: Engine, emptied_database: str) -> None:
    store = PipelineStore(engine, "app")
    for _ in range(100):
        await store.accept()
    async with opened(emptied_database) as other:
        nodes = [SqlQueue(each, name) for each, name in ((engine, "a"), (other, "b"))]
        few = dict.fromkeys(Priority, 3)
        turns = [
            node.claim(DECISIONS, "app", few, now=NOW, until=NOW + LEASE)
            for _ in range(30)
            for node in nodes
        ]
        claimed = [job for jobs in await asyncio.gather(*turns) for job in jobs]
    assert len(claimed) == len({job.id for job in claimed}) == 100
    assert {job.token for job in claimed} == {1}
    assert {job.node_id for job in claimed} == {"a", "b"}
