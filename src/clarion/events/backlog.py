"""Measures the queue of each app: when it is too old or too long, new events are refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from clarion.catalog.model import Priority
from clarion.clock import Clock
from clarion.errors import ClarionError, TooManyRequests
from clarion.events.model import NEVER, DueJobs
from clarion.events.port import Queue
from clarion.pacing import WorkSlices
from clarion.telemetry.outages import Work

# Work of other nodes, and what becomes due by the clock, is found within this time.
INTERVAL_S = 0.25
# A measurement that takes long is repeated less often: it takes a tenth of the time.
_INTERVAL_FACTOR = 10
PAGE = 500
COUNT_INTERVAL_S = 30.0
_LONGEST_WAIT_S = 30
_DEAD_LANE = -1
_FIRST = DueJobs("", -2, "", 0)


class Backlog:
    """Knows the age of the oldest job of each lane and of each app, and how many jobs an app has.

    An app is not older than it has been seen here with jobs that are due: a clock that is set
    forward makes no queue too old.
    """

    def __init__(
        self,
        queue: Queue,
        clock: Clock,
        *,
        age_limit_s: int,
        jobs_limit: int,
        on_due: Callable[[str, str], None],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._limit_ms = age_limit_s * 1000
        self._jobs_limit = jobs_limit
        self._on_due = on_due
        self._lane_ages_ms: dict[int, int] = {}
        self._app_ages_ms: dict[str, int] = {}
        self._due_since: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._lengths: dict[int, int] = {}
        # Deliveries that are held or collected behind a dead letter, as of the last half minute.
        self.stuck = 0
        self.refused = {"queue_age": 0, "queue_length": 0}
        self._next_count_s = 0.0

    def check(self, app_id: str) -> None:
        """Raise `TooManyRequests` if the queue of an app is too old or too long."""
        age_ms = self._app_ages_ms.get(app_id, 0)
        if age_ms > self._limit_ms:
            self.refused["queue_age"] += 1
            wait_s = min(max((age_ms - self._limit_ms) // 1000, 1), _LONGEST_WAIT_S)
            raise TooManyRequests(
                wait_s,
                f"The oldest job in the queue of your app has waited for {age_ms // 1000} s, "
                f"longer than {self._limit_ms // 1000} s; nothing was stored.",
            )
        if self.is_full(app_id):
            self.refused["queue_length"] += 1
            raise TooManyRequests(
                _LONGEST_WAIT_S,
                f"The queue of your app has {self._counts[app_id]:,} jobs, and at most "
                f"{self._jobs_limit:,} may wait; nothing was stored.",
            )

    def is_full(self, app_id: str) -> bool:
        """Whether an app has as many jobs as may wait."""
        return self._counts.get(app_id, 0) >= self._jobs_limit

    def count_accepted(self, app_id: str, count: int) -> None:
        """Add new jobs to those that were counted last."""
        self._counts[app_id] = self._counts.get(app_id, 0) + count

    def count(self, app_id: str) -> int:
        """Return how many jobs an app has, as of the last half minute."""
        return self._counts.get(app_id, 0)

    def count_held(self, app_id: str) -> int:
        """Return how many of the jobs are for a later time, as of the last half minute."""
        return self._held.get(app_id, 0)

    def count_due(self, app_id: str) -> int:
        """Return how many jobs could run now: none if a moment ago none was due."""
        if app_id not in self._app_ages_ms:
            return 0
        return max(self.count(app_id) - self.count_held(app_id), 1)

    def age_s(self, app_id: str) -> float:
        """Return for how long the oldest due job of an app has waited, in seconds."""
        return self._app_ages_ms.get(app_id, 0) / 1000

    def ages_s(self) -> dict[str, float]:
        """Return the age of each lane in seconds, by its name."""
        return {lane.name.lower(): self._lane_ages_ms.get(lane, 0) / 1000 for lane in Priority}

    def lengths(self) -> dict[str, int]:
        """Return how many jobs each lane has, due or not, as of the last half minute."""
        return {lane.name.lower(): self._lengths.get(lane, 0) for lane in Priority}

    @property
    def dead_letters(self) -> int:
        """How many jobs failed at every attempt, as of the last half minute."""
        return self._lengths.get(_DEAD_LANE, 0)

    async def watch(self) -> None:
        """Measure four times a second until cancelled."""
        loop_time, work = asyncio.get_running_loop().time, Work("queue_age")
        while True:
            started, took_s = loop_time(), 0.0
            try:
                await self.measure()
                took_s = loop_time() - started
                await self._refresh_counts()
            except ClarionError as error:  # the last ages stay
                work.fail(error)
            else:
                work.succeed()
            await asyncio.sleep(max(INTERVAL_S, took_s * _INTERVAL_FACTOR))

    async def measure(self) -> int:
        """Find every app that has due jobs, and how old they are; return when the next is due."""
        lanes: dict[int, int] = {}
        apps: dict[str, int] = {}
        now, slices, last, next_at = self._clock.now(), WorkSlices(), _FIRST, NEVER
        while True:
            page = await self._queue.find_oldest(after=last, limit=PAGE)
            for each in page:
                if each.lane < 0:
                    continue
                next_at = min(next_at, each.due_at)
                if each.due_at <= now:
                    lanes[each.lane] = max(lanes.get(each.lane, 0), now - each.due_at)
                    apps[each.app_id] = max(apps.get(each.app_id, 0), now - each.due_at)
                    self._on_due(each.pool, each.app_id)
            if len(page) < PAGE:
                break
            last = page[-1]
            await slices.pause()
        self._note(lanes, apps)
        return next_at

    def _note(self, lanes: dict[int, int], apps: dict[str, int]) -> None:
        monotonic = self._clock.monotonic()
        since = {app_id: self._due_since.get(app_id, monotonic) for app_id in apps}
        self._due_since = since
        self._app_ages_ms = {a: min(age, monotonic - since[a]) for a, age in apps.items()}
        self._lane_ages_ms = lanes

    async def _refresh_counts(self) -> None:
        loop_time = asyncio.get_running_loop().time
        if loop_time() < self._next_count_s:
            return
        started = loop_time()
        before = dict(self._counts)
        counts: Counter[str] = Counter()
        lengths: Counter[int] = Counter()
        held: Counter[str] = Counter()
        for (app_id, lane), found in (await self._queue.count(self._clock.now())).items():
            lengths[lane] += found.total
            if lane != _DEAD_LANE:
                counts[app_id] += found.total
                held[app_id] += found.held
        self._lengths, self._held = dict(lengths), dict(held)
        self.stuck = await self._queue.count_stuck() if self.dead_letters else 0
        # What was accepted since the count began is not in it, or counts twice until the next.
        for app_id, count in self._counts.items():
            added = count - before.get(app_id, 0)
            if added:
                counts[app_id] += added
        self._counts = dict(counts)
        took_s = loop_time() - started
        self._next_count_s = loop_time() + max(COUNT_INTERVAL_S, took_s * _INTERVAL_FACTOR)
