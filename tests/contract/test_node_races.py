"""What only several nodes on PostgreSQL can do: a row changes between two looks of a statement."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import asyncpg
import pytest

from clarion.events.model import NEVER, JobKind
from clarion.events.sql.retention import SqlRetention
from clarion.push.model import Message, MessageReason, MessageStatus
from clarion.push.sql.messages import SqlHistory, SqlMessages
from clarion.store.engine import Engine
from clarion.store.opening import migrate
from tests.contract.conftest import nothing_left, opened
from tests.factories import NOW, make_message
from tests.pipeline import PipelineStore, make_event, make_job

DELIVER = "UPDATE messages SET status = 'delivered', reason = 'acknowledged' WHERE id = $1"
STORE_ANEW = "UPDATE messages SET status = 'queued', reason = NULL, sequence = $2 WHERE id = $1"
BLOCKED = """SELECT COUNT(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'"""


@pytest.fixture
async def engine(emptied_database: str) -> AsyncIterator[Engine]:
    await migrate(emptied_database)
    async with nothing_left(), opened(emptied_database) as engine:
        yield engine


@pytest.fixture
async def rival(engine: Engine, emptied_database: str) -> AsyncIterator[asyncpg.Connection]:
    """A node in the middle of a transaction."""
    assert engine.commit is not None
    connection = await asyncpg.connect(emptied_database)
    yield connection
    await connection.close()


async def meet(
    rival: asyncpg.Connection,
    change: str,
    values: tuple[object, ...],
    work: Coroutine[Any, Any, Any],
) -> None:
    """Let work find a row as it was, wait for the rival that changes it, and then go on."""
    async with rival.transaction():
        await rival.execute(change, *values)
        working = asyncio.ensure_future(work)
        while not await rival.fetchval(BLOCKED):
            assert not working.done(), "the work did not wait for the row"
    await working


async def status_of(engine: Engine, message: Message) -> MessageStatus | None:
    record = await SqlHistory(engine).get("app", message.device_id, message.id)
    return record.status if record else None


@pytest.mark.parametrize("ending", ["trim", "expire", "fail", "collapse"])
async def test_what_another_node_delivers_meanwhile_stays_delivered(
    engine: Engine, rival: asyncpg.Connection, ending: str
) -> None:
    messages, message = SqlMessages(engine), make_message(collapse_id="c")
    await messages.add(message, MessageStatus.QUEUED, None)
    failed = (MessageStatus.FAILED, MessageReason.UNREGISTERED)
    work: dict[str, Any] = {
        "trim": lambda: messages.trim("device", 0, NOW),
        "expire": lambda: messages.expire(message.expires_at, 9),
        "fail": lambda: messages.fail("device", message.id, NOW),
        "collapse": lambda: messages.add(make_message(collapse_id="c"), *failed),
    }
    await meet(rival, DELIVER, (message.id,), work[ending]())
    assert await status_of(engine, message) is MessageStatus.DELIVERED


async def test_what_another_node_stores_anew_meanwhile_is_not_pruned(
    engine: Engine, rival: asyncpg.Connection
) -> None:
    message = make_message(sequence=1)
    await SqlMessages(engine).add(message, MessageStatus.FAILED, None)
    pruning = SqlHistory(engine).prune("app", NOW, 9)
    await meet(rival, STORE_ANEW, (message.id, NOW * 1000), pruning)
    assert await status_of(engine, message) is MessageStatus.QUEUED


async def test_a_digest_that_another_node_begins_anew_meanwhile_keeps_its_job(
    engine: Engine, rival: asyncpg.Connection
) -> None:
    store = PipelineStore(engine, "app")
    orphan = make_job(make_event("app"), kind=JobKind.DIGEST, due_at=NEVER)
    await store.accept_job(orphan)
    pruning = SqlRetention(engine).prune_orphaned_jobs(9)
    await meet(rival, "UPDATE jobs SET due_at = $2 WHERE id = $1", (orphan.id, NOW), pruning)
    assert await store.due_times([orphan.id]) == {orphan.id: NOW}
