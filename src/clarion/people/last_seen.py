"""When users were last seen: noted in memory, and written in batches by housekeeping."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from clarion.clock import Clock
from clarion.pacing import Pace
from clarion.people.sql import Users

# A user is written at most once in this time, regardless of the number of requests.
EVERY_MS = 60_000
# More are not noted until those are written.
WAITING_LIMIT = 100_000
# App and user id.
Key = tuple[str, str]


class LastSeen:
    """Collects the users who send requests, and at each write those who are `connected`."""

    def __init__(
        self, users: Users, clock: Clock, connected: Callable[[], Collection[Key]]
    ) -> None:
        self._users = users
        self._clock = clock
        self._connected = connected
        self._pace = Pace()
        # When they were last noted, by a clock that nobody sets.
        self._noted: dict[Key, int] = {}
        self._waiting: set[Key] = set()

    def note(self, app_id: str, user_id: str) -> None:
        """Note that a user is active. Called for each request of a user, so it must be cheap."""
        key, now = (app_id, user_id), self._clock.monotonic()
        noted_at = self._noted.get(key)
        if noted_at is not None and now - noted_at < EVERY_MS:
            return
        if len(self._noted) >= WAITING_LIMIT:
            self._noted.clear()
        if len(self._waiting) < WAITING_LIMIT:
            self._noted[key] = now
            self._waiting.add(key)

    async def write(self, now: int, limit: int) -> int:
        """Write at most `limit` of the noted and the connected users; return how many."""
        async for key in self._pace.over(list(self._connected())):
            self.note(*key)
        some = list(islice(self._waiting, limit))
        self._waiting.difference_update(some)
        try:
            await self._users.touch(some, now)
        except BaseException:
            self._waiting.update(some)
            raise
        return len(some)
