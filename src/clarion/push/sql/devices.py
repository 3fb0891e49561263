"""Devices and the feedback about them in SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from clarion.errors import Conflict
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import StoredResponse
from clarion.pages import Page, read_cursor, refuse_cursor, write_cursor
from clarion.push.model import Device, DeviceDetails, Feedback, InvalidationReason, Platform
from clarion.store.statement import Row, Unit, statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clarion.idempotency.model import IdempotencyClaim
    from clarion.store.engine import Engine
    from clarion.store.statement import Step, Value

_COLUMNS = """id, app_id, token_hash, secret_hash, platform, user_id, model, os_version,
app_version, language, timezone, label, created_at, last_seen_at, invalidated_at,
invalidation_reason"""
# What the details leave out stays as it was.
_KEEP_OR_TAKE = """user_id = COALESCE(excluded.user_id, devices.user_id),
model = COALESCE(excluded.model, devices.model),
os_version = COALESCE(excluded.os_version, devices.os_version),
app_version = COALESCE(excluded.app_version, devices.app_version),
language = COALESCE(excluded.language, devices.language),
timezone = COALESCE(excluded.timezone, devices.timezone),
label = COALESCE(excluded.label, devices.label)"""

ADD = statement(
    "add_device",
    f"""INSERT INTO devices ({_COLUMNS}) VALUES (:id, :app_id, :token_hash, :secret_hash, :platform,
    :user_id, :model, :os_version, :app_version, :language, :timezone, :label, :created_at,
    :last_seen_at, NULL, NULL)
    ON CONFLICT (token_hash) DO NOTHING RETURNING id""",
)
REFRESH = statement(
    "refresh_device",
    f"""INSERT INTO devices ({_COLUMNS}) VALUES (:id, :app_id, :token_hash, :secret_hash, :platform,
    :user_id, :model, :os_version, :app_version, :language, :timezone, :label, :created_at,
    :last_seen_at, NULL, NULL)
    ON CONFLICT (token_hash) DO UPDATE SET {_KEEP_OR_TAKE}, platform = excluded.platform,
    last_seen_at = excluded.last_seen_at, invalidated_at = NULL, invalidation_reason = NULL
    WHERE devices.app_id = excluded.app_id
    RETURNING {_COLUMNS}""",
)
# What a node that did not know yet has stored for a device after its end is not for its next life.
FAIL_LEFT = statement(
    "fail_messages_left_behind",
    """UPDATE messages SET status = 'failed', reason = 'unregistered', updated_at = :now
    WHERE device_id = (SELECT id FROM devices
      WHERE token_hash = :token_hash AND invalidated_at IS NOT NULL)
    AND status IN ('pending', 'queued')""",
)
UPDATE = statement(
    "update_device",
    f"""UPDATE devices SET user_id = COALESCE(:user_id, user_id), model = COALESCE(:model, model),
    os_version = COALESCE(:os_version, os_version), language = COALESCE(:language, language),
    app_version = COALESCE(:app_version, app_version), label = COALESCE(:label, label),
    timezone = COALESCE(:timezone, timezone)
    WHERE id = :id AND app_id = :app_id RETURNING {_COLUMNS}""",
)
SET_SECRET = statement(
    "set_device_secret",
    """UPDATE devices SET secret_hash = :secret_hash WHERE id = :id AND app_id = :app_id
    RETURNING id""",
)
FIND = statement("find_device", f"SELECT {_COLUMNS} FROM devices WHERE token_hash = :token_hash")
GET = statement("get_device", f"SELECT {_COLUMNS} FROM devices WHERE id = :id AND app_id = :app_id")
LIST = statement(
    "list_devices",
    f"""SELECT {_COLUMNS} FROM devices WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT :limit""",
)
LIST_OF_USER = statement(
    "list_devices_of_user",
    f"""SELECT {_COLUMNS} FROM devices WHERE app_id = :app_id AND user_id = :user_id
    AND id > :after ORDER BY id LIMIT :limit""",
)
SELECT_VALID_OF_USER = statement(
    "select_valid_devices_of_user",
    f"""SELECT {_COLUMNS} FROM devices WHERE app_id = :app_id AND user_id = :user_id
    AND invalidated_at IS NULL ORDER BY last_seen_at DESC, id DESC LIMIT :limit""",
)
TOUCH = statement("touch_device", "UPDATE devices SET last_seen_at = :now WHERE id = :id")
INVALIDATE = statement(
    "invalidate_device",
    f"""UPDATE devices SET invalidated_at = :now, invalidation_reason = :reason
    WHERE id = :id AND app_id = :app_id AND invalidated_at IS NULL RETURNING {_COLUMNS}""",
)
FEED_BACK = statement(
    "feed_back",
    """INSERT INTO feedback (app_id, invalidated_at, token_hash, reason)
    SELECT app_id, invalidated_at, token_hash, invalidation_reason FROM devices
    WHERE id = :id AND invalidated_at IS NOT NULL
    ON CONFLICT DO NOTHING""",
)
FAIL_WAITING = statement(
    "fail_waiting_messages",
    """UPDATE messages SET status = 'failed', reason = 'unregistered', updated_at = :now
    WHERE device_id = :id AND status IN ('pending', 'queued')""",
)
MARK_DELETED = statement(
    "mark_device_deleted",
    """UPDATE devices SET invalidated_at = COALESCE(invalidated_at, :now),
    invalidation_reason = COALESCE(invalidation_reason, 'deleted')
    WHERE id = :id AND app_id = :app_id RETURNING id""",
)
DELETE_SUBSCRIPTIONS = statement(
    "delete_subscriptions_of_device", "DELETE FROM subscriptions WHERE device_id = :id"
)
DELETE = statement("delete_device", f"DELETE FROM devices WHERE id = :id RETURNING {_COLUMNS}")
LIST_FEEDBACK = statement(
    "list_feedback",
    """SELECT app_id, token_hash, reason, invalidated_at FROM feedback
    WHERE app_id = :app_id AND (invalidated_at, token_hash) > (:since, :token_hash)
    ORDER BY invalidated_at, token_hash LIMIT :limit""",
)


class SqlDevices:
    """The `Devices` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a device."""
        done = await self._write_once(device.id, once, ADD.guard(**_values(device)))
        return done if isinstance(done, StoredResponse) else done is not None

    async def refresh(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | Device:
        """Refresh the device that has this token."""
        left = FAIL_LEFT.step(token_hash=device.token_hash, now=device.last_seen_at)
        refresh = REFRESH.guard(**_values(device))
        done = await self._write_once(device.id, once, left, refresh)
        if isinstance(done, StoredResponse):
            return done
        if done is None:
            msg = "This token is registered for another app."
            raise Conflict(msg)
        return _device(done)

    async def _write_once(
        self, key: str, once: IdempotencyClaim | None, *steps: Step
    ) -> StoredResponse | Row | None:
        """Write steps, once; return the row of the last, or None if it was refused."""
        claim = (idempotency.claim(once),) if once else ()
        done = await self._engine.write(Unit(key, (*claim, *steps)))
        if done:
            return done[-1][0]
        return await idempotency.replay_if_claimed(self._engine, once) if once else None

    async def set_secret(self, app_id: str, device_id: str, secret_hash: bytes) -> bool:
        """Give a device another secret."""
        step = SET_SECRET.guard(id=device_id, app_id=app_id, secret_hash=secret_hash)
        return await self._engine.write(Unit(device_id, (step,))) is not None

    async def update(self, app_id: str, device_id: str, details: DeviceDetails) -> Device | None:
        """Take over the details that are not None."""
        step = UPDATE.guard(id=device_id, app_id=app_id, **asdict(details))
        return await self._write(device_id, step)

    async def find(self, token_hash: bytes) -> Device | None:
        """Return the device with that token, or None."""
        rows = await self._engine.fetch(FIND, token_hash=token_hash)
        return _device(rows[0]) if rows else None

    async def get(self, app_id: str, device_id: str) -> Device | None:
        """Return the device, or None."""
        rows = await self._engine.fetch(GET, id=device_id, app_id=app_id)
        return _device(rows[0]) if rows else None

    async def list(
        self, app_id: str, *, user_id: str | None, after: str | None, limit: int
    ) -> Page[Device]:
        """Return devices in the order of their ids."""
        where: dict[str, Value] = {"app_id": app_id, "after": after or "", "limit": limit + 1}
        rows = (
            await self._engine.fetch(LIST, **where)
            if user_id is None
            else await self._engine.fetch(LIST_OF_USER, user_id=user_id, **where)
        )
        items = tuple(_device(row) for row in rows[:limit])
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def valid_of_user(self, app_id: str, user_id: str, limit: int) -> tuple[Device, ...]:
        """Return a user's valid devices, those seen last first."""
        rows = await self._engine.fetch(
            SELECT_VALID_OF_USER, app_id=app_id, user_id=user_id, limit=limit
        )
        return tuple(_device(row) for row in rows)

    async def touch(self, device_ids: Sequence[str], now: int) -> None:
        """Note that the devices were seen."""
        rows = [TOUCH.bind(now=now, id=device_id) for device_id in device_ids]
        if rows:
            await self._engine.write(Unit(device_ids[0], (TOUCH.many(rows),)))

    async def invalidate(
        self, app_id: str, device_id: str, reason: InvalidationReason, now: int
    ) -> Device | None:
        """End a device."""
        return await self._write(
            device_id,
            INVALIDATE.guard(id=device_id, app_id=app_id, reason=reason.value, now=now),
            FEED_BACK.step(id=device_id),
            FAIL_WAITING.step(id=device_id, now=now),
        )

    async def delete(self, app_id: str, device_id: str, now: int) -> Device | None:
        """Remove a device."""
        steps = (
            MARK_DELETED.guard(id=device_id, app_id=app_id, now=now),
            FEED_BACK.step(id=device_id),
            FAIL_WAITING.step(id=device_id, now=now),
            DELETE_SUBSCRIPTIONS.step(id=device_id),
            DELETE.step(id=device_id),
        )
        done = await self._engine.write(Unit(device_id, steps))
        return _device(done[-1][0]) if done else None

    async def _write(self, device_id: str, *steps: Step) -> Device | None:
        """Write a unit whose first step returns the device."""
        done = await self._engine.write(Unit(device_id, steps))
        return _device(done[0][0]) if done else None


class SqlFeedback:
    """The `FeedbackList` port. A cursor is the time and token hash of the last entry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(
        self, app_id: str, *, since: int, after: str | None, limit: int
    ) -> Page[Feedback]:
        """Return the app's entries, oldest first."""
        start, token_hash = _parse_cursor(after) if after else (since - 1, b"\xff" * 32)
        rows = await self._engine.fetch(
            LIST_FEEDBACK, app_id=app_id, since=start, token_hash=token_hash, limit=limit + 1
        )
        items = tuple(
            Feedback(app_id=row[0], token_hash=row[1], reason=row[2], invalidated_at=row[3])
            for row in rows[:limit]
        )
        return Page(items, _cursor(items[-1]) if len(rows) > limit else None)


def _values(device: Device) -> dict[str, Value]:
    return {
        "id": device.id,
        "app_id": device.app_id,
        "token_hash": device.token_hash,
        "secret_hash": device.secret_hash,
        "platform": device.platform.value,
        "created_at": device.created_at,
        "last_seen_at": device.last_seen_at,
        **asdict(device.details),
    }


def _cursor(entry: Feedback) -> str:
    return write_cursor(entry.invalidated_at, entry.token_hash.hex())


def _parse_cursor(cursor: str) -> tuple[int, bytes]:
    time, token_hash = read_cursor(cursor)
    try:
        return time, bytes.fromhex(token_hash)
    except ValueError as error:
        raise refuse_cursor() from error


def _device(row: Row) -> Device:
    end = row[15]
    return Device(
        id=row[0],
        app_id=row[1],
        token_hash=row[2],
        secret_hash=row[3],
        platform=Platform(row[4]),
        details=DeviceDetails(
            user_id=row[5],
            model=row[6],
            os_version=row[7],
            app_version=row[8],
            language=row[9],
            timezone=row[10],
            label=row[11],
        ),
        created_at=row[12],
        last_seen_at=row[13],
        invalidated_at=row[14],
        invalidation_reason=InvalidationReason(end) if end else None,
    )
