"""Messages to devices in SQL: what waits, and what became of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import islice

from clarion.pages import Page, read_cursor, write_cursor
from clarion.push.model import Message, MessageReason, MessageRecord, MessageStatus, PushPriority
from clarion.store.engine import Engine
from clarion.store.records import Record
from clarion.store.statement import Unit, statement
from clarion.store.sweeps import count_changed, sweep

ONCE_MS = 24 * 3600 * 1000
TRIM_CHUNK = 1000
# In one unit: a commit takes several units, but cannot be shorter than one.
ACKNOWLEDGED_AT_ONCE = 500
_NEWEST = 1 << 62
WAITS = "status IN ('pending', 'queued')"
# Followed by a condition. A step of the units that invalidate a device, too.
FAIL_WAITING = f"""UPDATE messages SET status = 'failed', reason = 'unregistered', updated_at = :now
WHERE {WAITS} AND """
MESSAGES = Record(Message)
_RECORDS = Record(MessageRecord)
# The messages of topics are in a table of their own.
_STORED = tuple(name for name in MESSAGES.names if name != "topic")


def message_columns(**constants: str) -> str:
    """Return the columns of a message; constants stand for those that a table does not have."""
    return ", ".join(constants.get(name, name) for name in MESSAGES.names)


# The same id within 24 hours is the same message; later it is a new one that replaces the old.
ADD = statement(
    "add_message",
    f"""INSERT INTO messages ({", ".join(_STORED)}, status, reason, updated_at)
    VALUES ({", ".join(f":{name}" for name in _STORED)}, :status, :reason, :created_at)
    ON CONFLICT (device_id, id) DO UPDATE SET
    {MESSAGES.assign_others("device_id", "id", "app_id", "topic")},
    status = excluded.status, reason = excluded.reason, updated_at = excluded.updated_at
    WHERE messages.created_at <= excluded.created_at - {ONCE_MS}
    RETURNING sequence""",
)
_COLLAPSING = f"device_id = :device_id AND collapse_id = :collapse_id AND {WAITS}"
# Expires the older ones: two messages of one batch must not collapse each other. And the message
# itself, if another node has stored a newer one before it. Two nodes may assign the same sequence;
# then the id decides, here and in the list.
COLLAPSE = statement(
    "collapse_messages",
    f"""UPDATE messages SET status = 'expired', reason = 'collapsed', updated_at = :now
    WHERE {_COLLAPSING} AND ((sequence, id) < (:sequence, :id) OR (id = :id AND EXISTS (
      SELECT 1 FROM messages WHERE {_COLLAPSING} AND (sequence, id) > (:sequence, :id))))""",
)
SELECT_WAITING = statement(
    "select_waiting_messages",
    f"""SELECT {message_columns(topic="NULL")} FROM messages
    WHERE device_id = :device_id AND {WAITS} AND is_stored = 1 AND priority >= :least
    AND expires_at > :now ORDER BY priority DESC, sequence LIMIT :limit""",
)
COUNT_WAITING = statement(
    "count_waiting_messages",
    f"""SELECT COUNT(*) FROM (SELECT 1 FROM messages WHERE device_id = :device_id AND {WAITS}
    AND is_stored = 1 AND expires_at > :now LIMIT :limit) AS waiting""",
)
ACKNOWLEDGE = statement(
    "acknowledge_message",
    f"""UPDATE messages SET status = 'delivered', reason = 'acknowledged', updated_at = :now
    WHERE device_id = :device_id AND id = :id AND {WAITS}""",
)
FAIL = statement("fail_message", f"{FAIL_WAITING} device_id = :device_id AND id = :id")
# Checks twice that a message waits: on PostgreSQL another node may have finished it since the inner
# query.
TRIM = statement(
    "trim_messages",
    f"""UPDATE messages SET status = 'expired', reason = 'overflow', updated_at = :now
    WHERE {WAITS} AND device_id = :device_id AND id IN (
      SELECT id FROM messages WHERE device_id = :device_id AND {WAITS} AND is_stored = 1
      ORDER BY priority DESC, sequence DESC LIMIT {TRIM_CHUNK} OFFSET :keep)
    RETURNING id""",
)
# Expired messages are selected first and updated one by one: in one statement PostgreSQL may join
# the whole table with the few that were found.
SELECT_EXPIRED = statement(
    "select_expired_messages",
    f"""SELECT device_id, id FROM messages WHERE {WAITS} AND expires_at <= :now
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
LIST = statement(
    "list_messages_of_device",
    f"""SELECT {_RECORDS.columns} FROM messages WHERE app_id = :app_id AND device_id = :device_id
    AND (sequence, id) < (:before, :before_id) ORDER BY sequence DESC, id DESC LIMIT :limit""",
)
GET = statement(
    "get_message",
    f"""SELECT {_RECORDS.columns} FROM messages
    WHERE app_id = :app_id AND device_id = :device_id AND id = :id""",
)


class SqlMessages:
    """The `Messages` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(
        self, message: Message, status: MessageStatus, reason: MessageReason | None
    ) -> bool:
        add = ADD.guard(
            device_id=message.device_id,
            id=message.id,
            app_id=message.app_id,
            sequence=message.sequence,
            payload=message.payload,
            priority=message.priority,
            collapse_id=message.collapse_id,
            is_stored=int(message.is_stored),
            created_at=message.created_at,
            expires_at=message.expires_at,
            status=status,
            reason=reason,
        )
        if message.collapse_id is None:
            return (
                await self._engine.write(Unit(message.device_id, (add,), message.app_id))
                is not None
            )
        collapse = COLLAPSE.step(
            device_id=message.device_id,
            collapse_id=message.collapse_id,
            sequence=message.sequence,
            id=message.id,
            now=message.created_at,
        )
        unit = Unit(message.device_id, (add, collapse), message.app_id)
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
        ((count,),) = await self._engine.fetch(
            COUNT_WAITING, device_id=device_id, now=now, limit=limit
        )
        return int(count)

    async def acknowledge(self, pairs: Sequence[tuple[str, str]], now: int) -> None:
        ordered = sorted(pairs)  # in key order, as every batch is written
        units = []
        for start in range(0, len(ordered), ACKNOWLEDGED_AT_ONCE):
            chunk = ordered[start : start + ACKNOWLEDGED_AT_ONCE]
            rows = [ACKNOWLEDGE.bind(device_id=d, id=i, now=now) for d, i in chunk]
            units.append(Unit(chunk[0][0], (ACKNOWLEDGE.many(rows),)))
        await asyncio.gather(*map(self._engine.write, units))

    async def fail(self, device_id: str, message_id: str, now: int) -> None:
        step = FAIL.step(device_id=device_id, id=message_id, now=now)
        await self._engine.write(Unit(device_id, (step,)))

    async def trim(self, device_id: str, keep: int, now: int) -> int:
        step = TRIM.step(device_id=device_id, keep=keep, now=now)
        total = 0
        while count := await count_changed(self._engine, device_id, step):
            total += count
            if count < TRIM_CHUNK:
                break
        return total

    async def expire(self, now: int, limit: int) -> int:
        return await sweep(self._engine, SELECT_EXPIRED, EXPIRE, now=now, limit=limit)


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
