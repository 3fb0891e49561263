"""The catalog of an app, cached: every event needs the entry of its type."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from clarion.catalog import built_in
from clarion.catalog.entry import CatalogEntry, build_entry
from clarion.catalog.model import CategoryDefinition, NotificationType
from clarion.clock import Clock
from clarion.fields import did_you_mean
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from clarion.telemetry.tallies import Tally

if TYPE_CHECKING:
    from clarion.catalog.port import Sandbox
    from clarion.catalog.sql import Categories, Templates, Types

# How old a cached entry may be. On the node that changes a type the change is effective at once, on
# others when the bus brings it.
CACHED_MS = 10_000
# Names that an app has not, for which one that it has was looked for.
_SUGGESTIONS_LIMIT = 1_000
# Of all entries in the cache: the characters of their templates, and what each takes besides.
_CACHE_LIMIT = 1 << 25
_ENTRY_SIZE = 3_000
_LOCKS = 64


class Catalog:
    """The notification types of the apps, built-in ones included."""

    def __init__(
        self,
        types: Types,
        categories: Categories,
        templates: Templates,
        clock: Clock,
        sandbox: Sandbox,
    ) -> None:
        self._types = types
        self._categories = categories
        self._templates = templates
        self._clock = clock
        self._sandbox = sandbox
        # By app and type; that an app has no such type is cached, too.
        self._cache = NodeCache[tuple[str, str], CatalogEntry | None](
            CACHED_MS, _CACHE_LIMIT, size_of=_measure
        )
        self._suggestions = NodeCache[tuple[str, str], str](CACHED_MS, _SUGGESTIONS_LIMIT)
        # Remove an entry from the cache of every node after a change of a type or template; and the
        # entries of an app after a change of a category.
        self.forget = Invalidation("catalog.type", self._forget, self._cache.forget_all)
        self.forget_app = Invalidation("catalog.category", self.drop_app, self._cache.forget_all)
        self.render_times = Tally()
        self._locks = [asyncio.Lock() for _ in range(_LOCKS)]

    async def find(self, app_id: str, type_name: str) -> CatalogEntry | None:
        """Return an entry, or None if the app has no such type. May be ten seconds old."""
        key = (app_id, type_name)
        if cached := self._cache.get(key, self._clock.monotonic()):
            return cached[1]
        # When an entry expires, one of the concurrent callers reads it for all of them.
        async with self._locks[hash(key) % _LOCKS]:
            now = self._clock.monotonic()
            return await self._cache.find(key, now, lambda key: self.read(*key))

    async def explain_missing(self, app_id: str, type_name: str) -> str:
        """Return that there is no such type, and which similar name there is."""
        key, now = (app_id, type_name), self._clock.monotonic()
        suggestion = await self._suggestions.find(key, now, self._suggest)
        return f"there is no type {type_name}{suggestion}"

    async def _suggest(self, key: tuple[str, str]) -> str:
        app_id, type_name = key
        return did_you_mean(type_name, {*built_in.TYPES, *await self._types.list_names(app_id)})

    def _forget(self, app_id: str, type_name: str) -> None:
        self._cache.forget((app_id, type_name))

    def drop_app(self, app_id: str) -> None:
        """Remove the entries of an app from the cache of this node."""
        self._cache.forget_where(lambda key, _: key[0] == app_id)

    async def list_types(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return all types of an app, built-in ones included, sorted by name."""
        own = {each.type: each for each in await self._types.list(app_id)}
        types = {**built_in.TYPES, **own}
        categories: dict[str, CategoryDefinition] = {}
        if any(_has_own_category(each) for each in own.values()):
            categories = {each.name: each for each in await self._categories.list(app_id)}
        ordered = (types[name] for name in sorted(types))
        return tuple(apply_category(categories.get(each.category), each) for each in ordered)

    async def list_categories(self, app_id: str) -> tuple[CategoryDefinition, ...]:
        """Return the built-in categories, and then the app's own, sorted by name."""
        return (*built_in.CATEGORIES.values(), *await self._categories.list(app_id))

    async def read(self, app_id: str, type_name: str) -> CatalogEntry | None:
        """Return an entry as it is stored now, without the cache."""
        if "\0" in type_name:
            # There is no such type, and PostgreSQL would refuse the query.
            return None
        changed = await self._types.get(app_id, type_name)
        definition = changed or built_in.TYPES.get(type_name)
        if definition is None:
            return None
        if _has_own_category(definition):
            category = await self._categories.get(app_id, definition.category)
            definition = apply_category(category, definition)
        own = await self._templates.list(app_id, type_name)
        entry = build_entry(definition, own, partial(self._sandbox.run, app_id))
        return replace(entry, on_rendered=self.render_times.add)


def _measure(entry: CatalogEntry | None) -> int:
    return _ENTRY_SIZE + (entry.size_bytes if entry else 0)


def _has_own_category(definition: NotificationType) -> bool:
    return definition.category not in built_in.CATEGORIES


def apply_category(
    category: CategoryDefinition | None, definition: NotificationType
) -> NotificationType:
    """Return a type as its category lets it be: what users must get, they get whole.

    Only the app's own categories need this: the rules know the built-in ones.
    """
    if category is None or category.user_can_disable or not _has_own_category(definition):
        return definition
    return replace(definition, user_can_disable=False)
