"""Users who are deleted for now, in SQL."""

from __future__ import annotations

from clarion.errors import Conflict, EmailTaken
from clarion.people.model import User
from clarion.people.tables import USERS
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement

_OF_USER = "app_id = :app_id AND id = :id"
DELETE = statement(
    "mark_user_deleted",
    f"""UPDATE users SET deleted_at = :now, updated_at = :now, version = version + 1
    WHERE {_OF_USER} AND deleted_at IS NULL RETURNING {USERS.columns}""",
)
RESTORE = statement(
    "restore_user",
    f"""UPDATE users SET deleted_at = NULL, updated_at = :now, version = version + 1
    WHERE {_OF_USER} AND deleted_at >= :since RETURNING {USERS.columns}""",
)
IS_DELETED = statement(
    "find_deleted_user", f"SELECT id FROM users WHERE {_OF_USER} AND deleted_at IS NOT NULL"
)
LIST = statement(
    "list_deleted_users",
    """SELECT deleted_at, app_id, id FROM users
    WHERE deleted_at >= :since AND deleted_at > 0
    AND (deleted_at, app_id, id) > (:since, :app_id, :id)
    ORDER BY deleted_at, app_id, id LIMIT :limit""",
)


class DeletedUsers:
    """Users who were deleted and can be restored for a while."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def delete(self, app_id: str, user_id: str, now: int) -> User | None:
        """Mark a user deleted; None if there is no such user who lives."""
        step = DELETE.guard(app_id=app_id, id=user_id, now=now)
        done = await self._engine.write(Unit(user_id, (step,), app_id))
        return USERS.read(done[0][0]) if done else None

    async def restore(self, app_id: str, user_id: str, *, since: int, now: int) -> User | None:
        """Restore a user who was deleted at or after `since`; None if there was none.

        `EmailTaken` if another user has taken the address.
        """
        step = RESTORE.guard(app_id=app_id, id=user_id, since=since, now=now)
        try:
            done = await self._engine.write(Unit(user_id, (step,), app_id))
        except Conflict as error:  # nothing else of a user is unique
            raise EmailTaken from error
        return USERS.read(done[0][0]) if done else None

    async def is_deleted(self, app_id: str, user_id: str) -> bool:
        return bool(await self._engine.fetch(IS_DELETED, app_id=app_id, id=user_id))

    async def list_deleted(
        self, after: tuple[int, str, str], limit: int
    ) -> tuple[tuple[int, str, str], ...]:
        """Return deleted users of all apps by the time of deletion, oldest first.

        Each as that time, app and user id; only those after `after`, which is given likewise.
        """
        since, app_id, user_id = after
        rows = await self._engine.fetch(LIST, since=since, app_id=app_id, id=user_id, limit=limit)
        return tuple((time, app, user) for time, app, user in rows)
