"""Rate limits in Redis or Valkey, shared by all nodes. Nothing there is durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import MaxConnectionsError, RedisError

from clarion.errors import ServiceError, StartError
from clarion.nodes.memory import pick
from clarion.nodes.port import Allowance, Limits, Quota, Taken
from clarion.telemetry.logs import get_logger

TIMEOUT_S = 0.5
PROBE_EVERY_S = 1.0
FAILURES = (RedisError, OSError, TimeoutError)
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


async def ping(redis: Redis) -> None:
    """Return if Redis answers; `RedisUnavailable` otherwise."""
    try:
        await redis.ping()
    except FAILURES as error:
        raise RedisUnavailable from error


class RedisBreaker:
    """The circuit breaker of Redis: open from its first failure until a probe is answered.

    While it is open nobody asks Redis but the probe, so that a server that hangs costs one
    time-out, not one for each request. It is the `Dependency` port, too.
    """

    def __init__(self, redis: Redis, *, probe_every_s: float = PROBE_EVERY_S) -> None:
        self.redis = redis
        # Called at each change: with 1 if Redis is available, else with 0.
        self.on_change: Callable[[int], None] = lambda _is_available: None
        self._probe_every_s = probe_every_s
        self._opened = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def list_circuits(self) -> dict[str, str]:
        """Return the state of this circuit breaker, by its name."""
        return {"redis": "open" if self.is_open else "closed"}

    def open(self, error: BaseException) -> None:
        """Do not ask Redis until a probe has been answered."""
        if not self.is_open:
            self._opened.set()
            effect = "limits are counted by each node"
            get_logger().warning("redis_unavailable", effect=effect, error=type(error).__name__)
            self.on_change(0)

    async def check(self) -> None:
        """Return if Redis answers, `RedisUnavailable` otherwise; open or close accordingly."""
        try:
            await ping(self.redis)
        except RedisUnavailable as error:
            self.open(error.__cause__ or error)
            raise
        if self.is_open:
            self._opened.clear()
            get_logger().info("redis_available")
            self.on_change(1)

    async def run(self) -> None:
        """Probe Redis while it is unavailable, until cancelled."""
        while True:
            await self._opened.wait()
            await asyncio.sleep(self._probe_every_s)
            with contextlib.suppress(RedisUnavailable):
                await self.check()


@dataclass(frozen=True, slots=True)
class RedisLimits:
    """The `Limits` port in Redis. While Redis is unavailable, each node counts on its own."""

    breaker: RedisBreaker
    fallback: Limits

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        taken = await self.take_all((Quota(key, limit),), window_s=window_s, now=now)
        return taken.allowance

    async def take_all(self, quotas: Sequence[Quota], *, window_s: int, now: int) -> Taken:
        if not self.breaker.is_open:
            try:
                counts = await self._count(quotas, window_s, now)
                return pick(quotas, counts, window_s=window_s, now=now)
            except MaxConnectionsError:
                pass  # of this node, for this moment: Redis answers
            except FAILURES as error:
                self.breaker.open(error)
        return await self.fallback.take_all(quotas, window_s=window_s, now=now)

    async def _count(self, quotas: Sequence[Quota], window_s: int, now: int) -> list[int]:
        window = f"{window_s}:{now // (window_s * 1000)}"
        names = [f"clarion:limit:{_hash(each.key)}:{window}" for each in quotas]
        limits = [each.limit for each in quotas]
        counts: list[int] = await self.breaker.redis.eval(
            _TAKE_ALL, len(names), *names, window_s, *limits
        )
        return counts


def _hash(key: str) -> str:
    """Return the name of a key in Redis: keys have the ids of users, which must not be there."""
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
