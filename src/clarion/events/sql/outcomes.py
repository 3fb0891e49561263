"""Job outcomes in SQL: each is one unit, whose first step checks the job's fencing token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from clarion.errors import ClarionError
from clarion.events.model import DeadLetter, Job, JobKind, JobOutcome, Reschedule
from clarion.events.sql import claims
from clarion.events.sql import jobs as queue
from clarion.events.tables import DEAD_LANE, JOBS
from clarion.history.sql import deliveries
from clarion.history.sql.ended import split
from clarion.history.sql.endings import EXPIRED, PUSH, end_after
from clarion.inbox.sql import showing as inbox
from clarion.pacing import WorkSlices
from clarion.push.sql import messages
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.statement import Statement, Step, Unit, statement

COUNT_DECIDED = statement(
    "count_decided_recipient",
    """UPDATE events SET remaining = remaining - 1, notification_count = notification_count + 1,
    updated_at = :now, status = CASE WHEN status = 'failed' THEN status
    WHEN remaining = 1 THEN :status ELSE 'processing' END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled' RETURNING id""",
)


def _reopen(kind: JobKind, condition: str) -> Statement:
    return statement(
        f"reopen_{kind}",
        f"""INSERT INTO jobs ({JOBS.columns})
        SELECT :id, CAST(:lane AS INTEGER), CAST(:due_at AS BIGINT), '{kind}', :app_id, :event_id,
        :user_id, :subject, 0, 0, '', '' WHERE {condition}
        ON CONFLICT (id) DO NOTHING""",
    )


# While the job of a digest or of a held notification ends, another worker may collect or hold one
# more delivery for it: then the job is added again.
REOPEN_DIGEST = _reopen(
    JobKind.DIGEST,
    deliveries.exists(
        f"app_id = :app_id AND user_id = :user_id AND {deliveries.IS_COLLECTED} AND digest = :id"
    ),
)
REOPEN_HELD = _reopen(
    JobKind.HELD, deliveries.exists("notification_id = :subject AND status = 'held'")
)
_REOPEN = {JobKind.DIGEST: REOPEN_DIGEST, JobKind.HELD: REOPEN_HELD}
# A dead letter that was revived by the next part.
COMPLETE = statement(
    "complete_event_of_digest",
    f"""UPDATE events SET retry_count = 0, updated_at = :now,
    status = CASE remaining WHEN 0 THEN 'completed' ELSE 'processing' END
    WHERE app_id = :app_id AND id = :id AND status = 'failed' AND NOT EXISTS (SELECT 1 FROM jobs
    WHERE event_id = :id AND app_id = :app_id AND lane = {DEAD_LANE})""",
)
_SENT = frozenset({"sent", "delivered"})


class SqlOutcomes:
    """The `Outcomes` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def write(self, outcomes: Sequence[JobOutcome], now: int) -> list[bool | ClarionError]:
        slices = WorkSlices()
        writes: list[asyncio.Future[Rows | None]] = []
        refused: ClarionError | None = None
        for each in outcomes:
            unit = Unit(each.job.user_id, tuple(_steps(each, now)), each.job.app_id)
            try:
                # A future: a task for each would cost as much as the decision.
                writes.append(self._engine.commit.write(unit))
            except ClarionError as error:
                refused = error
                break
            await slices.pause()
        done = await asyncio.gather(*writes, return_exceptions=True)
        rest = [] if refused is None else [refused] * (len(outcomes) - len(writes))
        return [*map(_read_result, done), *rest]


def _read_result(done: Rows | BaseException | None) -> bool | ClarionError:
    if isinstance(done, BaseException) and not isinstance(done, ClarionError):
        raise done
    return done if isinstance(done, ClarionError) else done is not None


def _steps(outcome: JobOutcome, now: int) -> Iterator[Step]:
    """Yield the steps of an outcome: first those that may refuse it, then the changes."""
    job = outcome.job
    yield _end(outcome)
    if outcome.final_status is not None:
        yield COUNT_DECIDED.guard(
            app_id=job.app_id, event_id=job.event_id, status=outcome.final_status.value, now=now
        )
    yield from change_steps(outcome, now)
    if outcome.next is not None and outcome.next.error is not None:
        yield queue.set_error(job, outcome.next, now)


def change_steps(outcome: JobOutcome, now: int) -> Iterator[Step]:
    """Yield the steps for an outcome's changes other than its job and event, guards first."""
    yield from claims.take(outcome, now)
    if outcome.inbox_update is not None:
        yield from inbox.update(outcome.job.app_id, outcome.job.user_id, outcome.inbox_update)
    if (new := outcome.notification) is not None:
        ended, rows = split(new, outcome.deliveries)
        yield from inbox.add(new, ended)
        if rows:
            yield deliveries.add(rows)
    elif outcome.deliveries:
        yield deliveries.put(outcome.deliveries)
    yield from _follow_up(outcome, now)


def _end(outcome: JobOutcome) -> Step:
    job = outcome.job
    match outcome.next:
        case None:
            return queue.end(job)
        case DeadLetter():
            return queue.MAKE_DEAD.guard(id=job.id, token=job.token)
        case Reschedule(due_at=due_at, error=None) | Reschedule(due_at=due_at, is_failure=False):
            return queue.reschedule(job, due_at, job.subject)
        case Reschedule(due_at=due_at):
            return queue.RETRY.guard(id=job.id, token=job.token, due_at=due_at)


def _follow_up(outcome: JobOutcome, now: int) -> Iterator[Step]:
    if outcome.attempts:
        yield deliveries.add_attempts(outcome.attempts)
    if outcome.messages:
        yield from messages.add_steps(outcome.messages)
    if outcome.jobs:
        yield queue.add(outcome.jobs)
    if outcome.shared_jobs:
        yield queue.add_or_hasten(outcome.shared_jobs)
    job = outcome.job
    if _ends_push(outcome):
        yield from end_after((job.subject.partition("/")[2],), EXPIRED, now)
    if job.kind in _REOPEN and outcome.next is None:
        yield from _end_shared(job, now)


def _end_shared(job: Job, now: int) -> Iterator[Step]:
    """Yield the steps that end a job of several parts."""
    yield _REOPEN[job.kind].step(
        id=job.id,
        lane=job.lane.value,
        due_at=now,
        app_id=job.app_id,
        event_id=job.event_id,
        user_id=job.user_id,
        subject=job.subject,
    )
    if job.kind is JobKind.DIGEST:
        yield COMPLETE.step(app_id=job.app_id, id=job.event_id, now=now)


def _ends_push(outcome: JobOutcome) -> bool:
    """Whether nothing was sent now or will be: earlier messages may already have ended."""
    if outcome.job.pool != PUSH or outcome.next is not None:
        return False
    return not any(each.status in _SENT for each in outcome.attempts)
