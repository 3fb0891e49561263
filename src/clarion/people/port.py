"""The port of users: their data, their preferences and the topics they follow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from clarion.pages import Page
from clarion.people.model import User


class Users(Protocol):
    """The users of the apps. A user id is unique within its app.

    A deleted user is found by no method and is in no list.
    """

    async def put(self, user: User) -> tuple[User, bool]:
        """Create or replace a user; return the stored user and whether it is new.

        An existing user keeps `preferences`, `created_at`, `last_seen_at`, and `last_login_at`
        unless it is given. `EmailTaken` if another user of the app has the address, in capitals
        or not; `UserDeleted` if the user was deleted.
        """

    async def get(self, app_id: str, user_id: str) -> User | None:
        """Return the user, whether active or not; None if there is none."""

    async def find_many(self, app_id: str, ids: Collection[str]) -> dict[str, User]:
        """Return those users that exist, by id, in one read."""

    async def patch(self, app_id: str, user_id: str, edit: Callable[[User], User]) -> User | None:
        """Replace a user by the result of `edit` and return it; None if there is no such user.

        No concurrent change is lost: if another writer was faster, `edit` is called again with
        the newer user. `Overloaded` after ten such attempts. App, id, `created_at`,
        `last_seen_at` and `deleted_at` stay. `EmailTaken` as in `put`.
        """

    async def follow(self, app_id: str, user_id: str, topic: str, now: int) -> bool:
        """Make a user follow a topic; False if there is no such user. Idempotent."""

    async def unfollow(self, app_id: str, user_id: str, topic: str) -> bool:
        """Stop following a topic; False if the user did not follow it."""

    async def followed(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the topics that a user follows, sorted by name."""

    async def followers(
        self, app_id: str, topic: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the ids of the active users that follow a topic, sorted.

        A page may have fewer than `limit`, even none, and a cursor: the others are not active.
        """

    async def list_inactive(
        self, after: tuple[int, str, str], limit: int
    ) -> tuple[tuple[int, str, str], ...]:
        """Return inactive users of all apps by the time of their last change, oldest first.

        Each as that time, app and user id; only those after `after`, which is given likewise.
        """

    async def list_ids(self, app_id: str, *, after: str | None, limit: int) -> Page[str]:
        """Return the ids of the active users of an app, sorted."""
