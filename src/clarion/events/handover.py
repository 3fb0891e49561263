"""Passes new events to a worker of the same process, claimed in the commit that accepts them.

So they are neither claimed nor read again. If the process dies, their leases expire and they are
claimed like any other job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from clarion.catalog.model import Priority
from clarion.events.model import Event, Job

# How long a claim holds: longer than any handler takes. The jobs of a killed worker are due then.
LEASE_MS = 45_000
# Events that come while so many wait are claimed from the store.
LIMIT = 4_000
# The fencing token of a job that is claimed when it is added.
FIRST_TOKEN = 1


class Handover:
    """Holds accepted events that are not decided yet, by lane."""

    def __init__(self) -> None:
        self._lanes: dict[Priority, deque[tuple[Job, Event]]] = {
            lane: deque() for lane in sorted(Priority, reverse=True)
        }

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def has_room(self) -> bool:
        """Whether one more event can be handed over."""
        return len(self) < LIMIT

    def put(self, pairs: Iterable[tuple[Job, Event]]) -> None:
        """Hand over events with their claimed jobs, after they are stored."""
        for pair in pairs:
            self._lanes[pair[0].lane].append(pair)

    def take(self, count: int) -> list[tuple[Job, Event]]:
        """Take the most urgent ones, at most so many."""
        taken: list[tuple[Job, Event]] = []
        for lane in self._lanes.values():
            while lane and len(taken) < count:
                taken.append(lane.popleft())
        return taken
