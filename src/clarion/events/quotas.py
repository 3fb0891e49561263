"""How many jobs of an app are claimed in one turn, lane by lane."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from clarion.catalog.model import Priority
from clarion.clock import Clock
from clarion.events.model import Job

BATCH = 256
# Each lane has its share of a full batch, so that the low ones make progress, too.
SHARES: Mapping[Priority, int] = {
    Priority.CRITICAL: 96,
    Priority.HIGH: 72,
    Priority.MEDIUM: 56,
    Priority.LOW: 32,
}


# While several apps are active.
SHARED_BATCH = 64
# How long an app counts as active after its last turn.
ACTIVE_MS = 10_000


class BatchSize:
    """How many jobs a turn takes: a batch if one app is active, a quarter of it if several are.

    The other apps wait for everything that one turn does.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: OrderedDict[str, int] = OrderedDict()

    def take_turn(self, app_id: str) -> int:
        """Return the size for a turn of an app, which is active from now on."""
        now = self._clock.monotonic()
        self._turns[app_id] = now
        self._turns.move_to_end(app_id)
        while now - next(iter(self._turns.values())) > ACTIVE_MS:
            self._turns.popitem(last=False)
        return BATCH if len(self._turns) == 1 else SHARED_BATCH


class Quotas(Protocol):
    """How much of an app's work a turn takes."""

    async def find(self, app_id: str) -> Mapping[Priority, int]:
        """Return how many jobs of each lane a turn claims; empty if none can be run now."""

    def note_claimed(
        self, app_id: str, quotas: Mapping[Priority, int], jobs: Sequence[Job]
    ) -> bool:
        """Record the result of a claim; return whether the app may have more jobs."""


class SharedBatch:
    """A batch divided by lanes, as large as there is room; what empty lanes leave is used."""

    def __init__(
        self,
        size: BatchSize,
        *,
        find_room: Callable[[str], int] = lambda _: BATCH,
        on_drained: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._size = size
        self._find_room = find_room
        self._on_drained = on_drained
        # The lanes in which the last claim found as many jobs as it asked for.
        self._full: dict[str, set[Priority]] = {}

    async def find(self, app_id: str) -> Mapping[Priority, int]:
        room = min(self._find_room(app_id), self._size.take_turn(app_id))
        if room == 0:
            return {}
        full = self._full.get(app_id, ())
        spare = (BATCH - sum(SHARES[lane] for lane in full)) // len(full) if full else 0
        quotas = {lane: share + spare * (lane in full) for lane, share in SHARES.items()}
        return quotas if room == BATCH else _scale(quotas, room)

    def note_claimed(
        self, app_id: str, quotas: Mapping[Priority, int], jobs: Sequence[Job]
    ) -> bool:
        counts = dict.fromkeys(quotas, 0)
        for job in jobs:
            counts[job.lane] += 1
        self._full[app_id] = {lane for lane, count in counts.items() if count >= SHARES[lane]}
        if any(counts[lane] >= quota for lane, quota in quotas.items()):
            return True
        del self._full[app_id]
        self._on_drained(app_id)
        return False


def _scale(quotas: Mapping[Priority, int], room: int) -> dict[Priority, int]:
    """Return quotas that are together at most `room`, urgent lanes first."""
    scaled: dict[Priority, int] = {}
    left = room
    for lane in sorted(quotas, reverse=True):
        quota = min(max(quotas[lane] * room // BATCH, 1), left)
        if quota:
            scaled[lane] = quota
            left -= quota
    return scaled
