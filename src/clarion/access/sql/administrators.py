"""Administrators in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.access.model import Administrator, Role
from clarion.store.statement import Unit, statement

if TYPE_CHECKING:
    from clarion.store.engine import Engine

INSERT_ADMINISTRATOR = statement(
    "insert_administrator",
    """INSERT INTO administrators (id, username, password_hash, role, created_at)
    VALUES (:id, :username, :password_hash, :role, :created_at)""",
)
SELECT_ADMINISTRATOR = statement(
    "select_administrator",
    """SELECT id, username, password_hash, role, created_at FROM administrators
    WHERE username = :username""",
)


class SqlAdministrators:
    """The `Administrators` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, administrator: Administrator) -> None:
        """Add an administrator."""
        insert = INSERT_ADMINISTRATOR.step(
            id=administrator.id,
            username=administrator.username,
            password_hash=administrator.password_hash,
            role=administrator.role.value,
            created_at=administrator.created_at,
        )
        await self._engine.write(Unit(administrator.id, (insert,)))

    async def find(self, username: str) -> Administrator | None:
        """Return the administrator of that name, or None."""
        rows = await self._engine.fetch(SELECT_ADMINISTRATOR, username=username)
        return _administrator(*rows[0]) if rows else None


def _administrator(
    administrator_id: str, username: str, password_hash: str, role: str, created_at: int
) -> Administrator:
    return Administrator(
        id=administrator_id,
        username=username,
        password_hash=password_hash,
        role=Role(role),
        created_at=created_at,
    )
