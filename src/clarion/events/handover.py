"""Events of this moment on their way to a worker of the same process, claimed as they are accepted.

They need neither be claimed again nor read again. If the process dies their leases run out, and
they are claimed like any other work.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from clarion.catalog.model import Priority

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.events.model import Event, Job

# How long a claim holds: longer than any stage takes. A killed worker's jobs are back after it.
LEASE_MS = 45_000
# What comes while so many wait is claimed from the store, in its turn.
LIMIT = 4_000
_FIRST_TOKEN = 1


class Handover:
    """Holds what was accepted and is not decided, by lane."""

    def __init__(self) -> None:
        self._lanes: dict[Priority, deque[tuple[Job, Event]]] = {
            lane: deque() for lane in sorted(Priority, reverse=True)
        }

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(map(len, self._lanes.values()))

    def has_room(self, count: int) -> bool:
        """Whether so many more can be handed over."""
        return len(self) + count <= LIMIT

    def put(self, pairs: Iterable[tuple[Job, Event]]) -> None:
        """Hand work over, after it is stored."""
        for pair in pairs:
            self._lanes[pair[0].lane].append(pair)

    def take(self, count: int) -> list[tuple[Job, Event]]:
        """Take the most urgent, at most so many."""
        taken: list[tuple[Job, Event]] = []
        for lane in self._lanes.values():
            while lane and len(taken) < count:
                taken.append(lane.popleft())
        return taken


def claim(job: Job, now: int) -> Job:
    """Return a new job as the claim of this process."""
    return type(job)(
        job.id,
        job.lane,
        now + LEASE_MS,
        job.kind,
        job.app_id,
        job.event_id,
        job.user_id,
        job.subject,
        _FIRST_TOKEN,
    )
