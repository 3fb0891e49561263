"""The ports of people: who they are, what they want and follow, and the words they are told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from clarion.pages import Page
from clarion.people.model import User


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
