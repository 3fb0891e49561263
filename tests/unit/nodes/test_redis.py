"""Redis away: each node counts for itself, and says so."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from clarion.nodes.memory import MemoryLimits
from clarion.nodes.redis import RedisDependency, RedisLimits, RedisUnavailable, connect
from tests.factories import NOW
from tests.processes import free_port


@pytest.fixture
async def unreachable() -> AsyncIterator[Redis]:
    """A client of a server that is not there."""
    async with connect(f"redis://127.0.0.1:{free_port()}/0") as client:
        yield client


async def test_without_redis_the_node_counts_for_itself(unreachable: Redis) -> None:
    limits = RedisLimits(unreachable, MemoryLimits())
    taken = [await limits.take("a", limit=2, window_s=60, now=NOW) for _ in range(3)]
    assert [each.is_exceeded for each in taken] == [False, False, True]


async def test_without_redis_the_check_fails(unreachable: Redis) -> None:
    with pytest.raises(RedisUnavailable) as raised:
        await RedisDependency(unreachable).check()
    assert raised.value.retryable
