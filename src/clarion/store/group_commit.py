"""Group commit: all waiting units are committed in one durable transaction.

The caller submits a unit and awaits it. While a commit is running, the next batch forms, so batches
grow with the load and no timer is needed. A batch is limited in units and in bytes, so that the
next one starts soon, no matter how much one app writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from clarion.errors import ClarionError, Conflict, InternalError, Overloaded, StoreUnavailable
from clarion.store.batch import Done, Failed, Outcome, Refused
from clarion.store.fair_queue import FairQueue, Waiting, size_of
from clarion.store.statement import Row, Unit
from clarion.telemetry.outages import QUIET_S, Outage
from clarion.telemetry.tallies import Tally

# After this time the disk or database is assumed to be stuck, and new units are refused.
COMMIT_LIMIT_S = 10.0
# Each caller continues with its request then, in the same turn of the loop.
RESOLVED_AT_ONCE = 100
Rows = tuple[tuple[Row, ...], ...]
# A larger batch gains nothing: the fsync is a small part of the 10 to 50 ms of its commit.
BATCH_BYTES = 4 * 1024 * 1024
# 20,000 of the largest pushes.
WAITING_BYTES = 128 * 1024 * 1024


# Limits of the buckets in which the sizes of batches are counted.
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class _Undone(NamedTuple):
    """The whole batch failed."""

    error: ClarionError
    cause: Exception | None = None


class BatchRunner(Protocol):
    """Runs one batch of units in one durable transaction."""

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        """Return the outcome of each unit, after the commit. Raises if the whole batch failed."""


class GroupCommit:
    """Collects units into batches, and gives each caller the outcome of its own unit."""

    def __init__(
        self,
        runner: BatchRunner,
        *,
        waiting_limit: int,
        batch_limit: int,
        commit_limit_s: float = COMMIT_LIMIT_S,
        on_unavailable: Callable[[StoreUnavailable], None] = lambda _error: None,
        refusals: Outage | None = None,
    ) -> None:
        self._commit_limit_s = commit_limit_s
        # Called for a batch that failed because the database did not answer.
        self._on_unavailable = on_unavailable
        # Those of one database share it.
        self._refusals = refusals or make_refusals()
        # Since the start, for the metrics.
        self.units = self.batches = self.refused = 0
        self.sizes, self.times = Tally(_SIZES), Tally()
        self._runner = runner
        self._batch_limit = batch_limit
        self._queue = FairQueue(units_limit=waiting_limit, bytes_limit=WAITING_BYTES)
        self._wake = asyncio.Event()
        self._is_closed = False
        # The running commit has exceeded its limit: nothing may wait behind it.
        self.is_stuck = False
        self._loop = asyncio.get_running_loop()
        # Done when the callers of the last batch have their outcomes.
        self._resolving: asyncio.Future[None] = self._loop.create_future()
        self._resolving.set_result(None)
        self._task = self._loop.create_task(self._run(), name="group-commit")

    @property
    def waiting(self) -> int:
        """The number of units that wait for the next batch."""
        return self._queue.units

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes wait for the next batches."""
        return self._queue.bytes

    def write(self, unit: Unit) -> asyncio.Future[Rows | None]:
        """Queue a unit; the future resolves when it is durable. `Overloaded` if too much waits.

        If the future is cancelled before the batch of the unit begins, the unit is not written.
        """
        if self._is_closed:
            raise StoreUnavailable
        if self.is_stuck:
            self.refused += 1
            raise Overloaded
        future: asyncio.Future[Rows | None] = self._loop.create_future()
        try:
            self._queue.add(unit, size_of(unit), future)
        except Overloaded as error:
            self.refused += 1
            self._refusals.begin(error.detail)
            raise
        self._wake.set()
        return future

    async def close(self) -> None:
        """Commit all waiting units, then stop. Idempotent."""
        self._is_closed = True
        self._wake.set()
        await self._task

    async def _run(self) -> None:
        while self._queue.units or not self._is_closed:
            await self._wake.wait()
            taken = self._queue.take(units=self._batch_limit, size=BATCH_BYTES)
            # A caller that was cancelled may have released a lock: the unit of the next one is
            # waiting, too, and two of a batch must not rely on each other.
            batch = [each for each in taken if not each[2].cancelled()]
            if not self._queue.units and not self._is_closed:
                self._wake.clear()
            if batch:
                await self._commit(batch)
        await self._resolving

    async def _commit(self, batch: Sequence[Waiting]) -> None:
        # One timer per batch is cheaper than asking for the time at each write.
        alarm = self._loop.call_later(self._commit_limit_s, self._mark_stuck)
        outcomes: Sequence[Outcome | _Undone]
        began = self._loop.time()
        try:
            outcomes = await self._runner.run([unit for unit, _, _ in batch])
            self.batches += 1
            self.units += len(batch)
            self.sizes.add(len(batch))
            self.times.add(self._loop.time() - began)
            _check_length(outcomes, batch)
            self._refusals.end()
        except ClarionError as error:
            outcomes = [_Undone(error)] * len(batch)
            self._report(error)
        except Exception as error:  # noqa: BLE001 - the callers must never wait forever
            undone = _Undone(InternalError(f"{type(error).__name__} in the writer"), error)
            outcomes = [undone] * len(batch)
        finally:
            alarm.cancel()
            self.is_stuck = False
        await self._resolving
        if len(batch) <= RESOLVED_AT_ONCE:
            _resolve(batch, outcomes)
        else:  # the next batch begins meanwhile
            self._resolving = self._loop.create_task(_resolve_in_turns(batch, outcomes))

    def _mark_stuck(self) -> None:
        self.is_stuck = True
        self._refusals.begin(f"A commit takes longer than {self._commit_limit_s:g} s")

    def _report(self, error: ClarionError) -> None:
        if isinstance(error, StoreUnavailable):
            self._on_unavailable(error)
        else:
            self._refusals.begin(error.detail)


def make_refusals() -> Outage:
    """Return what logs that writes are refused, and that they are accepted again."""
    return Outage("writes_refused", "writes_accepted", quiet_s=QUIET_S, is_shared=True)


def _check_length(outcomes: Sequence[Outcome], batch: Sequence[Waiting]) -> None:
    if len(outcomes) != len(batch):
        raise ValueError("not an outcome for each unit")


async def _resolve_in_turns(
    batch: Sequence[Waiting], outcomes: Sequence[Outcome | _Undone]
) -> None:
    for start in range(0, len(batch), RESOLVED_AT_ONCE):
        part = slice(start, start + RESOLVED_AT_ONCE)
        _resolve(batch[part], outcomes[part])
        await asyncio.sleep(0)


def _resolve(batch: Sequence[Waiting], outcomes: Sequence[Outcome | _Undone]) -> None:
    for (_, _, future), outcome in zip(batch, outcomes, strict=True):
        if future.done():  # the caller was cancelled; the unit is committed anyway
            continue
        if isinstance(outcome, Done):
            future.set_result(outcome.rows)
        elif isinstance(outcome, Refused):
            future.set_result(None)
        else:
            future.set_exception(_error_of(outcome))


def _error_of(outcome: Failed | _Undone) -> ClarionError:
    if isinstance(outcome, _Undone):
        copy = type(outcome.error)(outcome.error.detail)
        copy.__cause__ = outcome.cause
        return copy
    return Conflict() if outcome.constraint else InternalError(outcome.message)
