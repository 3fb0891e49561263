"""Finds the users who were deleted or erased, on any node."""

from __future__ import annotations

from clarion.people.erasure.sql.deleted_users import DeletedUsers
from clarion.people.erasure.sql.erasures import Erasures

_PAGE = 500


class GoneUsers:
    """Knows who is deleted or erased, and which erasures are new to this node."""

    def __init__(self, deleted: DeletedUsers, erasures: Erasures) -> None:
        self._deleted = deleted
        self._erasures = erasures
        # The ids of erasures that were open when this was last asked.
        self._known: frozenset[str] = frozenset()

    async def is_gone(self, app_id: str, user_id: str) -> bool:
        """Return whether a user was deleted or erased, and was not created again."""
        return await self._deleted.is_deleted(app_id, user_id) or await self._erasures.is_erased(
            app_id, user_id
        )

    async def list_deleted(self, since: int) -> list[tuple[str, str]]:
        """Return the users of all apps who were deleted since a time, as app and user id."""
        after, users = (since, "", ""), list[tuple[str, str]]()
        while found := await self._deleted.list_deleted(after, _PAGE):
            users += ((app_id, user_id) for _, app_id, user_id in found)
            after = found[-1]
        return users

    async def list_erased(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return the users who are being erased: those since this was last asked, and all."""
        found = await self._erasures.list_open(_PAGE)
        known, self._known = self._known, frozenset(erasure_id for erasure_id, _, _ in found)
        new = [(app_id, user_id) for each, app_id, user_id in found if each not in known]
        return new, [(app_id, user_id) for _, app_id, user_id in found]
