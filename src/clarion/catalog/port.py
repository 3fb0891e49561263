"""The ports of the catalog: notification types and templates."""

from __future__ import annotations

from typing import Protocol

from clarion.catalog.model import Channel, NotificationType, Template
from clarion.pages import Page


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
