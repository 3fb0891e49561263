"""The ports of people: who they are, what they want and follow, and the words they are told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from clarion.model import Channel, NotificationType, Page, Template, User


class Users(Protocol):
    """The people of the apps, with their preferences and what they follow."""

    async def put(self, user: User) -> tuple[User, bool]:
        """Add a person, or replace what is known of one; return them and whether they are new.

        A person who is there keeps their preferences and their time of creation.
        """
        ...

    async def get(self, app_id: str, user_id: str) -> User | None:
        """Return the person whatever their status, or None."""
        ...

    async def find_many(self, app_id: str, ids: Collection[str]) -> dict[str, User]:
        """Return those of the people who are there, by id, in one read."""
        ...

    async def patch(self, app_id: str, user_id: str, edit: Callable[[User], User]) -> User | None:
        """Replace a person by what `edit` makes of them; None if there is no such person.

        Nothing that others change meanwhile is lost: then `edit` is asked again, with the person
        as they are by then. `Overloaded` if others are faster ten times in a row. Id and time of
        creation stay.
        """
        ...

    async def follow(self, app_id: str, user_id: str, topic: str, now: int) -> bool:
        """Let a person follow a topic; False if there is no such person. Again changes nothing."""
        ...

    async def unfollow(self, app_id: str, user_id: str, topic: str) -> bool:
        """End that; False if the person did not follow the topic."""
        ...

    async def followed(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the topics that a person follows, in the order of their names."""
        ...

    async def followers(
        self, app_id: str, topic: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the ids of the active people who follow a topic, in order."""
        ...

    async def list_ids(self, app_id: str, *, after: str | None, limit: int) -> Page[str]:
        """Return the ids of the active people of an app, in order."""
        ...


class Types(Protocol):
    """The notification types of the apps: their own, and what they changed of ready-made ones."""

    async def put(self, app_id: str, definition: NotificationType, now: int) -> None:
        """Add a type, or replace it."""
        ...

    async def get(self, app_id: str, type_name: str) -> NotificationType | None:
        """Return the type as the app has defined it, or None."""
        ...

    async def list(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return what the app has defined, in the order of the names, at most 1,000."""
        ...

    async def delete(self, app_id: str, type_name: str) -> bool:
        """Remove what the app has said of a type, its templates too; False if it said nothing."""
        ...


class Templates(Protocol):
    """The words of the types. What was written stays: a change is a new version."""

    async def put(self, app_id: str, template: Template) -> Template:
        """Add a template and return it with its version: one more than the newest, or 1.

        `Conflict` if another node adds one at the same moment.
        """
        ...

    async def get(
        self, app_id: str, type_name: str, channel: Channel, language: str
    ) -> Template | None:
        """Return the newest version, or None."""
        ...

    async def list(self, app_id: str, type_name: str) -> tuple[Template, ...]:
        """Return the newest version for each channel and language, at most 1,000."""
        ...

    async def versions(
        self,
        app_id: str,
        type_name: str,
        channel: Channel,
        language: str,
        *,
        after: str | None,
        limit: int,
    ) -> Page[Template]:
        """Return the versions, newest first. `InvalidFields` if `after` is not a `next`."""
        ...
