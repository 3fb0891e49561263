"""The jobs of a user who is erased. An event that waits for a decision about them waits no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clarion.store.personal_tables import CHUNK, PersonalTable
from clarion.store.statement import Row, Step, statement

FIND = statement(
    "find_jobs_to_erase",
    f"""SELECT id, event_id FROM jobs WHERE app_id = :app_id AND user_id = :user_id
    LIMIT {CHUNK}""",
)
# A worker that ends one of them at this moment is waited for, and counts it itself: after this
# step, what is there can be ended by nobody else.
LOCK = statement(
    "lock_job_to_erase",
    """UPDATE jobs SET token = token
    WHERE id = :id AND app_id = :app_id AND user_id = :user_id""",
)
# As a decision about a user who is gone.
COUNT = statement(
    "count_erased_recipient",
    """UPDATE events SET remaining = remaining - 1, notification_count = notification_count + 1,
    updated_at = :now, status = CASE WHEN status = 'failed' THEN status
    WHEN remaining = 1 THEN 'completed' ELSE 'processing' END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled' AND EXISTS (
      SELECT 1 FROM jobs WHERE jobs.id = :id AND jobs.app_id = :app_id
      AND jobs.user_id = :user_id AND jobs.kind = 'decide')""",
)


def erase(
    table: PersonalTable, owner: Mapping[str, str], found: Sequence[Row], now: int
) -> dict[str, Step]:
    """Return the steps that delete jobs that were found, and count them in their events."""
    ordered = sorted(found)
    ids = [id_ for id_, _ in ordered]
    counts = [COUNT.bind(**owner, id=id_, event_id=event, now=now) for id_, event in ordered]
    return {
        "locks": LOCK.many([LOCK.bind(**owner, id=id_) for id_ in ids]),
        "events": COUNT.many(counts),
        table.table: table.delete.many([table.delete.bind(**owner, id=id_) for id_ in ids]),
    }
