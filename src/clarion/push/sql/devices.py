"""Devices in SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from operator import attrgetter

from clarion.errors import Overloaded
from clarion.history.sql import endings
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pacing import cut
from clarion.pages import READ_FOR_PAGE, Page, fill_page
from clarion.people.sql import is_inactive
from clarion.push.model import (
    Device,
    DeviceDetails,
    DeviceFilter,
    DevicePreferences,
    InvalidationReason,
)
from clarion.push.sql import feedback
from clarion.push.sql.messages import FAIL_WAITING
from clarion.push.tables import DEVICES
from clarion.store.engine import Engine
from clarion.store.records import Record
from clarion.store.row_turns import RowTurns
from clarion.store.statement import Statement, Step, Unit, Value, keys_of, statement
from clarion.store.sweeps import sweep

TOUCH_LIMIT = 500
# How often a change of preferences is tried, if others change them at the same time.
_ATTEMPTS = 5
_DETAILS = Record(DeviceDetails)
_SELECT = f"SELECT {DEVICES.columns} FROM devices"
_INSERT = f"INSERT INTO devices ({DEVICES.columns}) VALUES ({DEVICES.parameters})"


def _update_details(source: str) -> str:
    """Return the assignments of new details; those that are NULL keep their old value."""
    return _DETAILS.assign(*_DETAILS.names, source=f"COALESCE({source}, devices.{{0}})")


_OF_TOKEN = "token_hash = :token_hash AND app_id = :app_id"  # noqa: S105 - a condition
# A user who takes over a device must not get messages for the user before.
_CHANGES_USER = "user_id <> :user_id"
# Nor are the preferences of that user kept.
_FORGET_PREFERENCES = f"""preferences = CASE WHEN {_CHANGES_USER} THEN '{{}}'
    ELSE preferences END"""

ADD = statement("add_device", f"{_INSERT} ON CONFLICT (token_hash, app_id) DO NOTHING RETURNING id")
# The guard of a refresh: no row if the device does not exist, or is another user's.
LOCK_IF_ALLOWED = statement(
    "lock_device_if_allowed",
    f"""UPDATE devices SET last_seen_at = :last_seen_at WHERE {_OF_TOKEN}
    AND (CAST(:is_by_app AS INTEGER) = 1 OR user_id = :user_id OR secret_hash = :proof)
    RETURNING id""",
)
# A node that did not know yet that a device was invalidated may have stored messages for it. They
# must not be delivered after the device is registered again.
_LEFT = f"""device_id = (SELECT devices.id FROM devices
    WHERE {_OF_TOKEN} AND (invalidated_at IS NOT NULL OR {_CHANGES_USER}))"""


def _remember_user(name: str, condition: str) -> Statement:
    """Return the statement that stores which user has had a device until now."""
    return statement(
        f"remember_user_of_{name}",
        f"""INSERT INTO former_device_users
        (app_id, user_id, device_id, token_hash, since, until)
        SELECT app_id, user_id, id, token_hash, COALESCE((SELECT MAX(f.until)
          FROM former_device_users f WHERE f.device_id = devices.id), 0), CAST(:until AS BIGINT)
        FROM devices WHERE {condition}
        ON CONFLICT DO NOTHING""",
    )


REMEMBER_LEFT = _remember_user("device_left", f"{_OF_TOKEN} AND {_CHANGES_USER}")
REMEMBER_FORMER = _remember_user(
    "device_changed", f"id = :id AND app_id = :app_id AND {_CHANGES_USER}"
)
REMEMBER_DELETED = _remember_user(
    "device_deleted", "id = :id AND app_id = :app_id AND user_id IS NOT NULL"
)
SELECT_OLD_FORMER = statement(
    "select_old_former_device_users",
    """SELECT app_id, user_id, device_id, until FROM former_device_users WHERE until < :before
    ORDER BY until LIMIT :limit""",
)
PRUNE_FORMER = statement(
    "prune_former_device_user",
    """DELETE FROM former_device_users WHERE app_id = :app_id AND user_id = :user_id
    AND device_id = :device_id AND until = :until RETURNING device_id""",
)
END_LEFT = endings.end_before("end_deliveries_left_behind", endings.FAILED, _LEFT)
FAIL_LEFT = statement("fail_messages_left_behind", f"{FAIL_WAITING} {_LEFT}")
UNSUBSCRIBE_LEFT = statement(
    "delete_subscriptions_left_behind",
    f"""DELETE FROM subscriptions WHERE device_id = (SELECT id FROM devices
    WHERE {_OF_TOKEN} AND {_CHANGES_USER})""",
)
# A user who takes a device over gets a new secret: the user before knows the old one. A token that
# we generated is never an address at another service, on any platform.
REFRESH = statement(
    "refresh_device",
    f"""UPDATE devices SET {_update_details(":{0}")}, platform = :platform,
    address = CASE WHEN address IS NULL THEN address ELSE :address END,
    invalidated_at = NULL, invalidation_reason = NULL, {_FORGET_PREFERENCES},
    secret_hash = CASE WHEN CAST(:is_by_app AS INTEGER) = 1 OR user_id = :user_id
    THEN secret_hash ELSE :secret_hash END
    WHERE {_OF_TOKEN} RETURNING {DEVICES.columns}""",
)
# Every unit locks the device's row before its messages, so that two nodes cannot deadlock.
LOCK = statement(
    "lock_device",
    """UPDATE devices SET last_seen_at = last_seen_at WHERE id = :id AND app_id = :app_id
    RETURNING id""",
)
_OF_FORMER_USER = f"""device_id = (SELECT devices.id FROM devices
    WHERE devices.id = :id AND devices.app_id = :app_id AND {_CHANGES_USER})"""
END_OF_FORMER_USER = endings.end_before(
    "end_deliveries_of_former_user", endings.FAILED, _OF_FORMER_USER
)
FAIL_OF_FORMER_USER = statement("fail_messages_of_former_user", f"{FAIL_WAITING} {_OF_FORMER_USER}")
UNSUBSCRIBE_FORMER_USER = statement(
    "delete_subscriptions_of_former_user",
    f"""DELETE FROM subscriptions WHERE device_id = (SELECT id FROM devices
    WHERE id = :id AND app_id = :app_id AND {_CHANGES_USER})""",
)
UPDATE = statement(
    "update_device",
    f"""UPDATE devices SET {_update_details(":{0}")}, {_FORGET_PREFERENCES}
    WHERE id = :id AND app_id = :app_id RETURNING {DEVICES.columns}""",
)
# Only if nobody has changed them since they were read.
SET_PREFERENCES = statement(
    "set_device_preferences",
    f"""UPDATE devices SET preferences = :preferences
    WHERE id = :id AND app_id = :app_id AND preferences = :known RETURNING {DEVICES.columns}""",
)
SET_SECRET = statement(
    "set_device_secret",
    """UPDATE devices SET secret_hash = :secret_hash WHERE id = :id AND app_id = :app_id
    RETURNING id""",
)
FIND = statement("find_device", f"{_SELECT} WHERE {_OF_TOKEN}")
AUTHENTICATE = statement(
    "authenticate_device",
    f"""{_SELECT} WHERE token_hash = :token_hash AND secret_hash = :secret_hash
    AND invalidated_at IS NULL AND NOT {is_inactive("devices.app_id", "devices.user_id")}""",
)
GET = statement("get_device", f"{_SELECT} WHERE id = :id AND app_id = :app_id")
FIND_MANY = statement(
    "find_devices", f"{_SELECT} WHERE app_id = :app_id AND id IN (SELECT key FROM json_each(:ids))"
)
LIST = statement(
    "list_devices_of_user",
    f"""{_SELECT} WHERE app_id = :app_id AND user_id = :user_id
    AND id > :after ORDER BY id LIMIT :limit""",
)
LIST_ALL = statement(
    "list_devices",
    f"{_SELECT} WHERE app_id = :app_id AND id > :after ORDER BY id LIMIT :limit",
)
LIST_OF_PLATFORM = statement(
    "list_devices_of_platform",
    f"""{_SELECT} WHERE app_id = :app_id AND platform = :platform AND id > :after
    ORDER BY id LIMIT :limit""",
)
LIST_INVALID = statement(
    "list_invalid_devices",
    f"""{_SELECT} WHERE app_id = :app_id AND invalidated_at IS NOT NULL AND id > :after
    ORDER BY id LIMIT :limit""",
)
SELECT_VALID_OF_USER = statement(
    "select_valid_devices_of_user",
    f"""{_SELECT} WHERE app_id = :app_id AND user_id = :user_id
    AND invalidated_at IS NULL ORDER BY last_seen_at DESC, id DESC LIMIT :limit""",
)
SELECT_VALID_OF_USERS = statement(
    "select_valid_devices_of_users",
    f"""SELECT {DEVICES.columns} FROM (SELECT {DEVICES.columns}, ROW_NUMBER() OVER (
      PARTITION BY user_id ORDER BY last_seen_at DESC, id DESC) AS place
      FROM devices WHERE app_id = :app_id AND invalidated_at IS NULL
      AND user_id IN (SELECT key FROM json_each(:ids))) AS ranked
    WHERE place <= :limit ORDER BY user_id, place""",
)
SELECT_INVALID_OF_USER = statement(
    "select_invalid_devices_of_user",
    """SELECT id FROM devices WHERE app_id = :app_id AND user_id = :user_id
    AND invalidated_at IS NOT NULL ORDER BY invalidated_at DESC, id DESC
    LIMIT :limit OFFSET :keep""",
)
TOUCH = statement(
    "touch_device",
    """UPDATE devices SET last_seen_at = :now, connected_at = CASE
    WHEN connected_at > :connected_at THEN connected_at ELSE :connected_at END WHERE id = :id""",
)
INVALIDATE = statement(
    "invalidate_device",
    f"""UPDATE devices SET invalidated_at = :now, invalidation_reason = :reason
    WHERE id = :id AND app_id = :app_id AND invalidated_at IS NULL RETURNING {DEVICES.columns}""",
)
INVALIDATE_ADDRESS = statement(
    "invalidate_device_at_address",
    f"""UPDATE devices SET invalidated_at = :now, invalidation_reason = :reason
    WHERE id = :id AND app_id = :app_id AND invalidated_at IS NULL AND address = :address
    RETURNING {DEVICES.columns}""",
)
END_ALL = endings.end_before("end_waiting_deliveries", endings.FAILED, "device_id = :id")
FAIL_ALL = statement("fail_waiting_messages", f"{FAIL_WAITING} device_id = :id")
MARK_DELETED = statement(
    "mark_device_deleted",
    """UPDATE devices SET invalidated_at = COALESCE(invalidated_at, :now),
    invalidation_reason = COALESCE(invalidation_reason, 'deleted')
    WHERE id = :id AND app_id = :app_id RETURNING id""",
)
DELETE_SUBSCRIPTIONS = statement(
    "delete_subscriptions_of_device", "DELETE FROM subscriptions WHERE device_id = :id"
)
DELETE_ENDPOINTS = statement(
    "delete_push_endpoints_of_device", "DELETE FROM push_endpoints WHERE device_id = :id"
)
DELETE = statement(
    "delete_device", f"DELETE FROM devices WHERE id = :id RETURNING {DEVICES.columns}"
)
SELECT_OLD = statement(
    "select_old_devices",
    """SELECT app_id, id FROM devices WHERE invalidated_at > 0 AND invalidated_at < :before
    ORDER BY invalidated_at LIMIT :limit""",
)


def to_sequence(moment: int) -> int:
    """Return the sequence of a message that is stored at a time."""
    return moment * 1000


class Devices:
    """The registry of devices. Within an app, a token belongs to one device.

    Apps know nothing of each other: several may have a device with the same token.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = RowTurns()

    async def add(
        self, device: Device, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a device; False if the app has one with its token. `once` as in `Keys.create`."""
        add, app_id = ADD.guard(**DEVICES.values(device)), device.app_id
        done = await idempotency.write_once(self._engine, device.id, once, add, owner=app_id)
        return done if isinstance(done, StoredResponse) else done is not None

    async def refresh(
        self, device: Device, *, is_by_app: bool, proof: bytes = b""
    ) -> Device | None:
        """Refresh the device of the app that has this token, and return it as it is now.

        It keeps its id, secret and time of creation, gets the new details (None keeps the old
        value), and is valid again. If it has an address, it gets the new one; otherwise it stays
        without. Returns None, with nothing changed, if no such device exists, or if it has another
        user, the app itself does not ask for it, and `proof` is not the hash of its secret. If its
        user changes, its waiting messages fail, its subscriptions are deleted and its preferences
        reset; if a user took it over, it gets the new secret, too.
        """
        details, now = device.details, device.last_seen_at
        of_token: dict[str, Value] = {"token_hash": device.token_hash, "app_id": device.app_id}
        of_user = {**of_token, "user_id": details.user_id}
        by_whom = {"is_by_app": int(is_by_app)}
        return await self._write(
            device.id,
            LOCK_IF_ALLOWED.guard(**of_user, **by_whom, proof=proof, last_seen_at=now),
            REMEMBER_LEFT.step(**of_user, until=to_sequence(now)),
            END_LEFT.step(**of_user, now=now),
            FAIL_LEFT.step(**of_user, now=now),
            UNSUBSCRIBE_LEFT.step(**of_user),
            REFRESH.step(
                **of_token,
                **by_whom,
                **_DETAILS.values(details),
                platform=device.platform.value,
                secret_hash=device.secret_hash,
                address=device.address,
            ),
            owner=device.app_id,
        )

    async def set_secret(self, app_id: str, device_id: str, secret_hash: bytes) -> bool:
        """Replace the secret of a device; False if the app has no such device."""
        step = SET_SECRET.guard(id=device_id, app_id=app_id, secret_hash=secret_hash)
        return await self._engine.write(Unit(device_id, (step,), app_id)) is not None

    async def update(
        self, app_id: str, device_id: str, details: DeviceDetails, now: int
    ) -> Device | None:
        """Update the details that are not None; return None if the app has no such device.

        If its user changes, its waiting messages fail, its subscriptions are deleted and its
        preferences reset.
        """
        of_device = {"id": device_id, "app_id": app_id}
        update = UPDATE.guard(**of_device, **_DETAILS.values(details))
        if details.user_id is None:
            return await self._write(device_id, update, owner=app_id)
        return await self._write(
            device_id,
            LOCK.guard(**of_device),
            REMEMBER_FORMER.step(**of_device, user_id=details.user_id, until=to_sequence(now)),
            END_OF_FORMER_USER.step(**of_device, user_id=details.user_id, now=now),
            FAIL_OF_FORMER_USER.step(**of_device, user_id=details.user_id, now=now),
            UNSUBSCRIBE_FORMER_USER.step(**of_device, user_id=details.user_id),
            update,
            owner=app_id,
        )

    async def set_preferences(
        self,
        app_id: str,
        device_id: str,
        edit: Callable[[DevicePreferences], DevicePreferences],
    ) -> Device | None:
        """Edit the preferences of a device; return None if the app has no such device.

        Concurrent edits do not overwrite each other: `edit` may be called several times.
        """
        of_device = {"id": device_id, "app_id": app_id}
        async with self._turns.take(app_id, device_id):
            for _ in range(_ATTEMPTS):
                device = await self.get(app_id, device_id)
                if device is None:
                    return None
                edited = replace(device, preferences=edit(device.preferences))
                known, new = (DEVICES.values(each)["preferences"] for each in (device, edited))
                step = SET_PREFERENCES.guard(**of_device, known=known, preferences=new)
                if changed := await self._write(device_id, step, owner=app_id):
                    return changed
        raise Overloaded("Too many concurrent changes of this device. Try again.")

    async def find(self, app_id: str, token_hash: bytes) -> Device | None:
        """Return the app's device with this token, valid or not, or None."""
        rows = await self._engine.fetch(FIND, app_id=app_id, token_hash=token_hash)
        return DEVICES.read(rows[0]) if rows else None

    async def authenticate(self, token_hash: bytes, secret_hash: bytes) -> Device | None:
        """Return the valid device of any app with this token and secret, or None.

        None also if its user is inactive.
        """
        rows = await self._engine.fetch(
            AUTHENTICATE, token_hash=token_hash, secret_hash=secret_hash
        )
        return DEVICES.read(rows[0]) if rows else None

    async def get(self, app_id: str, device_id: str) -> Device | None:
        """Return the device, valid or not, or None."""
        rows = await self._engine.fetch(GET, id=device_id, app_id=app_id)
        return DEVICES.read(rows[0]) if rows else None

    async def find_many(self, app_id: str, device_ids: Collection[str]) -> dict[str, Device]:
        """Return those devices that exist, valid or not, by id, in one read."""
        if not device_ids:
            return {}
        rows = await self._engine.fetch(FIND_MANY, app_id=app_id, ids=keys_of(device_ids))
        return {device.id: device for device in map(DEVICES.read, rows)}

    async def list(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[Device]:
        """Return the devices of a user, valid or not, in the order of their ids."""
        rows = await self._engine.fetch(
            LIST, app_id=app_id, user_id=user_id, after=after or "", limit=limit + 1
        )
        items = tuple(map(DEVICES.read, rows[:limit]))
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def list_all(
        self, app_id: str, chosen: DeviceFilter, *, after: str | None, limit: int
    ) -> Page[Device]:
        """Return the devices of an app for which a filter holds, in the order of their ids.

        A page may have fewer than `limit`, even none, and a cursor: it reads a bounded part.
        """
        query, values = _choose_list(chosen)
        read = max(limit, READ_FOR_PAGE) if _is_read_for_more(chosen) else limit
        rows = await self._engine.fetch(
            query, app_id=app_id, after=after or "", limit=read + 1, **values
        )
        devices = [DEVICES.read(row) for row in rows]
        return fill_page(
            devices,
            read=read,
            limit=limit,
            item_of=lambda device: device if _fits(device, chosen) else None,
            place_of=attrgetter("id"),
        )

    async def valid_of_user(self, app_id: str, user_id: str, limit: int) -> tuple[Device, ...]:
        """Return a user's valid devices, most recently seen first."""
        rows = await self._engine.fetch(
            SELECT_VALID_OF_USER, app_id=app_id, user_id=user_id, limit=limit
        )
        return tuple(map(DEVICES.read, rows))

    async def valid_of_users(
        self, app_id: str, user_ids: Collection[str], limit: int
    ) -> dict[str, tuple[Device, ...]]:
        """Return the valid devices of users, in one read, at most `limit` of each user.

        By user id, most recently seen first; users without one are left out.
        """
        if not user_ids:
            return {}
        ids = keys_of(user_ids)
        rows = await self._engine.fetch(SELECT_VALID_OF_USERS, app_id=app_id, ids=ids, limit=limit)
        found: dict[str, tuple[Device, ...]] = {}
        for device in map(DEVICES.read, rows):
            user_id = device.details.user_id or ""
            found[user_id] = (*found.get(user_id, ()), device)
        return found

    async def invalid_of_user(
        self, app_id: str, user_id: str, *, keep: int, limit: int
    ) -> tuple[str, ...]:
        """Return the ids of a user's invalid devices but the `keep` last ones, at most `limit`."""
        rows = await self._engine.fetch(
            SELECT_INVALID_OF_USER, app_id=app_id, user_id=user_id, keep=keep, limit=limit
        )
        return tuple(device_id for (device_id,) in rows)

    async def touch(self, connected_at: Mapping[str, int], now: int) -> None:
        """Set when the devices were last seen, 500 devices a commit.

        Each is given with the time at which a connection of it was opened; the newest is kept.
        """
        # In key order, as every batch is written.
        rows = [
            TOUCH.bind(now=now, connected_at=moment, id=device_id)
            for device_id, moment in sorted(connected_at.items())
        ]
        for chunk in cut(rows, TOUCH_LIMIT):
            await self._engine.write(Unit("", (TOUCH.many(chunk),)))

    async def invalidate(
        self,
        app_id: str,
        device_id: str,
        reason: InvalidationReason,
        now: int,
        address: bytes | None = None,
    ) -> Device | None:
        """Invalidate a device: fail the messages that wait for it, add its token to the feedback.

        With the sealed `address` that something was sent to: only if the device still has it, and
        has not registered again since it was read. Returns the device, or None if the app has no
        such device that is valid.
        """
        values = {"id": device_id, "app_id": app_id, "reason": reason.value, "now": now}
        return await self._write(
            device_id,
            INVALIDATE.guard(**values)
            if address is None
            else INVALIDATE_ADDRESS.guard(**values, address=address),
            feedback.ADD.step(id=device_id),
            END_ALL.step(id=device_id, now=now),
            FAIL_ALL.step(id=device_id, now=now),
        )

    async def find_old(self, before: int, limit: int) -> tuple[tuple[str, str], ...]:
        """Return devices invalidated before a time, at most `limit`, as app and device id."""
        rows = await self._engine.fetch_in_background(SELECT_OLD, before=before, limit=limit)
        return tuple((app_id, device_id) for app_id, device_id in rows)

    async def prune_former_users(self, before: int, limit: int) -> int:
        """Forget whose devices were until before a time, at most `limit`; return how many."""
        return await sweep(
            self._engine, SELECT_OLD_FORMER, PRUNE_FORMER, before=to_sequence(before), limit=limit
        )

    async def delete(self, app_id: str, device_id: str, now: int) -> Device | None:
        """Delete a device and its subscriptions; add its token to the feedback if it was valid.

        Its messages stay in the history. Returns the deleted device, or None.
        """
        return await self._write(
            device_id,
            MARK_DELETED.guard(id=device_id, app_id=app_id, now=now),
            REMEMBER_DELETED.step(id=device_id, app_id=app_id, until=to_sequence(now)),
            feedback.ADD.step(id=device_id),
            END_ALL.step(id=device_id, now=now),
            FAIL_ALL.step(id=device_id, now=now),
            DELETE_SUBSCRIPTIONS.step(id=device_id),
            DELETE_ENDPOINTS.step(id=device_id),
            DELETE.step(id=device_id),
        )

    async def _write(self, device_id: str, *steps: Step, owner: str | None = None) -> Device | None:
        """Write a unit and return the device that its last row shows; None if a guard refused."""
        done = await self._engine.write(Unit(device_id, steps, owner, is_last=True))
        return DEVICES.read([row for rows in done for row in rows][-1]) if done else None


def _choose_list(chosen: DeviceFilter) -> tuple[Statement, dict[str, Value]]:
    """Return the list statement for the most selective condition, and its values."""
    if chosen.user_id is not None:
        return LIST, {"user_id": chosen.user_id}
    if chosen.is_valid is False:
        return LIST_INVALID, {}
    if chosen.platform is not None:
        return LIST_OF_PLATFORM, {"platform": chosen.platform.value}
    return LIST_ALL, {}


def _is_read_for_more(chosen: DeviceFilter) -> bool:
    """Return whether the list has rows that do not fit; nearly all devices are valid."""
    conditions = (chosen.user_id, chosen.platform, chosen.is_valid)
    return chosen.is_valid is True or sum(each is not None for each in conditions) > 1


def _fits(device: Device, chosen: DeviceFilter) -> bool:
    return chosen.platform in (None, device.platform) and chosen.is_valid in (None, device.is_valid)
