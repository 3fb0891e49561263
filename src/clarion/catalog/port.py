"""The ports of the catalog: notification types and templates; other slices use `Catalog` alone."""

from __future__ import annotations

from typing import Protocol

from clarion.catalog.catalog import Catalog as Catalog
from clarion.catalog.entry import CatalogEntry as CatalogEntry
from clarion.catalog.model import CategoryDefinition, Channel, NotificationType, Template
from clarion.catalog.sandbox.jobs import Answer, Job
from clarion.pages import Page


class Types(Protocol):
    """The notification types that apps have defined, including changed built-in ones."""

    async def put(self, app_id: str, definition: NotificationType, now: int) -> bool:
        """Create or replace a type; False if there is no such category."""

    async def get(self, app_id: str, type_name: str) -> NotificationType | None:
        """Return the app's definition of a type, or None."""

    async def list(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return the app's definitions sorted by name, at most 1,000."""

    async def measure(self, app_id: str, without: str) -> tuple[int, int]:
        """Return how many definitions the app has beside that of a type, and their bytes."""

    async def delete(self, app_id: str, type_name: str) -> bool:
        """Delete the app's definition of a type and its templates; False if there were none."""


class Categories(Protocol):
    """The categories that apps have beside the built-in ones."""

    async def put(
        self, app_id: str, category: CategoryDefinition
    ) -> tuple[CategoryDefinition, bool] | None:
        """Create or replace a category; return it as stored, and whether it is new.

        None if the app has 50 others.
        """

    async def get(self, app_id: str, name: str) -> CategoryDefinition | None:
        """Return a category of the app's own, or None."""

    async def list(self, app_id: str) -> tuple[CategoryDefinition, ...]:
        """Return the app's own categories sorted by name, at most 50."""

    async def delete(self, app_id: str, name: str) -> bool:
        """Delete a category; False if there is none. `Conflict` if a type uses it."""


class Templates(Protocol):
    """The templates that apps have written. A version never changes."""

    async def put(self, app_id: str, template: Template) -> Template:
        """Add a template and return it with its version: one more than the newest, or 1.

        Only the newest 50 versions are kept. `Conflict` if another node adds one at the same
        moment.
        """

    async def count(self, app_id: str) -> int:
        """Return how many versions of templates the app has, at most 20,000."""

    async def list(self, app_id: str, type_name: str) -> tuple[Template, ...]:
        """Return the newest version for each channel and language, at most 1,000."""

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


class Sandbox(Protocol):
    """Runs what apps wrote where it can harm nobody: schemas and templates."""

    async def run(self, app_id: str, job: Job) -> Answer:
        """Do a job for an app, in turn with other apps. One that exceeds its limits has a fault.

        `TooManyRequests` if the app has used its processor time, or too much of it waits;
        `Overloaded` if there is no process for it.
        """
