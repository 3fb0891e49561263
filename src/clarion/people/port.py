"""The ports of users (their data, preferences and the topics they follow) and of segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from clarion.errors import RequestError
from clarion.pages import Page
from clarion.people.model import Segment, StoredUser, User, UserFilter

# Takes the user as stored, or None if there is none, and returns the user to store.
Edit = Callable[[User | None], User]


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

    async def edit_many(
        self, app_id: str, edits: Mapping[str, Edit]
    ) -> dict[str, StoredUser | RequestError]:
        """Create or change many users of an app, and return the outcome for each, by id.

        Each edit gets the user, or None if there is none, and returns the user to store. An edit
        that raises a `RequestError`, an address that another user has (`EmailTaken`) and a deleted
        user (`UserDeleted`) are outcomes: the others are stored nevertheless, in few commits. No
        concurrent change is lost, as in `patch`. `ServiceError` if it is not known which users
        were stored; the same edits can be repeated.
        """

    async def list(
        self, app_id: str, chosen: UserFilter, *, after: str | None, limit: int
    ) -> Page[User]:
        """Return the users for whom a filter holds.

        Sorted by creation or last activity if the filter has such a range, otherwise by id. A page
        with several conditions may have fewer than `limit`, even none, and a cursor: it reads a
        bounded part of the users for whom the first of them holds.
        """

    async def touch(self, seen: Collection[tuple[str, str]], now: int) -> None:
        """Set when users, given as app and id, were last seen; no more than once a minute each."""

    async def follow(self, app_id: str, user_id: str, topic: str, now: int) -> bool:
        """Make a user follow a topic; False if there is no such user. Idempotent.

        Creates the topic, closed, if it does not exist. `Conflict` if the user follows 1,000 other
        topics.
        """

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


class Segments(Protocol):
    """The segments of the apps. A name is unique within its app.

    A filter is given as text; `FilterError` if it is not valid. A segment has no users who are
    inactive or deleted.
    """

    async def put(self, segment: Segment) -> tuple[Segment, bool] | None:
        """Create or replace a segment; return the stored one and whether it is new.

        It keeps its `created_at`. None, with nothing stored, if the app has too many.
        """

    async def get(self, app_id: str, name: str) -> Segment | None: ...

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[Segment]:
        """Return the segments of an app, sorted by name."""

    async def delete(self, app_id: str, name: str) -> bool:
        """Delete a segment; False if there is none. Events that were accepted keep its filter."""

    async def count(self, app_id: str, filter_text: str) -> int:
        """Return how many users a filter selects.

        The effort depends on how many users fulfil its rarest condition, not on all that there
        are. `ReadTooSlow` if even that takes too long.
        """

    async def has_user(self, app_id: str, filter_text: str, user_id: str) -> bool:
        """Return whether a filter selects a user."""

    async def list_users(
        self, app_id: str, filter_text: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the ids of the users that a filter selects, sorted.

        A page may have fewer than `limit`, even none, and a cursor: each costs a bounded effort.
        """
