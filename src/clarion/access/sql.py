"""Apps and API keys in SQL."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import msgspec

from clarion.access.model import (
    LIVE_API_KEYS_LIMIT,
    LIVE_KEYS_LIMIT,
    OF_INSTALLATION,
    ApiKey,
    App,
    ProviderKey,
    Ticket,
    UserKey,
)
from clarion.access.tables import API_KEYS, APPS, PROVIDER_KEYS, TICKETS, USER_KEYS
from clarion.errors import Conflict
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page, cut_page
from clarion.store.engine import Engine, explain_conflict
from clarion.store.records import Record
from clarion.store.statement import Statement, Step, Unit, statement

K = TypeVar("K", UserKey, ProviderKey)
# How long the list shows keys that have ended.
_ENDED_KEPT_MS = 30 * 24 * 3600 * 1000
_KEYS_LISTED = 100
_TOO_MANY = (
    f"An app can have {LIVE_API_KEYS_LIMIT:,} live API keys: revoke those that are not needed."
)


DELETE_MARK = statement(
    "delete_mark_of_app", "DELETE FROM apps WHERE id = :id AND deleted_at <= :before"
)
FIND_APP = statement("select_app_for_doctor", "SELECT id FROM apps WHERE id = :id")

INSERT_APP = statement("insert_app", APPS.insert)
SELECT_APP = statement(
    "select_app", f"SELECT {APPS.columns} FROM apps WHERE id = :id AND deleted_at IS NULL"
)
SELECT_APPS = statement(
    "select_apps",
    f"""SELECT {APPS.columns} FROM apps WHERE id > :after AND deleted_at IS NULL
    ORDER BY id LIMIT :limit""",
)
UPDATE_APP = statement(
    "update_app",
    f"""UPDATE apps SET name = COALESCE(:name, name),
    allowed_origins = COALESCE(:allowed_origins, allowed_origins),
    user_per_hour = NULLIF(COALESCE(:user_per_hour, user_per_hour), {OF_INSTALLATION}),
    category_per_hour = NULLIF(COALESCE(:category_per_hour, category_per_hour), {OF_INSTALLATION})
    WHERE id = :id AND deleted_at IS NULL RETURNING {APPS.columns}""",
)
# No bundle id has a space, so that nobody can take the name of the mark.
DELETE_APP = statement(
    "delete_app",
    f"""UPDATE apps SET deleted_at = :now, bundle_id = 'deleted ' || id
    WHERE id = :id AND deleted_at IS NULL RETURNING {APPS.columns}""",
)
# A guard, so that nodes count the live keys of an app one after the other.
HOLD_APP = statement(
    "hold_app",
    "UPDATE apps SET name = name WHERE id = :id AND deleted_at IS NULL RETURNING id",
)
REVOKE_ALL = tuple(
    statement(
        f"revoke_all_{table}",
        f"UPDATE {table} SET revoked_at = :now WHERE app_id = :app_id AND revoked_at IS NULL",
    )
    for table in ("api_keys", "provider_keys", "user_keys")
)
SELECT_DELETED_APPS = statement(
    "select_deleted_apps", "SELECT id FROM apps WHERE deleted_at > 0 ORDER BY deleted_at"
)
SELECT_PROVIDER_KEY = statement(
    "select_provider_key",
    f"SELECT {PROVIDER_KEYS.columns} FROM provider_keys WHERE key_id = :key_id",
)


class KeyStatements(NamedTuple):
    """The statements for the keys of one table; `:name` is that of a key."""

    list: Statement
    # A guard, which counts what the same batch has added, too.
    insert: Statement
    end: Statement
    revoke: Statement
    prune: Statement


_LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"


def _few_live(table: str, limit: int) -> str:
    """Return the condition that the app of a new key has fewer live keys than it may have."""
    live = _LIVE.replace(":now", ":created_at")
    return f"(SELECT COUNT(*) FROM {table} WHERE app_id = :app_id AND {live}) < {limit}"


def _key_statements(table: str, key: str, record: Record[K]) -> KeyStatements:
    return KeyStatements(
        statement(
            f"list_{table}",
            f"""SELECT {record.columns} FROM {table} WHERE app_id = :app_id
            ORDER BY COALESCE(revoked_at, expires_at, {2**62}) DESC, created_at DESC, {key}
            LIMIT {_KEYS_LISTED}""",
        ),
        statement(
            f"insert_{table}",
            f"""INSERT INTO {table} ({record.columns}) SELECT {record.parameters}
            WHERE {_few_live(table, LIVE_KEYS_LIMIT)} RETURNING {key}""",
        ),
        statement(
            f"end_{table}",
            f"""UPDATE {table}
            SET expires_at = CASE WHEN expires_at < :ends_at THEN expires_at ELSE :ends_at END
            WHERE app_id = :app_id AND {key} = :name AND {_LIVE} RETURNING {key}""",
        ),
        statement(
            f"revoke_{table}",
            f"""UPDATE {table} SET revoked_at = COALESCE(revoked_at, :now)
            WHERE app_id = :app_id AND {key} = :name RETURNING {record.columns}""",
        ),
        statement(
            f"prune_{table}",
            f"""DELETE FROM {table} WHERE app_id = :app_id
            AND (revoked_at < :before OR expires_at < :before)""",
        ),
    )


USER_KEY_STATEMENTS = _key_statements("user_keys", "kid", USER_KEYS)
PROVIDER_KEY_STATEMENTS = _key_statements("provider_keys", "key_id", PROVIDER_KEYS)
INSERT_KEY = statement("insert_api_key", API_KEYS.insert)
# A guard, which counts what the same batch has added, too.
ADD_KEY = statement(
    "add_api_key",
    f"""INSERT INTO api_keys ({API_KEYS.columns}) SELECT {API_KEYS.parameters}
    WHERE {_few_live("api_keys", LIVE_API_KEYS_LIMIT)} RETURNING id""",
)
SELECT_KEY = statement("select_api_key", f"SELECT {API_KEYS.columns} FROM api_keys WHERE id = :id")
SELECT_KEYS = statement(
    "select_api_keys_of_app",
    f"""SELECT {API_KEYS.columns} FROM api_keys WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT :limit""",
)
REVOKE_KEY = statement(
    "revoke_api_key",
    f"""UPDATE api_keys SET revoked_at = COALESCE(revoked_at, :now)
    WHERE id = :id AND app_id = :app_id RETURNING {API_KEYS.columns}""",
)
# Of the same app only, and once: a second rotation would leave two new keys.
REPLACE_KEY = statement(
    "replace_api_key",
    """UPDATE api_keys SET replaced_by = :new_id,
    expires_at = CASE WHEN expires_at < :ends_at THEN expires_at ELSE :ends_at END
    WHERE id = :id AND app_id = :app_id AND replaced_by IS NULL AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > :now) RETURNING id""",
)
TOUCH_KEY = statement(
    "touch_api_key",
    """UPDATE api_keys SET last_used_at = :now
    WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :now)""",
)
INSERT_TICKET = statement("insert_ticket", TICKETS.insert)
SELECT_TICKET = statement("select_ticket", "SELECT 1 FROM tickets WHERE hash = :hash")
REDEEM_TICKET = statement(
    "redeem_ticket",
    f"DELETE FROM tickets WHERE hash = :hash AND expires_at > :now RETURNING {TICKETS.columns}",
)
DELETE_TICKETS = statement("delete_tickets", "DELETE FROM tickets WHERE app_id = :app_id")


class Apps:
    """The apps. Of these methods, only `list_deleted` finds deleted apps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self,
        app: App,
        provider_key: ProviderKey,
        user_key: UserKey | None = None,
        api_key: ApiKey | None = None,
        once: IdempotencyClaim | None = None,
    ) -> StoredResponse | None:
        """Add an app with its first keys; `Conflict` if a bundle id or key id exists.

        `once` as in `Keys.create`.
        """
        steps = [
            INSERT_APP.step(**APPS.values(app)),
            PROVIDER_KEY_STATEMENTS.insert.step(**PROVIDER_KEYS.values(provider_key)),
        ]
        if user_key is not None:
            steps.append(USER_KEY_STATEMENTS.insert.step(**USER_KEYS.values(user_key)))
        if api_key is not None:
            steps.append(INSERT_KEY.step(**API_KEYS.values(api_key)))
        with explain_conflict("An app with this bundle id already exists."):
            done = await idempotency.write_once(self._engine, app.id, once, *steps)
        return done if isinstance(done, StoredResponse) else None

    async def get(self, app_id: str) -> App | None:
        """Return the app, or None."""
        return APPS.first(await self._engine.fetch(SELECT_APP, id=app_id))

    async def list(self, after: str = "", limit: int = 1_000) -> tuple[App, ...]:
        """Return the apps, oldest first, at most `limit`, starting after the id `after`."""
        rows = await self._engine.fetch(SELECT_APPS, after=after, limit=limit)
        return tuple(map(APPS.read, rows))

    async def update(
        self,
        app_id: str,
        *,
        name: str | None = None,
        allowed_origins: tuple[str, ...] | None = None,
        user_per_hour: int | None = None,
        category_per_hour: int | None = None,
    ) -> App | None:
        """Change the values that are not None, and return the app; None if it does not exist.

        `OF_INSTALLATION` as a limit removes that of the app.
        """
        origins = None if allowed_origins is None else msgspec.json.encode(allowed_origins).decode()
        update = UPDATE_APP.guard(
            id=app_id,
            name=name,
            allowed_origins=origins,
            user_per_hour=user_per_hour,
            category_per_hour=category_per_hour,
        )
        done = await self._engine.write(Unit(app_id, (update,)))
        return APPS.read(done[0][0]) if done else None

    async def delete(self, app_id: str, now: int) -> App | None:
        """Mark an app as deleted, and end all its keys and tickets; return it, or None.

        Its bundle id is free again at once. Housekeeping removes the rest.
        """
        mark = DELETE_APP.guard(id=app_id, now=now)
        revoke = (each.step(app_id=app_id, now=now) for each in REVOKE_ALL)
        tickets = DELETE_TICKETS.step(app_id=app_id)
        done = await self._engine.write(Unit(app_id, (mark, *revoke, tickets)))
        return APPS.read(done[0][0]) if done else None

    async def remove_mark(self, app_id: str, before: int) -> None:
        """Remove the row of an app that was deleted before a time, when all its other rows are."""
        await self._engine.write(Unit(app_id, (DELETE_MARK.step(id=app_id, before=before),)))

    async def list_deleted(self) -> tuple[str, ...]:
        """Return the ids of the apps that are deleted, as long as something of them may be left."""
        return tuple(app_id for (app_id,) in await self._engine.fetch(SELECT_DELETED_APPS))

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        """Return the provider key of any app, in any state, or None."""
        return PROVIDER_KEYS.first(await self._engine.fetch(SELECT_PROVIDER_KEY, key_id=key_id))


@dataclass(frozen=True, slots=True)
class AppKeys(Generic[K]):
    """The keys of one kind: for user tokens, named by `kid`, or of APNs providers, by `key_id`."""

    engine: Engine
    record: Record[K]
    statements: KeyStatements
    taken: str  # the detail of the `Conflict` if a name is in use

    async def list(self, app_id: str) -> tuple[K, ...]:
        """Return the app's keys, at most 100: live ones first, then those that ended last."""
        rows = await self.engine.fetch(self.statements.list, app_id=app_id)
        return tuple(map(self.record.read, rows))

    async def add(
        self, key: K, now: int, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a key; False if the app has `LIVE_KEYS_LIMIT` live ones, or does not exist.

        `Conflict` if its name is taken: the `kid` in the app, the `key_id` on the whole server.
        `once` as in `Keys.create`.
        """
        return await self._write(key, now, once)

    async def rotate(
        self, name: str, new: K, *, now: int, ends_at: int, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a key in place of the live one with a name, which expires at `ends_at` or before.

        False if the app has no such live key, or too many. `Conflict` and `once` as in `add`.
        """
        end = self.statements.end.guard(app_id=new.app_id, name=name, now=now, ends_at=ends_at)
        return await self._write(new, now, once, end)

    async def revoke(self, app_id: str, name: str, now: int) -> K | None:
        """Revoke a key and return it; None if the app does not have it. Idempotent."""
        step = self.statements.revoke.guard(app_id=app_id, name=name, now=now)
        done = await self.engine.write(Unit(app_id, (step,)))
        return self.record.read(done[0][0]) if done else None

    async def _write(
        self, key: K, now: int, once: IdempotencyClaim | None, *guards: Step
    ) -> StoredResponse | bool:
        steps = (
            HOLD_APP.guard(id=key.app_id),
            *guards,
            self.statements.prune.step(app_id=key.app_id, before=now - _ENDED_KEPT_MS),
            self.statements.insert.guard(**self.record.values(key)),
        )
        with explain_conflict(self.taken):
            done = await idempotency.write_once(self.engine, key.app_id, once, *steps)
        return done if isinstance(done, StoredResponse) else done is not None


def open_user_keys(engine: Engine) -> AppKeys[UserKey]:
    taken = "This app has a user key with this `kid`."
    return AppKeys(engine, USER_KEYS, USER_KEY_STATEMENTS, taken)


def open_provider_keys(engine: Engine) -> AppKeys[ProviderKey]:
    taken = "This `key_id` is in use on this server: choose another."
    return AppKeys(engine, PROVIDER_KEYS, PROVIDER_KEY_STATEMENTS, taken)


class Keys:
    """The API keys of the apps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, key: ApiKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key.

        With `once`: if its idempotency key was used before for the same request and has not
        expired, nothing is added and the first response is returned; for a different request
        `IdempotencyKeyReused`. `Conflict` if a key with this id exists, or the app has
        `LIVE_API_KEYS_LIMIT` live ones. Nodes that add at the same time may exceed that slightly.
        """
        add = ADD_KEY.guard(**API_KEYS.values(key))
        with explain_conflict("An API key with this id already exists."):
            done = await idempotency.write_once(self._engine, key.app_id, once, add)
        if done is None:
            raise Conflict(_TOO_MANY)
        return done if isinstance(done, StoredResponse) else None

    async def rotate(
        self,
        key_id: str,
        new: ApiKey,
        once: IdempotencyClaim | None = None,
        *,
        now: int,
        ends_at: int,
    ) -> StoredResponse | None:
        """Add a key in place of the live one with the id, which expires at `ends_at` or before.

        `Conflict` if the app has no such live key, it was rotated before, or the app has too many
        as in `create`; then nothing changes.
        `once` as in `create`.
        """
        replace = REPLACE_KEY.guard(
            id=key_id, app_id=new.app_id, new_id=new.id, now=now, ends_at=ends_at
        )
        add = ADD_KEY.guard(**API_KEYS.values(new))
        done = await idempotency.write_once(self._engine, new.app_id, once, replace, add)
        if done is None:
            raise Conflict(
                "This API key was revoked, has expired, or was rotated before; or the app has "
                f"{LIVE_API_KEYS_LIMIT:,} live API keys already."
            )
        return done if isinstance(done, StoredResponse) else None

    async def find(self, key_id: str) -> ApiKey | None:
        """Return the key of any app, in any state, or None."""
        return API_KEYS.first(await self._engine.fetch(SELECT_KEY, id=key_id))

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[ApiKey]:
        """Return the app's keys in the order of their ids, starting after the id `after`."""
        rows = await self._engine.fetch(
            SELECT_KEYS, app_id=app_id, after=after or "", limit=limit + 1
        )
        return cut_page([*map(API_KEYS.read, rows)], limit, lambda each: each.id)

    async def revoke(self, app_id: str, key_id: str, now: int) -> ApiKey | None:
        """Revoke a key and return it; None if the app does not have it. Idempotent."""
        step = REVOKE_KEY.guard(id=key_id, app_id=app_id, now=now)
        done = await self._engine.write(Unit(app_id, (step,)))
        return API_KEYS.read(done[0][0]) if done else None

    async def touch(self, key_ids: Collection[str], now: int) -> None:
        """Note that keys were used; a later time that is known stays."""
        rows = [TOUCH_KEY.bind(id=key_id, now=now) for key_id in sorted(key_ids)]
        if rows:
            await self._engine.write(Unit("", (TOUCH_KEY.many(rows),)))


class Tickets:
    """Tickets of users, each for one use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(self, ticket: Ticket) -> None:
        """Store a ticket by its hash."""
        insert = INSERT_TICKET.step(**TICKETS.values(ticket))
        await self._engine.write(Unit(ticket.user_id, (insert,), ticket.app_id))

    async def redeem(self, ticket_hash: bytes, now: int) -> Ticket | None:
        """Use up a ticket and return it; None if it is unknown, used or expired.

        Of several calls at once, on any nodes, one gets the ticket.
        """
        # Anybody may send a ticket: one that is unknown costs a read, not a write.
        if not await self._engine.fetch(SELECT_TICKET, hash=ticket_hash):
            return None
        redeem = REDEEM_TICKET.guard(hash=ticket_hash, now=now)
        done = await self._engine.write(Unit(ticket_hash.hex(), (redeem,)))
        return TICKETS.read(done[0][0]) if done else None


def of_apps(table: str) -> str:
    """Return the source and condition of all rows of a table, app by app.

    The apps come first: of each, the range of its index is read. SQLite keeps to the order of a
    cross join.
    """
    return f"apps CROSS JOIN {table} WHERE {table}.app_id = apps.id"


def of_living_apps(table: str) -> str:
    """Return the same without the rows of deleted apps."""
    return f"{of_apps(table)} AND apps.deleted_at IS NULL"


def is_of_living_app(app_id: str) -> str:
    """Return the condition that an app is not deleted."""
    return f"(SELECT apps.deleted_at FROM apps WHERE apps.id = {app_id}) IS NULL"
