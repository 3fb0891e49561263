"""Claims that this node made and lost, because the store failed in between.

The answer to a claim can be lost, or the answer to a request whose event is stored with a claimed
job; or a worker cannot read the data for its jobs. Then no worker has these jobs, and their leases
would have to end first. Instead, they are due again as soon as the store has answered for a while.
"""

from __future__ import annotations

from clarion.clock import Clock
from clarion.events.leases import LEASE_MS, Leases
from clarion.events.port import Queue

# Since the last failure. What was in progress then is settled by now.
QUIET_MS = 3_000


class LostClaims:
    """Releases jobs that this node has claimed but is not working on."""

    def __init__(self, queue: Queue, leases: Leases, clock: Clock) -> None:
        self._queue = queue
        self._leases = leases
        self._clock = clock
        self._failed_at: int | None = None

    def note(self) -> None:
        """Note that the store failed: claims made before may be lost."""
        self._failed_at = self._clock.now()

    async def release(self) -> None:
        """Make the lost claims due, once the store has not failed for a while."""
        failed_at, now = self._failed_at, self._clock.now()
        if failed_at is None or 0 <= now - failed_at < QUIET_MS:
            return
        # Who claims at this moment does not hold the jobs yet.
        until = self._leases.find_oldest_claim(failed_at + 1) + LEASE_MS
        await self._queue.release_lost(self._leases.list_held(), now=now, until=until)
        if self._failed_at == failed_at:
            self._failed_at = None
