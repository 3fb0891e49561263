"""The ledger in SQL: the outcome of a job is one unit, whose first step is its fencing token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from clarion.events.model import Dead, JobKind, Later
from clarion.events.sql import jobs as queue
from clarion.events.sql.deliveries import ADD_ATTEMPT, PUT_DELIVERY, bind_attempt, bind_delivery
from clarion.inbox.sql.numbers import NEXT, REMEMBER, TAKE
from clarion.store.statement import Unit, statement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clarion.events.model import Entry, InboxUpdate, Notification
    from clarion.store.engine import Engine
    from clarion.store.statement import Row, Step

_COLUMNS = """app_id, user_id, id, event_id, type, category, priority, title, body, content, count,
is_shown, folded_into, sequence, expires_at, created_at"""
_VALUES = """:app_id, :user_id, :id, :event_id, :type, :category, :priority, :title, :body,
:content, :count, {is_shown}, :folded_into, {sequence}, :expires_at, :created_at"""
_OF_PERSON = "app_id = :app_id AND user_id = :user_id"

SETTLE = statement(
    "settle_event",
    """UPDATE events SET remaining = remaining - 1, notification_count = notification_count + 1,
    updated_at = :now, status = CASE WHEN status = 'failed' THEN status
    WHEN remaining = 1 THEN :status ELSE 'processing' END
    WHERE app_id = :app_id AND id = :event_id AND status <> 'cancelled' RETURNING id""",
)
CLAIM_KEY = statement(
    "claim_dedupe_key",
    """INSERT INTO dedupes (app_id, id, user_id, notification_id, expires_at)
    VALUES (:app_id, :id, :user_id, :notification_id, :expires_at)
    ON CONFLICT (app_id, id) DO UPDATE SET
    notification_id = excluded.notification_id, expires_at = excluded.expires_at
    WHERE dedupes.expires_at <= :now OR dedupes.notification_id = :seen RETURNING id""",
)
CLAIM_USE = statement(
    "claim_limit_use",
    """INSERT INTO limit_counts (app_id, id, used, expires_at)
    VALUES (:app_id, :id, 1, :expires_at)
    ON CONFLICT (app_id, id) DO UPDATE SET used = limit_counts.used + 1
    WHERE limit_counts.used < :limit RETURNING used""",
)
ADD_SHOWN = statement(
    "add_shown_notification",
    f"""INSERT INTO notifications ({_COLUMNS})
    VALUES ({_VALUES.format(is_shown=1, sequence=NEXT)})""",
)
ADD_HIDDEN = statement(
    "add_hidden_notification",
    f"""INSERT INTO notifications ({_COLUMNS}) VALUES ({_VALUES.format(is_shown=0, sequence=0)})""",
)
TELL = statement(
    "tell_notification",
    f"""UPDATE notifications SET title = :title, body = :body, content = :content,
    count = :count, is_shown = 1, sequence = {NEXT}
    WHERE {_OF_PERSON} AND id = :id AND count = :seen AND is_shown = :was_shown
    AND read_at IS NULL AND dismissed_at IS NULL RETURNING id""",
)
# A digest ends at the moment at which something more is collected for it: then it begins anew.
REOPEN = statement(
    "reopen_digest",
    """INSERT INTO jobs (id, lane, due_at, kind, app_id, event_id, user_id, subject, token, tries)
    SELECT :id, CAST(:lane AS INTEGER), CAST(:due_at AS BIGINT), 'digest', :app_id, :event_id,
    :user_id, :subject, 0, 0 WHERE EXISTS (SELECT 1 FROM deliveries WHERE app_id = :app_id
    AND user_id = :user_id AND status = 'collected' AND status IN ('held', 'collected')
    AND digest = :id)
    ON CONFLICT (id) DO NOTHING""",
)
# Likewise what is held: a channel may come to wait while another is let go.
REOPEN_HELD = statement(
    "reopen_held",
    """INSERT INTO jobs (id, lane, due_at, kind, app_id, event_id, user_id, subject, token, tries)
    SELECT :id, CAST(:lane AS INTEGER), CAST(:due_at AS BIGINT), 'held', :app_id, :event_id,
    :user_id, :subject, 0, 0 WHERE EXISTS (SELECT 1 FROM deliveries
    WHERE notification_id = :subject AND status = 'held') ON CONFLICT (id) DO NOTHING""",
)
_REOPEN = {JobKind.DIGEST: REOPEN, JobKind.HELD: REOPEN_HELD}
_encode = msgspec.json.Encoder().encode


class SqlLedger:
    """The `Ledger` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def write(self, entries: Sequence[Entry], now: int) -> list[bool]:
        """Commit entries, each by itself, and say which of them hold."""
        units = (Unit(e.job.user_id, tuple(_steps(e, now))) for e in entries)
        done = await asyncio.gather(*(self._engine.write(unit) for unit in units))
        return [rows is not None for rows in done]


def _steps(entry: Entry, now: int) -> Iterator[Step]:
    """Yield the steps of an entry: first what may refuse it, then what it changes."""
    job = entry.job
    yield _end(entry)
    if entry.settles is not None:
        yield SETTLE.guard(
            app_id=job.app_id, event_id=job.event_id, status=entry.settles.value, now=now
        )
    yield from _claims(entry, now)
    if entry.inbox_update is not None:
        yield from _tell(entry, entry.inbox_update)
    if entry.added is not None:
        yield from _add(entry.added)
    yield from _follow_up(entry, now)
    if isinstance(entry.next, (Later, Dead)) and entry.next.error is not None:
        yield queue.note_error(job, entry.next, now)


def _end(entry: Entry) -> Step:
    job = entry.job
    match entry.next:
        case None:
            return queue.END.guard(id=job.id, token=job.token)
        case Dead():
            return queue.BURY.guard(id=job.id, token=job.token)
        case Later(error=None):
            return queue.MOVE.guard(
                id=job.id, token=job.token, due_at=entry.next.due_at, subject=job.subject
            )
        case later:
            return queue.RETRY.guard(id=job.id, token=job.token, due_at=later.due_at)


def _claims(entry: Entry, now: int) -> Iterator[Step]:
    job = entry.job
    if entry.dedupe is not None:
        claim = entry.dedupe
        yield CLAIM_KEY.guard(
            app_id=job.app_id,
            id=claim.id,
            user_id=job.user_id,
            notification_id=claim.notification_id,
            seen=claim.seen or "",
            expires_at=claim.expires_at,
            now=now,
        )
    for use in entry.limits:
        yield CLAIM_USE.guard(
            app_id=job.app_id, id=use.id, limit=use.limit, expires_at=use.expires_at
        )


def _tell(entry: Entry, inbox_update: InboxUpdate) -> Iterator[Step]:
    of_person = {"app_id": entry.job.app_id, "user_id": entry.job.user_id}
    yield TAKE.step(**of_person, unread=int(inbox_update.is_first))
    yield TELL.guard(
        **of_person,
        id=inbox_update.id,
        title=inbox_update.title,
        body=inbox_update.body,
        content=_encode(inbox_update.content).decode(),
        count=inbox_update.count,
        seen=inbox_update.seen,
        was_shown=int(not inbox_update.is_first),
    )
    yield REMEMBER.step(**of_person)


def _add(notification: Notification) -> Iterator[Step]:
    of_person = {"app_id": notification.app_id, "user_id": notification.user_id}
    if not notification.is_shown:
        yield ADD_HIDDEN.many((_bind(notification),))
        return
    yield TAKE.step(**of_person, unread=1)
    yield ADD_SHOWN.many((_bind(notification),))
    yield REMEMBER.step(**of_person)


def _follow_up(entry: Entry, now: int) -> Iterator[Step]:
    if entry.deliveries:
        yield PUT_DELIVERY.many([bind_delivery(each) for each in entry.deliveries])
    if entry.attempts:
        yield ADD_ATTEMPT.many([bind_attempt(each) for each in entry.attempts])
    if entry.jobs:
        yield queue.ADD_JOB.many([queue.bind_job(each) for each in entry.jobs])
    if entry.shared_jobs:
        yield queue.ADD_OR_HASTEN_JOB.many([queue.bind_job(each) for each in entry.shared_jobs])
    reopen = _REOPEN.get(entry.job.kind)
    if reopen is not None and entry.next is None:
        job = entry.job
        yield reopen.step(
            id=job.id,
            lane=job.lane.value,
            due_at=now,
            app_id=job.app_id,
            event_id=job.event_id,
            user_id=job.user_id,
            subject=job.subject,
        )


def _bind(notification: Notification) -> Row:
    # The two statements have the same parameters in the same order.
    return ADD_HIDDEN.bind(
        app_id=notification.app_id,
        user_id=notification.user_id,
        id=notification.id,
        event_id=notification.event_id,
        type=notification.type,
        category=notification.category.value,
        priority=notification.priority.value,
        title=notification.title,
        body=notification.body,
        content=_encode(notification.content).decode(),
        count=notification.count,
        folded_into=notification.folded_into,
        expires_at=notification.expires_at,
        created_at=notification.created_at,
    )
