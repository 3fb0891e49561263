"""The ports of the catalog: notification types and templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from clarion.catalog.model import (
    CategoryDefinition,
    Channel,
    NotificationType,
    RenderedText,
    Template,
)
from clarion.catalog.sandbox.jobs import Answer, Job
from clarion.errors import FieldFault
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


class CatalogEntry(Protocol):
    """A notification type with its schema and templates."""

    @property
    def type(self) -> NotificationType:
        """The definition of the type."""

    @property
    def channels(self) -> frozenset[Channel]:
        """The channels for which there is a template."""

    def find_quick(self, channel: Channel) -> CatalogEntry | None:
        """Return the entry as one that never waits for the sandbox; None if a template needs it.

        It raises `Overloaded` for values that would need it.
        """

    async def find_faults(
        self, data: Mapping[str, object], channels: Collection[Channel]
    ) -> tuple[FieldFault, ...]:
        """Return how data violates the schema, and which required variables are missing.

        Like `render` and `check_context` it may need the sandbox, and fail as that does.
        """

    async def render(
        self, channel: Channel, language: str, context: Mapping[str, object]
    ) -> RenderedText:
        """Render the template for a channel in the nearest language: `pt-BR`, `pt`, `en`, any.

        `NotFound` if the channel has no template, `InvalidFields` if it cannot be rendered.
        """

    async def check_context(
        self, channels: Collection[Channel], context: Mapping[str, object], missing: Collection[str]
    ) -> None:
        """Raise `InvalidFields` if a template of these channels shows one of the missing names."""

    def with_type(self, definition: NotificationType) -> CatalogEntry:
        """Return the entry with another definition of its type."""


class Catalog(Protocol):
    """The notification types of the apps, built-in ones included."""

    async def find(self, app_id: str, type_name: str) -> CatalogEntry | None:
        """Return an entry, or None if the app has no such type. May be ten seconds old."""

    async def list_types(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return all types of an app, built-in ones included, sorted by name."""

    async def list_categories(self, app_id: str) -> tuple[CategoryDefinition, ...]:
        """Return the built-in categories, and then the app's own, sorted by name."""
