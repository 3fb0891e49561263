"""The jobs and events of a user who is erased, in SQL.

An event that was waiting for a decision about this user no longer waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clarion.catalog.model import Channel
from clarion.events.sql import naming
from clarion.events.tables import EVENTS, JOBS
from clarion.history.sql.redaction import redact_notifications
from clarion.store.engine import Engine
from clarion.store.lifecycle import user_rows
from clarion.store.lifecycle.user_rows import CHUNK, ErasedUser, WriteChunk
from clarion.store.statement import Step, statement

# Waits for a worker that ends one of the jobs at this moment, and counts it itself. After this step
# no worker can end those that are left.
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
# By the index of the jobs that wait for a person.
DELETE_DIGESTS = statement(
    "erase_digest_jobs",
    """DELETE FROM jobs WHERE app_id = :app_id AND user_id = :user_id
    AND kind IN ('held', 'digest')""",
)
# The error of a provider may quote an address.
CLEAR_ERROR = statement(
    "clear_event_error",
    """UPDATE events SET last_error = NULL WHERE app_id = :app_id AND id = :id
    AND last_error IS NOT NULL""",
)


async def erase_jobs(engine: Engine, user: ErasedUser, write: WriteChunk) -> None:
    """Delete the jobs of a user, and count them in their events."""
    find, delete = user_rows.find(JOBS), user_rows.delete(JOBS)
    while found := await engine.fetch_in_background(find, **user.key):
        ids = sorted(id_ for (id_,) in found)
        steps = {
            "locks": LOCK.many([LOCK.bind(**user.key, id=id_) for id_ in ids]),
            "events": COUNT.many([COUNT.bind(**user.key, id=id_, now=user.now) for id_ in ids]),
            JOBS.name: delete.many([delete.bind(**user.key, id=id_) for id_ in ids]),
        }
        if await write(steps) == 0 or len(found) < CHUNK:
            return  # the next round looks for more


def delete_work(user: ErasedUser, notification_ids: Sequence[str]) -> dict[str, Step]:
    """Return the steps that delete the jobs of notifications, before these are deleted.

    A worker on one of these finds its job gone, and so writes no delivery of a deleted
    notification, which nothing would find again.
    """
    delete = user_rows.delete(JOBS)
    jobs = [f"{id_}/{work}" for id_ in notification_ids for work in ("held", *Channel)]
    return {
        JOBS.name: delete.many([delete.bind(**user.key, id=job) for job in jobs]),
        "digests": DELETE_DIGESTS.step(**user.key),
    }


async def erase_from_events(engine: Engine, user: ErasedUser, write: WriteChunk) -> None:
    """Remove a user from all events that name them, and from what others were sent of these."""
    async for page in naming.scan(engine.fetch_in_background, user.app_id, user.user_id):
        for found in page:
            event = found.event
            about = (user.app_id, event.id, event.content, user.user_id)
            async for steps in redact_notifications(engine, *about):
                await write({}, steps)
            await write({EVENTS.name: naming.erase(found, user.user_id)})


def clear_errors(app_id: str, event_ids: Iterable[str]) -> Step:
    """Return the step that removes the errors of events, which may quote an address."""
    return CLEAR_ERROR.many([CLEAR_ERROR.bind(app_id=app_id, id=each) for each in event_ids])
