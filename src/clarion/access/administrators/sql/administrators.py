"""Accounts of administrators and their set-up links in SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clarion.access.administrators.model import (
    ADMINISTRATORS_LIMIT,
    FIRST,
    Administrator,
    SetupLink,
)
from clarion.access.administrators.sql.keys import DELETE_KEYS, REVOKE_KEYS
from clarion.access.administrators.sql.second_factors import delete_factors
from clarion.access.administrators.sql.sessions import end_sign_ins
from clarion.access.model import Role
from clarion.access.tables import ADMIN_LINKS, ADMINISTRATORS
from clarion.errors import Conflict, Overloaded
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page, cut_page
from clarion.store.engine import Engine, explain_conflict
from clarion.store.statement import Step, Unit, statement

_COLUMNS = f"{ADMINISTRATORS.columns}, version"
_TRIES = 10
_TAKEN = "An administrator with this username already exists."
# Whether a row is an account that can do everything, or another one is.
_IS_SAFE = """(administrators.role IS NULL OR administrators.role <> 'admin'
  OR administrators.disabled_at IS NOT NULL OR administrators.password_hash IS NULL
  OR EXISTS (SELECT 1 FROM administrators AS other WHERE other.id <> administrators.id
    AND other.role = 'admin' AND other.disabled_at IS NULL AND other.password_hash IS NOT NULL))"""

# A guard, which also counts those that other nodes have added.
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
# Changes that remove an operator wait for each other: two operators must not remove each other.
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
    f"""{ADMIN_LINKS.insert}
    ON CONFLICT (id) DO UPDATE SET {ADMIN_LINKS.assign_others("id")}""",
)
PUT_FIRST_LINK = statement(
    "put_first_admin_link",
    f"""INSERT INTO admin_links ({ADMIN_LINKS.columns}) SELECT {ADMIN_LINKS.parameters}
    WHERE NOT EXISTS (SELECT 1 FROM administrators)
    ON CONFLICT (id) DO UPDATE SET {ADMIN_LINKS.assign_others("id")} RETURNING id""",
)
SELECT_LINK = statement(
    "select_admin_link", f"SELECT {ADMIN_LINKS.columns} FROM admin_links WHERE id = :id"
)
FIND_LINK = statement(
    "find_admin_link",
    f"""SELECT {ADMIN_LINKS.columns} FROM admin_links
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


class Administrators:
    """The accounts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, administrator: Administrator, link: SetupLink, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add an administrator with a set-up link.

        With `once`, a repeated request gets the first response, as in `Keys.create`. `Conflict` if
        the username exists, or there are 1,000 administrators.
        """
        steps = (_insert(administrator), PUT_LINK.step(**ADMIN_LINKS.values(link)))
        with explain_conflict(_TAKEN):
            done = await idempotency.write_once(self._engine, administrator.id, once, *steps)
        if done is None:
            raise Conflict(f"There are {ADMINISTRATORS_LIMIT:,} administrators already.")
        return done if isinstance(done, StoredResponse) else None

    async def exist(self) -> bool:
        """Return whether there is any administrator."""
        return bool(await self._engine.fetch(SELECT_ANY))

    async def get(self, administrator_id: str) -> Administrator | None:
        """Return the administrator, or None."""
        return ADMINISTRATORS.first(await self._engine.fetch(SELECT, id=administrator_id))

    async def find(self, username: str) -> Administrator | None:
        """Return the administrator with this username, or with it in lower case; or None."""
        rows = await self._engine.fetch(FIND, username=username, lower=username.lower())
        return ADMINISTRATORS.first(rows)

    async def list(self, *, after: str | None, limit: int) -> Page[Administrator]:
        """Return administrators in the order of their ids, starting after the id `after`."""
        rows = await self._engine.fetch(LIST, after=after or "", limit=limit + 1)
        return cut_page([*map(ADMINISTRATORS.read, rows)], limit, lambda each: each.id)

    async def edit(
        self, administrator_id: str, edit: Callable[[Administrator], Administrator]
    ) -> Administrator | None:
        """Change roles, networks or whether the account is disabled; None if it does not exist.

        All its sessions and trusted devices end, in the same commit; if it is disabled, its keys
        are revoked. `Conflict` if no active administrator with the role admin for all apps would
        be left; then nothing changes.
        """
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
        steps = [LOCK_OPERATORS.step(), guard, *end_sign_ins(after.id)]
        if after.disabled_at is not None:
            steps.append(REVOKE_KEYS.step(administrator_id=after.id, now=after.disabled_at))
        return await self._engine.write(Unit(after.id, tuple(steps))) is not None

    async def delete(self, administrator_id: str) -> bool:
        """Delete the account and all that belongs to it; return whether it existed.

        `Conflict` as in `edit`.
        """
        steps = (
            LOCK_OPERATORS.step(),
            DELETE.guard(id=administrator_id),
            *end_sign_ins(administrator_id),
            DELETE_KEYS.step(administrator_id=administrator_id),
            *delete_factors(administrator_id),
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
        """Store a new password, end all other sessions and trusted devices, in one commit.

        Return whether the administrator exists.
        """
        steps = (
            SET_PASSWORD.guard(id=administrator_id, password_hash=password_hash, now=now),
            *end_sign_ins(administrator_id, kept=keep_session or ""),
        )
        return await self._engine.write(Unit(administrator_id, steps)) is not None

    async def rehash_password(self, administrator_id: str, before: str, after: str) -> None:
        """Replace the hash of the same password, unless it has changed since it was read."""
        step = REHASH_PASSWORD.step(id=administrator_id, before=before, password_hash=after)
        await self._engine.write(Unit(administrator_id, (step,), is_aside=True))


class SetupLinks:
    """Single-use links with which administrators set their first password."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put_first(self, link: SetupLink) -> bool:
        """Store the link for the first administrator, instead of an earlier one.

        Return False if there is an administrator: then nothing is stored.
        """
        guard = PUT_FIRST_LINK.guard(**ADMIN_LINKS.values(replace(link, id=FIRST)))
        return await self._engine.write(Unit(FIRST, (guard,))) is not None

    async def is_first_stored(self) -> bool:
        """Return whether a link for the first administrator was ever stored, used or not."""
        return bool(await self._engine.fetch(SELECT_LINK, id=FIRST))

    async def reset(self, link: SetupLink, now: int, *, clears_totp: bool) -> bool:
        """Store a link for an administrator, which replaces an earlier one, and reset the account.

        In one commit the password is removed, all sessions and trusted devices end and keys are
        revoked; with `clears_totp` the second factor is removed, too. Return whether the
        administrator exists.
        """
        steps = [
            CLEAR_PASSWORD.guard(id=link.id),
            PUT_LINK.step(**ADMIN_LINKS.values(link)),
            *end_sign_ins(link.id),
            REVOKE_KEYS.step(administrator_id=link.id, now=now),
        ]
        if clears_totp:
            steps += delete_factors(link.id)
        return await self._engine.write(Unit(link.id, tuple(steps))) is not None

    async def find(self, token_hash: bytes, now: int) -> SetupLink | None:
        """Return the link if it can be used, or None."""
        rows = await self._engine.fetch(FIND_LINK, token_hash=token_hash, now=now)
        return ADMIN_LINKS.first(rows)

    async def use_first(self, token_hash: bytes, administrator: Administrator, now: int) -> bool:
        """Use the link for the first administrator and add it; once, on any node.

        Return False if the link cannot be used, or there is an administrator already.
        """
        steps = (USE_FIRST_LINK.guard(token_hash=token_hash, now=now), _insert(administrator))
        with explain_conflict(_TAKEN):
            return await self._engine.write(Unit(FIRST, steps)) is not None

    async def use(self, link: SetupLink, password_hash: str, now: int) -> bool:
        """Use a link and store the password; once, on any node."""
        steps = (
            USE_LINK.guard(id=link.id, token_hash=link.token_hash, now=now),
            SET_PASSWORD.guard(id=link.id, password_hash=password_hash, now=now),
            *end_sign_ins(link.id),
        )
        return await self._engine.write(Unit(link.id, steps)) is not None


def _insert(administrator: Administrator) -> Step:
    return INSERT.guard(**ADMINISTRATORS.values(administrator), limit=ADMINISTRATORS_LIMIT)


def _last_one() -> Conflict:
    return Conflict(
        "This is the last active administrator with the role admin for all apps. Give another one "
        "this role first."
    )
