"""Messages to devices in SQL: those that wait, and the history of all."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from clarion.history.sql import endings
from clarion.pacing import cut
from clarion.pages import Page, read_cursor, write_cursor
from clarion.push.model import (
    Message,
    MessageReason,
    MessageRecord,
    MessageStatus,
    PushPriority,
    StoredMessage,
)
from clarion.push.sql.expressions import WAITS
from clarion.push.tables import MESSAGES
from clarion.store.engine import Engine
from clarion.store.records import Record
from clarion.store.shared_reads import PAUSE_S, SharedReads
from clarion.store.statement import Row, Statement, Step, Unit, Value, keys_of, statement
from clarion.store.sweeps import sweep

ONCE_MS = 24 * 3600 * 1000
TRIM_CHUNK = 1000
# In one unit: a commit takes several units, but cannot be shorter than one.
ACKNOWLEDGED_AT_ONCE = 500
_NEWEST = 1 << 62
# Followed by a condition. A step of the units that invalidate a device, too.
FAIL_WAITING = f"""UPDATE messages SET status = 'failed', reason = 'unregistered', updated_at = :now
WHERE {WAITS} AND """
_RECORDS = Record(MessageRecord)

# The same id within 24 hours is the same message; later it is a new one that replaces the old.
ADD = statement(
    "add_message",
    f"""INSERT INTO messages ({MESSAGES.columns}, status, reason, updated_at)
    VALUES ({MESSAGES.parameters}, :status, :reason, :created_at)
    ON CONFLICT (device_id, id) DO UPDATE SET {MESSAGES.assign_others("device_id", "id", "app_id")},
    status = excluded.status, reason = excluded.reason, updated_at = excluded.updated_at
    WHERE messages.created_at <= excluded.created_at - {ONCE_MS}
    /*postgres RETURNING sequence */""",
)


def _collapsed(among: str, new: str) -> str:
    """Return the condition of waiting messages that end because of one with their collapse id.

    Older ones only: two messages of one batch must not collapse each other. And the message itself,
    if another node has stored a newer one before it. Two nodes may assign the same sequence; then
    the id decides, here and in the list.
    """
    same = f"device_id = :device_id AND collapse_id = :collapse_id AND {WAITS} AND {among}"
    return f"""{same} AND ((sequence, id) < {new} OR (id = :id AND EXISTS (
          SELECT 1 FROM messages WHERE {same} AND (sequence, id) > {new})))"""


def _collapse(name: str, among: str, new: str) -> Statement:
    return statement(
        name,
        f"""UPDATE messages SET status = 'expired', reason = 'collapsed', updated_at = :now
        WHERE {_collapsed(among, new)}""",
    )


# The collapse ids of providers and those of notifications are apart: a push never replaces a
# notification, whose delivery depends on its messages.
COLLAPSE = _collapse("collapse_messages", "notification_id IS NULL", "(:sequence, :id)")
# A repeat is not stored, so its sequence says nothing: that of the stored message counts.
_STORED_MESSAGE = """(SELECT stored.sequence, stored.id FROM messages AS stored
    WHERE stored.device_id = :device_id AND stored.id = :id)"""
COLLAPSE_NOTIFICATIONS = _collapse(
    "collapse_messages_of_notifications", "notification_id IS NOT NULL", _STORED_MESSAGE
)
END_BEFORE_COLLAPSE = endings.end_before(
    "end_deliveries_before_collapse",
    endings.EXPIRED,
    _collapsed("notification_id IS NOT NULL", _STORED_MESSAGE),
)
END_BEFORE_FAILURE = endings.end_before(
    "end_delivery_before_failure", endings.FAILED, "device_id = :device_id AND id = :id"
)
SELECT_WAITING = statement(
    "select_waiting_messages",
    f"""SELECT {MESSAGES.columns} FROM messages
    WHERE device_id = :device_id AND {WAITS} AND is_stored = 1 AND priority >= :least
    AND expires_at > :now ORDER BY priority DESC, sequence LIMIT :limit""",
)
COUNT_WAITING = statement(
    "count_waiting_messages",
    f"""SELECT device_id, COUNT(*) FROM messages
    WHERE device_id IN (SELECT key FROM json_each(:ids)) AND {WAITS}
    AND is_stored = 1 AND expires_at > :now GROUP BY device_id""",
)
# One look into the index for each device, however many messages wait.
FIND_WAITING = statement(
    "find_devices_with_waiting_messages",
    f"""SELECT asked.key FROM json_each(:ids) AS asked WHERE EXISTS (
    SELECT 1 FROM messages WHERE device_id = asked.key AND {WAITS} AND is_stored = 1
    AND expires_at > :now)""",
)
# Reads the newest end of an index for each app, however many messages and devices it has.
FIND_RECENT = statement(
    "find_recent_messages",
    f"""SELECT sequence, device_id FROM messages
    WHERE app_id IN (SELECT key FROM json_each(:ids)) AND sequence > :sequence
    AND {WAITS} AND is_stored = 1 AND expires_at > :now
    ORDER BY sequence, device_id LIMIT :limit""",
)
ACKNOWLEDGE = statement(
    "acknowledge_message",
    f"""UPDATE messages SET status = 'delivered', reason = 'acknowledged', updated_at = :now
    WHERE device_id = :device_id AND id = :id AND {WAITS}""",
)
FAIL = statement("fail_message", f"{FAIL_WAITING} device_id = :device_id AND id = :id")
CANCEL = statement(
    "cancel_message",
    f"""UPDATE messages SET status = 'expired', reason = 'cancelled', updated_at = :now
    WHERE device_id = :device_id AND id = :id AND {WAITS} AND notification_id IS NULL
    RETURNING id""",
)
# Checks twice that a message waits: on PostgreSQL another node may have finished it since the inner
# query.
TRIM = statement(
    "trim_messages",
    f"""UPDATE messages SET status = 'expired', reason = 'overflow', updated_at = :now
    WHERE {WAITS} AND device_id = :device_id AND id IN (
      SELECT id FROM messages WHERE device_id = :device_id AND {WAITS} AND is_stored = 1
      ORDER BY priority DESC, sequence DESC LIMIT {TRIM_CHUNK} OFFSET :keep)
    RETURNING notification_id""",
)
# What has expired is selected first and updated one by one: in one statement PostgreSQL may join
# the whole table with the few that were found.
SELECT_EXPIRED = statement(
    "select_expired_messages",
    f"""SELECT device_id, id, notification_id FROM messages WHERE {WAITS} AND expires_at <= :now
    ORDER BY expires_at LIMIT :limit""",
)
EXPIRE = statement(
    "expire_message",
    f"""UPDATE messages SET status = 'expired', updated_at = :now,
    reason = CASE is_stored WHEN 1 THEN 'ttl_passed' ELSE 'not_stored' END
    WHERE device_id = :device_id AND id = :id AND {WAITS} AND expires_at <= :now RETURNING id""",
)
SELECT_OLD = statement(
    "select_old_messages",
    f"""SELECT device_id, id FROM messages WHERE app_id = :app_id AND sequence < :before
    AND NOT {WAITS} ORDER BY sequence LIMIT :limit""",
)
PRUNE = statement(
    "prune_message",
    f"""DELETE FROM messages WHERE device_id = :device_id AND id = :id AND sequence < :before
    AND NOT {WAITS} RETURNING id""",
)


def _list_before(which: str, sequence: str) -> str:
    return f"""SELECT {_RECORDS.columns} FROM messages WHERE app_id = :app_id
    AND device_id = :device_id AND {which} AND ({sequence}, id) < (:before, :before_id)
    ORDER BY {sequence} DESC, id DESC LIMIT :limit"""


# Those that wait and those that have ended have an index each. In one statement: a message that
# ends meanwhile is listed once. The few that wait are sorted (`+ 0`): otherwise SQLite would read
# the messages of the whole app by their sequence.
LIST = statement(
    "list_messages_of_device",
    f"""SELECT * FROM ({_list_before(WAITS, "sequence + 0")}) AS waiting
    UNION ALL SELECT * FROM ({_list_before(f"NOT {WAITS}", "sequence")}) AS past
    ORDER BY sequence DESC, id DESC LIMIT :limit""",
)
GET = statement(
    "get_message",
    f"""SELECT {_RECORDS.columns} FROM messages
    WHERE app_id = :app_id AND device_id = :device_id AND id = :id""",
)


class SqlMessages:
    """The `Messages` port."""

    def __init__(self, engine: Engine, *, pause_s: float = PAUSE_S) -> None:
        self._engine = engine
        # By device and time.
        self._counts = SharedReads(self._count_waiting, pause_s=pause_s)

    async def add(
        self, message: Message, status: MessageStatus, reason: MessageReason | None
    ) -> bool:
        add = Step(ADD, (_bind(message, status, reason),), is_guard=True)
        steps = (add, *_collapse_older(message))
        unit = Unit(message.device_id, steps, message.app_id)
        return await self._engine.write(unit) is not None

    async def waiting(
        self,
        device_id: str,
        *,
        now: int,
        limit: int,
        least: PushPriority = PushPriority.LOW,
        skip: Collection[str] = (),
    ) -> tuple[Message, ...]:
        rows = await self._engine.fetch(
            SELECT_WAITING, device_id=device_id, least=least, now=now, limit=limit + len(skip)
        )
        found = (message for message in map(MESSAGES.read, rows) if message.id not in skip)
        return tuple(islice(found, limit))

    async def count_waiting(self, device_id: str, *, now: int, limit: int) -> int:
        return min(await self._counts.find((device_id, now)) or 0, limit)

    async def _count_waiting(
        self, asked: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int]:
        """Count for several devices, as of the latest of the times."""
        ids = keys_of({device_id for device_id, _ in asked})
        rows = await self._engine.fetch(COUNT_WAITING, ids=ids, now=max(now for _, now in asked))
        counts = {device_id: int(count) for device_id, count in rows}
        return {each: counts.get(each[0], 0) for each in asked}

    async def find_waiting(self, device_ids: Collection[str], now: int) -> frozenset[str]:
        rows = await self._engine.fetch(FIND_WAITING, ids=keys_of(device_ids), now=now)
        return frozenset(device_id for (device_id,) in rows)

    async def find_recent(
        self, app_ids: Collection[str], *, after: int, now: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        rows = await self._engine.fetch(
            FIND_RECENT, ids=keys_of(app_ids), sequence=after, now=now, limit=limit
        )
        return [(sequence, device_id) for sequence, device_id in rows]

    async def acknowledge(
        self, pairs: Sequence[tuple[str, str]], now: int, notifying: Sequence[Message] = ()
    ) -> None:
        # In key order, as every batch is written.
        chunks = cut(sorted(pairs), ACKNOWLEDGED_AT_ONCE)
        units = [Unit(chunk[0][0], (_acknowledge(chunk, now),)) for chunk in chunks]
        for some in cut(notifying, ACKNOWLEDGED_AT_ONCE):
            step = _acknowledge(sorted((each.device_id, each.id) for each in some), now)
            units.append(Unit(some[0].device_id, (step, *endings.confirm(some, now))))
        await asyncio.gather(*map(self._engine.write, units))

    async def fail(self, device_id: str, message_id: str, now: int) -> None:
        of_message = {"device_id": device_id, "id": message_id}
        end = END_BEFORE_FAILURE.step(**of_message, now=now)
        await self._engine.write(Unit(device_id, (end, FAIL.step(**of_message, now=now))))

    async def cancel(self, device_id: str, message_id: str, now: int) -> bool:
        step = CANCEL.guard(device_id=device_id, id=message_id, now=now)
        return await self._engine.write(Unit(device_id, (step,))) is not None

    async def trim(self, device_id: str, keep: int, now: int) -> int:
        step, total = TRIM.step(device_id=device_id, keep=keep, now=now), 0
        while True:
            done = await self._engine.write(Unit(device_id, (step,)))
            trimmed = [row[0] for row in done[0]] if done else []
            if end := tuple(endings.end_after(trimmed, endings.EXPIRED, now)):
                await self._engine.write(Unit(device_id, end))
            total += len(trimmed)
            if len(trimmed) < TRIM_CHUNK:
                return total

    async def expire(self, now: int, limit: int) -> int:
        found = await self._engine.fetch_in_background(SELECT_EXPIRED, now=now, limit=limit)
        if not found:
            return 0
        ordered = sorted((device_id, message_id) for device_id, message_id, _ in found)
        step = EXPIRE.many([EXPIRE.bind(device_id=d, id=i, now=now) for d, i in ordered])
        end = endings.end_after((each for *_, each in found), endings.EXPIRED, now)
        done = await self._engine.write(Unit("", (step, *end)))
        return len(done[0]) if done else 0


def add_steps(stored: Sequence[StoredMessage]) -> tuple[Step, ...]:
    """Return the steps that store messages as part of another unit; a repeat changes nothing.

    They come after the step that writes the delivery of the notification. All are added before one
    is collapsed: a delivery ends only if none of its messages waits.
    """
    add = ADD.many([_bind(*each) for each in stored])
    return (add, *(step for each in stored for step in _collapse_older(each.message)))


def _bind(message: Message, status: MessageStatus, reason: MessageReason | None) -> Row:
    # As `ADD.bind` would return it, without names; a test compares them.
    return (*MESSAGES.bind(message), status, reason)


def _collapse_older(message: Message) -> tuple[Step, ...]:
    """Return the steps that collapse older messages than one, or this one if a newer is stored."""
    if message.collapse_id is None:
        return ()
    of_message: dict[str, Value] = {
        "device_id": message.device_id,
        "collapse_id": message.collapse_id,
        "id": message.id,
        "now": message.created_at,
    }
    if message.notification_id is None:
        return (COLLAPSE.step(**of_message, sequence=message.sequence),)
    return END_BEFORE_COLLAPSE.step(**of_message), COLLAPSE_NOTIFICATIONS.step(**of_message)


def _acknowledge(pairs: Sequence[tuple[str, str]], now: int) -> Step:
    return ACKNOWLEDGE.many([ACKNOWLEDGE.bind(device_id=d, id=i, now=now) for d, i in pairs])


class SqlHistory:
    """The `History` port. A cursor is the sequence and id of the last message."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(
        self, app_id: str, *, device_id: str, after: str | None, limit: int
    ) -> Page[MessageRecord]:
        before, before_id = read_cursor(after) if after else (_NEWEST, "")
        rows = await self._engine.fetch(
            LIST,
            app_id=app_id,
            device_id=device_id,
            before=before,
            before_id=before_id,
            limit=limit + 1,
        )
        items = tuple(map(_RECORDS.read, rows[:limit]))
        last = items[-1] if len(rows) > limit else None
        return Page(items, write_cursor(last.sequence, last.id) if last else None)

    async def get(self, app_id: str, device_id: str, message_id: str) -> MessageRecord | None:
        rows = await self._engine.fetch(GET, app_id=app_id, device_id=device_id, id=message_id)
        return _RECORDS.read(rows[0]) if rows else None

    async def prune(self, app_id: str, before: int, limit: int) -> int:
        before *= 1000
        return await sweep(
            self._engine, SELECT_OLD, PRUNE, app_id=app_id, before=before, limit=limit
        )
