"""The ports of deletion: users who are deleted for now, and users who are erased for good."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Protocol

from clarion.pages import Page
from clarion.people.erasure.model import Erasure, ErasureCause
from clarion.people.model import User


class DeletedUsers(Protocol):
    """Users who were deleted and can be restored for a while."""

    async def delete(self, app_id: str, user_id: str, now: int) -> User | None:
        """Mark a user deleted; None if there is no such user who lives."""

    async def restore(self, app_id: str, user_id: str, *, since: int, now: int) -> User | None:
        """Restore a user who was deleted at or after `since`; None if there is none.

        `EmailTaken` if another user has the address by now.
        """

    async def is_deleted(self, app_id: str, user_id: str) -> bool: ...

    async def list_deleted(
        self, after: tuple[int, str, str], limit: int
    ) -> tuple[tuple[int, str, str], ...]:
        """Return deleted users of all apps by the time of deletion, oldest first.

        Each as that time, app and user id; only those after `after`, which is given likewise.
        """


class Erasures(Protocol):
    """Removes everything about a user, in chunks, and keeps a tombstone."""

    async def begin(
        self, app_id: str, user_id: str, cause: ErasureCause, *, now: int, until: int
    ) -> Erasure | None:
        """Store a tombstone, delete the user's record, and return the erasure, to be run.

        The caller works on it until a time; then any node may. If the user is being erased already,
        that erasure is returned; if nothing is known of the user, the receipt of the last one, or
        None if they were never erased.
        """

    async def run(self, erasure: Erasure) -> Erasure | None:
        """Remove everything, and return the erasure with its counts; None if it must not go on.

        It must not if another node has finished it, or if it is settling and the user was created
        again. It can be interrupted at any time and run again.
        """

    async def settle(self, erasure: Erasure, *, now: int, due_at: int) -> Erasure:
        """Record that everything is removed; what comes late is looked for at `due_at`."""

    async def finish(self, erasure: Erasure) -> None:
        """Remove what an erasure needed to find the user; the tombstone and the receipt stay."""

    async def claim_due(self, now: int, until: int, latest: int, limit: int) -> tuple[Erasure, ...]:
        """Claim erasures that nobody works on, until a time.

        None is planned for after `latest`: if one seems to be, the clock was set back since.
        """

    async def release(self, erasure: Erasure, now: int) -> None:
        """Let any node go on with an erasure at once."""

    async def list_open(self, limit: int) -> tuple[tuple[str, str, str], ...]:
        """Return the erasures that are not done: each as its id, app and user id."""

    async def is_erased(self, app_id: str, user_id: str) -> bool:
        """Return whether there is a tombstone of this user, and no user was created since."""

    async def find_running(self, app_id: str, user_ids: Collection[str]) -> frozenset[str]:
        """Return those of the users who are being erased at this moment."""

    async def get(self, app_id: str, erasure_id: str) -> Erasure | None: ...

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[Erasure]:
        """Return the erasures of an app, newest first."""


class Exports(Protocol):
    """Reads everything about a user."""

    async def exists(self, app_id: str, user_id: str) -> bool:
        """Return whether anything is stored about a user, deleted or not."""

    def read(self, app_id: str, user_id: str) -> AsyncIterator[tuple[str, bytes | None]]:
        """Yield everything, a part at a time: the name of a section, and an object as JSON.

        The objects of one section come one after the other. A section that is a list begins with
        None, so that an empty one is known, too.
        """
