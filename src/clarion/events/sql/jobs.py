"""The queue in SQL. A claim is a lease with a fencing token; one that runs out is due again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.catalog.model import Priority
from clarion.events.model import Dead, Job, JobKind
from clarion.store.statement import Row, Unit, statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clarion.events.model import Later
    from clarion.store.engine import Engine
    from clarion.store.statement import Step

DEAD_LANE = -1
ERROR_LENGTH = 500
_COLUMNS = "id, lane, due_at, kind, app_id, event_id, user_id, subject, token, tries"
_INSERT = f"""INSERT INTO jobs ({_COLUMNS})
    VALUES (:id, :lane, :due_at, :kind, :app_id, :event_id, :user_id, :subject, :token, 0)"""

ADD_JOB = statement("add_job", _INSERT)
# What is held for a person, or collected, has one job, due when the first of it is. Taking its row
# waits for a worker that ends it at this moment.
ADD_OR_HASTEN_JOB = statement(
    "add_or_hasten_job",
    f"""{_INSERT} ON CONFLICT (id) DO UPDATE SET due_at =
    CASE WHEN excluded.due_at < jobs.due_at THEN excluded.due_at ELSE jobs.due_at END""",
)
# `due_at` is asked for twice: on PostgreSQL another node may have claimed it since the inner query.
CLAIM = statement(
    "claim_jobs",
    f"""UPDATE jobs SET due_at = :until, token = token + 1
    WHERE lane = :lane AND due_at <= :now AND id IN (
      SELECT id FROM jobs WHERE lane = :lane AND due_at <= :now ORDER BY due_at LIMIT :limit)
    RETURNING {_COLUMNS}""",
)
# A token grows with each claim, and to the next thousand when the job gets on: so it is never the
# same twice, and what is above the thousand says how often the job was claimed in vain.
TOKEN_STEP = 1_000
_GOES_ON = f"token = (token / {TOKEN_STEP} + 1) * {TOKEN_STEP}"
END = statement("end_job", "DELETE FROM jobs WHERE id = :id AND token = :token RETURNING id")
MOVE = statement(
    "move_job",
    f"""UPDATE jobs SET due_at = :due_at, subject = :subject, {_GOES_ON}
    WHERE id = :id AND token = :token RETURNING id""",
)
RETRY = statement(
    "retry_job",
    f"""UPDATE jobs SET due_at = :due_at, tries = tries + 1, {_GOES_ON}
    WHERE id = :id AND token = :token RETURNING id""",
)
BURY = statement(
    "bury_job",
    f"""UPDATE jobs SET lane = {DEAD_LANE}, tries = tries + 1, {_GOES_ON}
    WHERE id = :id AND token = :token RETURNING id""",
)
NOTE_ERROR = statement(
    "note_event_error",
    """UPDATE events SET retry_count = :tries, last_error = :error, updated_at = :now,
    status = CASE CAST(:is_dead AS INTEGER) WHEN 1 THEN 'failed' ELSE status END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled'""",
)
WAKE_PERSON = statement(
    "wake_jobs_of_person",
    """UPDATE jobs SET due_at = :now WHERE app_id = :app_id AND user_id = :user_id
    AND kind IN ('held', 'digest') AND due_at > :now AND lane >= 0""",
)
RELEASE_CLAIMED = statement(
    "release_claimed_jobs",
    f"""UPDATE jobs SET due_at = :now WHERE lane IN (0, 1, 2, 3) AND due_at > :now
    AND due_at <= :until AND token % {TOKEN_STEP} > 0""",
)
OLDEST = statement(
    "select_oldest_job",
    """SELECT due_at FROM jobs WHERE lane = :lane ORDER BY due_at LIMIT 1""",
)
COUNT = statement(
    "count_waiting_jobs",
    """SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE lane = :lane AND due_at <= :now
    ORDER BY due_at LIMIT :limit) AS due""",
)


COUNT_FOUND = statement(
    "count_found_people",
    """UPDATE events SET remaining = remaining + :found - :end, updated_at = :now,
    status = CASE WHEN status = 'failed' THEN status
    WHEN remaining + :found - :end = 0 THEN 'completed' ELSE 'processing' END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled' RETURNING id""",
)


class SqlQueue:
    """The `Queue` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def claim(
        self, quotas: Mapping[Priority, int], *, now: int, until: int
    ) -> tuple[Job, ...]:
        """Claim what is due, lane by lane."""
        steps = tuple(
            CLAIM.step(lane=lane.value, now=now, until=until, limit=quota)
            for lane, quota in quotas.items()
        )
        done = await self._engine.write(Unit("", steps)) or ()
        return tuple(read_job(row) for rows in done for row in rows)

    async def expand(self, job: Job, found: Sequence[Job], cursor: str | None, now: int) -> bool:
        """Add the next people of a large audience, and move on or end."""
        step = (
            END.guard(id=job.id, token=job.token)
            if cursor is None
            else MOVE.guard(id=job.id, token=job.token, due_at=now, subject=cursor)
        )
        count = COUNT_FOUND.guard(
            app_id=job.app_id,
            event_id=job.event_id,
            found=len(found),
            # The audience itself counts as one until its end is reached, so that the event is not
            # over before.
            end=int(cursor is None),
            now=now,
        )
        work = ADD_JOB.many([bind_job(each) for each in found])
        steps = (step, count, work) if found else (step, count)
        return await self._engine.write(Unit(job.event_id, steps)) is not None

    async def wake_person(self, app_id: str, user_id: str, now: int) -> None:
        """Have everything that is held for a person decided anew."""
        step = WAKE_PERSON.step(app_id=app_id, user_id=user_id, now=now)
        await self._engine.write(Unit(user_id, (step,)))

    async def release_all(self, *, now: int, until: int) -> None:
        """Give back every claim that ends by a time: whoever held them is no more."""
        await self._engine.write(Unit("", (RELEASE_CLAIMED.step(now=now, until=until),)))

    async def oldest(self, lane: Priority) -> int | None:
        """Return when the first job of a lane is or was due."""
        rows = await self._engine.fetch(OLDEST, lane=lane.value)
        return rows[0][0] if rows else None

    async def count_due(self, lane: Priority, now: int, limit: int) -> int:
        """Return how many jobs of a lane are due, counted up to a limit."""
        rows = await self._engine.fetch(COUNT, lane=lane.value, now=now, limit=limit)
        count: int = rows[0][0]
        return count


def bind_job(job: Job) -> Row:
    """Return the row of a new job."""
    return ADD_JOB.bind(
        id=job.id,
        lane=job.lane.value,
        due_at=job.due_at,
        kind=job.kind.value,
        app_id=job.app_id,
        event_id=job.event_id,
        user_id=job.user_id,
        subject=job.subject,
        token=job.token,
    )


def read_job(row: Row) -> Job:
    """Return the job that a row holds."""
    return Job(
        id=row[0],
        lane=Priority(row[1]),
        due_at=row[2],
        kind=JobKind(row[3]),
        app_id=row[4],
        event_id=row[5],
        user_id=row[6],
        subject=row[7],
        token=row[8],
        tries=row[9],
    )


def note_error(job: Job, outcome: Later | Dead, now: int) -> Step:
    """Return the step that lets an event remember what went wrong."""
    return NOTE_ERROR.step(
        app_id=job.app_id,
        event_id=job.event_id,
        tries=job.tries + 1,
        error=(outcome.error or "")[:ERROR_LENGTH],
        is_dead=int(isinstance(outcome, Dead)),
        now=now,
    )
