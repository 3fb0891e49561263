"""How many exports run at a time and begin in an hour: each reads all that a user has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from clarion.clock import Clock
from clarion.errors import TooManyRequests
from clarion.http.budgets import Running
from clarion.nodes.port import Limits, Quota

# On a node, at a time: of a user, of an app, and of all apps.
_OF_USER, _OF_APP, _OF_ALL = 1, 3, 12
# A page of rows is read every few milliseconds: a few seconds later, one has ended.
_RETRY_AFTER_S = 5
_HOUR_S = 3_600
_USER_PER_HOUR = 30
_APP_PER_HOUR = 1_000


class ExportLimits:
    """Counts exports. One that ended early counts, too, because it has already read data."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._running = Running()

    @asynccontextmanager
    async def take(self, app_id: str, user_id: str) -> AsyncIterator[None]:
        """Count an export while it runs; `TooManyRequests` if a limit is reached."""
        user = f"{app_id}:{user_id}"
        with ExitStack() as stack:
            for who, most in ((user, _OF_USER), (app_id, _OF_APP), ("", _OF_ALL)):
                self._begin(who, most)
                stack.callback(self._running.end, who)
            await self._count(app_id, user)
            yield

    def _begin(self, who: str, most: int) -> None:
        try:
            self._running.begin(who, most)
        except TooManyRequests as error:
            detail = "Exports are running already; wait for their end."
            raise TooManyRequests(_RETRY_AFTER_S, detail) from error

    async def _count(self, app_id: str, user: str) -> None:
        _, allowance = await self._limits.take_all(
            (
                Quota(f"export:{user}", _USER_PER_HOUR),
                Quota(f"export:{app_id}", _APP_PER_HOUR),
            ),
            window_s=_HOUR_S,
            now=self._clock.now(),
        )
        if allowance.is_exceeded:
            detail = (
                f"There may be {allowance.limit:,} exports an hour; wait as `Retry-After` says."
            )
            raise TooManyRequests(allowance.reset_s, detail)
