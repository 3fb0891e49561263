"""Rate limits in Redis or Valkey, shared by all nodes. Nothing there is durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from clarion.errors import ServiceError, StartError
from clarion.nodes.memory import pick
from clarion.nodes.port import Allowance, Limits, Quota, Taken
from clarion.telemetry.logs import get_logger

TIMEOUT_S = 0.5
# Counts each key in turn, up to the first that is beyond its limit: one call for all of them.
_TAKE_ALL = """
local counts = {}
for i, key in ipairs(KEYS) do
  counts[i] = redis.call('INCR', key)
  if counts[i] == 1 then redis.call('EXPIRE', key, ARGV[1]) end
  if counts[i] > tonumber(ARGV[i + 1]) then break end
end
return counts
"""


class RedisUnavailable(ServiceError):
    """Redis did not answer."""

    code = "redis_unavailable"


def connect(url: str) -> Redis:
    """Return a client that connects on first use. A call fails after 0.5 s without an answer."""
    try:
        redis = Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, max_connections=64
        )
        # A connection parses the options of the URL; nothing is sent yet.
        redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise StartError("--redis: must be a URL like redis://HOST:PORT/NUMBER.") from error
    return redis


@dataclass(frozen=True, slots=True)
class RedisLimits:
    """The `Limits` port in Redis. While Redis is unavailable, each node counts on its own."""

    redis: Redis
    fallback: Limits

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        taken = await self.take_all((Quota(key, limit),), window_s=window_s, now=now)
        return taken.allowance

    async def take_all(self, quotas: Sequence[Quota], *, window_s: int, now: int) -> Taken:
        window = f"{window_s}:{now // (window_s * 1000)}"
        names = [f"clarion:limit:{each.key}:{window}" for each in quotas]
        limits = [each.limit for each in quotas]
        try:
            counts = await self.redis.eval(_TAKE_ALL, len(names), *names, window_s, *limits)
        except (RedisError, OSError, TimeoutError) as error:
            get_logger().warning("limits_fell_back_to_memory", error=type(error).__name__)
            return await self.fallback.take_all(quotas, window_s=window_s, now=now)
        return pick(quotas, counts, window_s=window_s, now=now)


@dataclass(frozen=True, slots=True)
class RedisDependency:
    """The `Dependency` port: checks that Redis answers."""

    redis: Redis

    async def check(self) -> None:
        try:
            await self.redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisUnavailable from error
