"""The servers that the other tests stand on."""

import asyncpg
import pytest
import redis

from tests.servers import (
    PostgresServer,
    RedisCluster,
    RedisServer,
    ServerUnavailableError,
    shared_url,
    wait_until,
)

pytestmark = pytest.mark.rest("servers that only other long tests start")


async def fetch(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_each_test_gets_a_database_of_its_own(
    postgres_database: str, database_name: str
) -> None:
    assert await fetch(postgres_database, "SELECT current_database()") == database_name


async def test_commits_are_synced_to_disk(postgres_url: str) -> None:
    assert await fetch(postgres_url, "SHOW fsync") == "on"
    assert await fetch(postgres_url, "SHOW synchronous_commit") == "on"


def test_each_test_gets_an_empty_redis(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


@pytest.mark.parametrize("bundled", [False, True], ids=["installed", "bundled"])
async def test_a_private_postgres_keeps_commits_over_a_kill(*, bundled: bool) -> None:
    with PostgresServer(bundled=bundled) as server:
        await fetch(server.url, "CREATE TABLE kept AS SELECT 7 AS number")
        server.kill()
        server.restart()
        assert await fetch(server.url, "SELECT number FROM kept") == 7


async def test_a_killed_postgres_refuses_connections() -> None:
    with PostgresServer() as server:
        server.kill()
        with pytest.raises(OSError, match="onnect"):
            await fetch(server.url, "SELECT 1")


@pytest.mark.parametrize("bundled", [False, True], ids=["installed", "bundled"])
def test_a_private_redis_forgets_everything_over_a_restart(*, bundled: bool) -> None:
    with RedisServer(bundled=bundled) as server, redis.Redis.from_url(server.url) as client:
        client.set("a", "1")
        server.restart()
        assert client.get("a") is None


def test_a_redis_cluster_replaces_a_primary_that_is_killed() -> None:
    with RedisCluster(has_replicas=True) as cluster:
        owner = cluster.find_owner("a")
        owner.kill()
        left = [each for each in cluster.members if each is not owner]
        wait_until(lambda: cluster.find_owner("a") in left)
        wait_until(lambda: all(each.is_well() for each in left))
        cluster.find_owner("a").ask("SET", "a", "1")


def test_a_server_that_cannot_start_says_why() -> None:
    server = PostgresServer(settings={"shared_buffers": "nonsense"})
    with pytest.raises(ServerUnavailableError, match="shared_buffers"), server:
        pass


def test_a_missing_server_is_an_error_and_not_a_skip() -> None:
    with pytest.raises(ServerUnavailableError, match="CLARION_TEST_NOTHING is not set"):
        shared_url("CLARION_TEST_NOTHING")
