"""Accounts of administrators and their set-up links in SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clarion.access.administrators.model import FIRST, Administrator, SetupLink
from clarion.access.administrators.port import ADMINISTRATORS_LIMIT
from clarion.access.administrators.sql.keys import DELETE_KEYS, REVOKE_KEYS
from clarion.access.administrators.sql.second_factors import DELETE_CODES, DELETE_TOTP
from clarion.access.administrators.sql.sessions import DELETE_DEVICES, DELETE_SESSIONS
from clarion.access.model import Role
from clarion.errors import Conflict, Overloaded
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.store.engine import Engine, explain_conflict
from clarion.store.records import Record
from clarion.store.statement import Step, Unit, statement

ADMINISTRATORS = Record(Administrator)
LINKS = Record(SetupLink)
_COLUMNS = f"{ADMINISTRATORS.columns}, version"
_TRIES = 10
_TAKEN = "An administrator with this username already exists."
# Whether a row is an account that can do everything, or another one is.
_IS_SAFE = """(administrators.role IS NULL OR administrators.role <> 'admin'
  OR administrators.disabled_at IS NOT NULL OR administrators.password_hash IS NULL
  OR EXISTS (SELECT 1 FROM administrators AS other WHERE other.id <> administrators.id
    AND other.role = 'admin' AND other.disabled_at IS NULL AND other.password_hash IS NOT NULL))"""

# The second administrator is not the first, on whatever node both are added.
INSERT = statement(
    "insert_administrator",
    f"""INSERT INTO administrators ({_COLUMNS})
    SELECT {ADMINISTRATORS.parameters}, 1
    WHERE (SELECT COUNT(*) FROM administrators) < :limit RETURNING id""",
)
SELECT = statement("select_administrator", f"SELECT {_COLUMNS} FROM administrators WHERE id = :id")
FIND = statement(
    "find_administrator",
    f"""SELECT {ADMINISTRATORS.columns} FROM administrators WHERE username IN (:username, :lower)
    ORDER BY username LIMIT 1""",
)
SELECT_ANY = statement("select_any_administrator", "SELECT id FROM administrators LIMIT 1")
LIST = statement(
    "list_administrators",
    f"""SELECT {ADMINISTRATORS.columns} FROM administrators WHERE id > :after
    ORDER BY id LIMIT :limit""",
)
# Whoever takes an operator away waits for others who do: two must not take away each other.
LOCK_OPERATORS = statement(
    "lock_operators", "UPDATE administrators SET version = version WHERE role = 'admin'"
)
REPLACE = statement(
    "replace_administrator",
    f"""UPDATE administrators SET
    {ADMINISTRATORS.assign("role", "app_roles", "networks", "disabled_at", source=":{}")},
    version = version + 1
    WHERE id = :id AND version = :version AND (:is_operator = 1 OR {_IS_SAFE}) RETURNING id""",
)
DELETE = statement(
    "delete_administrator",
    f"DELETE FROM administrators WHERE id = :id AND {_IS_SAFE} RETURNING id",
)
SET_PASSWORD = statement(
    "set_administrator_password",
    """UPDATE administrators SET password_hash = :password_hash, password_changed_at = :now
    WHERE id = :id AND disabled_at IS NULL RETURNING id""",
)
CLEAR_PASSWORD = statement(
    "clear_administrator_password",
    "UPDATE administrators SET password_hash = NULL WHERE id = :id RETURNING id",
)
REHASH_PASSWORD = statement(
    "rehash_administrator_password",
    """UPDATE administrators SET password_hash = :password_hash
    WHERE id = :id AND password_hash = :before""",
)
PUT_LINK = statement(
    "put_admin_link",
    f"""INSERT INTO admin_links ({LINKS.columns}) VALUES ({LINKS.parameters})
    ON CONFLICT (id) DO UPDATE SET {LINKS.assign_others("id")}""",
)
PUT_FIRST_LINK = statement(
    "put_first_admin_link",
    f"""INSERT INTO admin_links ({LINKS.columns}) SELECT {LINKS.parameters}
    WHERE NOT EXISTS (SELECT 1 FROM administrators)
    ON CONFLICT (id) DO UPDATE SET {LINKS.assign_others("id")} RETURNING id""",
)
SELECT_LINK = statement(
    "select_admin_link", f"SELECT {LINKS.columns} FROM admin_links WHERE id = :id"
)
FIND_LINK = statement(
    "find_admin_link",
    f"""SELECT {LINKS.columns} FROM admin_links
    WHERE token_hash = :token_hash AND expires_at > :now""",
)
USE_FIRST_LINK = statement(
    "use_first_admin_link",
    """UPDATE admin_links SET expires_at = 0 WHERE id = '' AND token_hash = :token_hash
    AND expires_at > :now AND NOT EXISTS (SELECT 1 FROM administrators) RETURNING id""",
)
USE_LINK = statement(
    "use_admin_link",
    """DELETE FROM admin_links WHERE id = :id AND token_hash = :token_hash AND expires_at > :now
    RETURNING id""",
)
DELETE_LINK = statement("delete_admin_link", "DELETE FROM admin_links WHERE id = :id")


def _end_sign_ins(administrator_id: str) -> tuple[Step, ...]:
    return (
        DELETE_SESSIONS.step(administrator_id=administrator_id, kept=""),
        DELETE_DEVICES.step(administrator_id=administrator_id),
    )


class SqlAdministrators:
    """The `Administrators` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, administrator: Administrator, link: SetupLink, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        steps = (_insert(administrator), PUT_LINK.step(**LINKS.values(link)))
        with explain_conflict(_TAKEN):
            done = await idempotency.write_once(self._engine, administrator.id, once, *steps)
        if done is None:
            raise Conflict(f"There are {ADMINISTRATORS_LIMIT:,} administrators already.")
        return done if isinstance(done, StoredResponse) else None

    async def exist(self) -> bool:
        return bool(await self._engine.fetch(SELECT_ANY))

    async def get(self, administrator_id: str) -> Administrator | None:
        rows = await self._engine.fetch(SELECT, id=administrator_id)
        return ADMINISTRATORS.read(rows[0]) if rows else None

    async def find(self, username: str) -> Administrator | None:
        rows = await self._engine.fetch(FIND, username=username, lower=username.lower())
        return ADMINISTRATORS.read(rows[0]) if rows else None

    async def list(self, *, after: str | None, limit: int) -> Page[Administrator]:
        rows = await self._engine.fetch(LIST, after=after or "", limit=limit + 1)
        items = tuple(map(ADMINISTRATORS.read, rows[:limit]))
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def edit(
        self, administrator_id: str, edit: Callable[[Administrator], Administrator]
    ) -> Administrator | None:
        for _ in range(_TRIES):
            rows = await self._engine.fetch(SELECT, id=administrator_id)
            if not rows:
                return None
            before, version = ADMINISTRATORS.read(rows[0]), rows[0][-1]
            after = replace(edit(before), id=before.id, username=before.username)
            if await self._replace(after, version):
                return after
            again = await self._engine.fetch(SELECT, id=administrator_id)
            if again and again[0][-1] == version:
                raise _last_one()
        raise Overloaded("Too many concurrent changes of this account; nothing was stored.")

    async def _replace(self, after: Administrator, version: int) -> bool:
        values = ADMINISTRATORS.values(after)
        changed = {name: values[name] for name in ("role", "app_roles", "networks", "disabled_at")}
        is_operator = after.role is Role.ADMIN and after.is_active
        guard = REPLACE.guard(id=after.id, version=version, is_operator=int(is_operator), **changed)
        steps = [LOCK_OPERATORS.step(), guard, *_end_sign_ins(after.id)]
        if after.disabled_at is not None:
            steps.append(REVOKE_KEYS.step(administrator_id=after.id, now=after.disabled_at))
        return await self._engine.write(Unit(after.id, tuple(steps))) is not None

    async def delete(self, administrator_id: str) -> bool:
        steps = (
            LOCK_OPERATORS.step(),
            DELETE.guard(id=administrator_id),
            *_end_sign_ins(administrator_id),
            DELETE_KEYS.step(administrator_id=administrator_id),
            DELETE_TOTP.step(administrator_id=administrator_id),
            DELETE_CODES.step(administrator_id=administrator_id),
            DELETE_LINK.step(id=administrator_id),
        )
        if await self._engine.write(Unit(administrator_id, steps)):
            return True
        if await self.get(administrator_id):
            raise _last_one()
        return False

    async def set_password(
        self, administrator_id: str, password_hash: str, now: int, *, keep_session: str | None
    ) -> bool:
        steps = (
            SET_PASSWORD.guard(id=administrator_id, password_hash=password_hash, now=now),
            DELETE_SESSIONS.step(administrator_id=administrator_id, kept=keep_session or ""),
            DELETE_DEVICES.step(administrator_id=administrator_id),
        )
        return await self._engine.write(Unit(administrator_id, steps)) is not None

    async def rehash_password(self, administrator_id: str, before: str, after: str) -> None:
        step = REHASH_PASSWORD.step(id=administrator_id, before=before, password_hash=after)
        await self._engine.write(Unit(administrator_id, (step,), is_aside=True))


class SqlSetupLinks:
    """The `SetupLinks` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put_first(self, link: SetupLink) -> bool:
        guard = PUT_FIRST_LINK.guard(**LINKS.values(replace(link, id=FIRST)))
        return await self._engine.write(Unit(FIRST, (guard,))) is not None

    async def is_first_stored(self) -> bool:
        return bool(await self._engine.fetch(SELECT_LINK, id=FIRST))

    async def reset(self, link: SetupLink, now: int, *, clears_totp: bool) -> bool:
        steps = [
            CLEAR_PASSWORD.guard(id=link.id),
            PUT_LINK.step(**LINKS.values(link)),
            *_end_sign_ins(link.id),
            REVOKE_KEYS.step(administrator_id=link.id, now=now),
        ]
        if clears_totp:
            steps.append(DELETE_TOTP.step(administrator_id=link.id))
            steps.append(DELETE_CODES.step(administrator_id=link.id))
        return await self._engine.write(Unit(link.id, tuple(steps))) is not None

    async def find(self, token_hash: bytes, now: int) -> SetupLink | None:
        rows = await self._engine.fetch(FIND_LINK, token_hash=token_hash, now=now)
        return LINKS.read(rows[0]) if rows else None

    async def use_first(self, token_hash: bytes, administrator: Administrator, now: int) -> bool:
        steps = (USE_FIRST_LINK.guard(token_hash=token_hash, now=now), _insert(administrator))
        with explain_conflict(_TAKEN):
            return await self._engine.write(Unit(FIRST, steps)) is not None

    async def use(self, link: SetupLink, password_hash: str, now: int) -> bool:
        steps = (
            USE_LINK.guard(id=link.id, token_hash=link.token_hash, now=now),
            SET_PASSWORD.guard(id=link.id, password_hash=password_hash, now=now),
            *_end_sign_ins(link.id),
        )
        return await self._engine.write(Unit(link.id, steps)) is not None


def _insert(administrator: Administrator) -> Step:
    return INSERT.guard(**ADMINISTRATORS.values(administrator), limit=ADMINISTRATORS_LIMIT)


def _last_one() -> Conflict:
    return Conflict(
        "This is the last active administrator with the role admin for all apps. Give another one "
        "this role first."
    )
