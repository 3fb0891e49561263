"""The jobs of a user who is erased. An event that waits for a decision about them waits no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clarion.store.lifecycle import user_rows
from clarion.store.statement import Row, Step, statement
from clarion.store.table import Table

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
    WHERE app_id = :app_id AND status <> 'cancelled' AND id = (
      SELECT jobs.event_id FROM jobs WHERE jobs.id = :id AND jobs.app_id = :app_id
      AND jobs.user_id = :user_id AND jobs.kind = 'decide')""",
)


def erase(
    table: Table[Any], owner: Mapping[str, str], found: Sequence[Row], now: int
) -> dict[str, Step]:
    """Return the steps that delete jobs that were found, and count them in their events."""
    ids = sorted(id_ for (id_,) in found)
    delete = user_rows.delete(table)
    return {
        "locks": LOCK.many([LOCK.bind(**owner, id=id_) for id_ in ids]),
        "events": COUNT.many([COUNT.bind(**owner, id=id_, now=now) for id_ in ids]),
        table.name: delete.many([delete.bind(**owner, id=id_) for id_ in ids]),
    }
