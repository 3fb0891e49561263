"""Hot state in Redis or Valkey, shared by all nodes. It holds no truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.asyncio import Redis
from redis.exceptions import RedisError

from clarion.errors import ServiceError, StartError
from clarion.nodes.memory import allowance
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from clarion.nodes.model import Allowance
    from clarion.nodes.port import Limits

TIMEOUT_S = 0.5


class RedisUnavailable(ServiceError):
    """Redis did not answer."""

    code = "redis_unavailable"


def connect(url: str) -> Redis:
    """Return a client; it connects when first used. A call is answered or fails within 0.5 s."""
    try:
        redis = Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, max_connections=64
        )
        # It is the connection that reads the options of the address; nothing is sent yet.
        redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        msg = "--redis: not the address of a server. It looks like redis://HOST:PORT/NUMBER."
        raise StartError(msg) from error
    return redis


class RedisLimits:
    """The `Limits` port in Redis. While Redis is away, each node counts for itself."""

    def __init__(self, redis: Redis, fallback: Limits) -> None:
        self._redis = redis
        self._fallback = fallback

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        """Count one use."""
        name = f"clarion:limit:{key}:{window_s}:{now // (window_s * 1000)}"
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.incr(name)
                pipeline.expire(name, window_s)
                count, _ = await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            get_logger().warning("limits_fall_back", error=type(error).__name__)
            return await self._fallback.take(key, limit=limit, window_s=window_s, now=now)
        return allowance(count, limit=limit, window_s=window_s, now=now)


class RedisDependency:
    """Whether Redis answers."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def check(self) -> None:
        """Return if it answers."""
        try:
            await self._redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisUnavailable from error
