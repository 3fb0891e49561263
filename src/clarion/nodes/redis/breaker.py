"""The circuit breaker of Redis: while Redis is unavailable, only a probe waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from clarion.errors import ServiceError
from clarion.nodes.redis.address import parse_address
from clarion.nodes.redis.client import FAILURES, RedisClient
from clarion.nodes.redis.link import RedisRefused
from clarion.system.connection_faults import describe_fault
from clarion.telemetry.outages import Outage

PROBE_EVERY_S = 0.5
# One that keeps opening is probed less often, and logs less.
_LONGEST_PAUSE_S = 4.0
_STABLE_S = 10.0


def make_breaker(
    url: str, installation_id: str, *, probe_every_s: float = PROBE_EVERY_S
) -> RedisBreaker:
    """Return the breaker of the Redis at a URL. It connects when it is first checked."""
    client = RedisClient(parse_address(url), installation_id)
    return RedisBreaker(client, probe_every_s=probe_every_s)


class RedisUnavailable(ServiceError):
    """Redis did not answer."""

    code = "redis_unavailable"
    is_reported = True


class RedisBreaker:
    """Open from the first failure until all servers are connected again.

    While it is open, only the probe asks Redis: a server that hangs costs one time-out, not one for
    each request. It also implements the `Dependency` port.
    """

    def __init__(self, client: RedisClient, *, probe_every_s: float = PROBE_EVERY_S) -> None:
        self.client = client
        client.on_lost = self.open
        self._host = ", ".join(f"{each.host}:{each.port}" for each in client.address.servers)
        self._outage = Outage(
            "redis_unavailable", "redis_available", is_shared=True, host=self._host
        )
        # Called at each change: with 1 if Redis is available, else with 0.
        self.on_change: Callable[[int], None] = lambda _is_available: None
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self.closed.set()
        self._probe_every_s = probe_every_s
        self._checking: asyncio.Task[None] | None = None
        self._closed_at = -_STABLE_S
        self._openings = 0  # openings soon after it was closed

    @property
    def is_open(self) -> bool:
        return self.opened.is_set()

    def list_circuits(self) -> dict[str, str]:
        """Return the state of this circuit breaker, by its name."""
        if not self.is_open:
            return {"redis": "closed"}
        return {"redis": "open" if self._checking is None else "half_open"}

    def open(self, error: BaseException) -> None:
        """Do not ask Redis until a probe has been answered."""
        if self.is_open:
            return
        is_soon = asyncio.get_running_loop().time() - self._closed_at < _STABLE_S
        self._openings = self._openings + 1 if is_soon else 0
        self.opened.set()
        self.closed.clear()
        effect = "each node counts limits on its own, and receives nothing from other nodes"
        self._outage.begin(self._describe(error), error=_name(error), effect=effect)
        self.on_change(0)

    async def check(self) -> None:
        """Return if Redis answers, `RedisUnavailable` otherwise; open or close accordingly.

        Concurrent calls share one check.
        """
        if self._checking is None:
            self._checking = asyncio.create_task(self._check(), name="redis_check")
            self._checking.add_done_callback(self._forget_check)
        await asyncio.shield(self._checking)

    def _forget_check(self, task: asyncio.Task[None]) -> None:
        self._checking = None
        if not task.cancelled():
            task.exception()  # retrieved, in case that every caller was cancelled

    async def _check(self) -> None:
        try:
            if self.is_open or not self.client.is_connected:
                await self.client.connect()
            else:
                await self.client.ping()
        except FAILURES as error:
            self.open(error)
            raise RedisUnavailable from error
        if self.is_open:
            self._closed_at = asyncio.get_running_loop().time()
            self.opened.clear()
            self.closed.set()
            self._outage.end()
            self.on_change(1)

    async def run(self) -> None:
        """Probe Redis while it is unavailable, until cancelled."""
        while True:
            await self.opened.wait()
            # At once after a longer time without failure: a slot may have moved, a proxy restarted.
            await asyncio.sleep(self._pause_s() if self._openings else 0)
            while self.is_open:
                with contextlib.suppress(RedisUnavailable):
                    await self.check()
                    break
                await asyncio.sleep(self._pause_s())

    def _describe(self, error: BaseException) -> str:
        if isinstance(error, RedisRefused):
            return f"Redis refuses commands: {_name(error)}"
        return describe_fault(error, self._host)

    def _pause_s(self) -> float:
        return min(self._probe_every_s * (1 << min(self._openings, 10)), _LONGEST_PAUSE_S)


def _name(error: BaseException) -> str:
    """Name an error by the first word of what Redis answered, or by its type."""
    if isinstance(error, RedisRefused):
        return str(error).partition(" ")[0]
    return type(error).__name__
