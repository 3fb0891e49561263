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
from clarion.nodes.invalidation import Invalidation
from clarion.telemetry.tallies import Tally

if TYPE_CHECKING:
    from clarion.catalog.port import Categories, Sandbox, Templates, Types

# How old a cached entry may be. On the node that changes a type the change is effective at once, on
# others when they are told.
CACHED_MS = 10_000
_CACHE_LIMIT = 10_000
# Of the texts of templates in the cache, in characters.
_CACHE_LIMIT_SIZE = 1 << 25
_LOCKS = 64
_NOTHING: dict[str, tuple[int, CatalogEntry | None]] = {}


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
        # Remove an entry from the cache of every node after a change of a type or template; and the
        # entries of an app after a change of a category.
        self.forget = Invalidation("catalog.type", self._forget, self._forget_all)
        self.forget_app = Invalidation("catalog.category", self._forget_app, self._forget_all)
        self._size = 0
        # By app and type: when it was read, and the entry. Apps come and go whole.
        self._cache: dict[str, dict[str, tuple[int, CatalogEntry | None]]] = {}
        self._count = 0
        self._changes = 0
        self.render_times = Tally()
        self._locks = [asyncio.Lock() for _ in range(_LOCKS)]

    async def find(self, app_id: str, type_name: str) -> CatalogEntry | None:
        """Return an entry, or None if the app has no such type. May be ten seconds old."""
        key = (app_id, type_name)
        cached = self._look_up(key)
        if cached is not None:
            return cached[0]
        # When an entry expires, one of the concurrent callers reads it for all of them.
        async with self._locks[hash(key) % _LOCKS]:
            cached = self._look_up(key)
            return cached[0] if cached is not None else await self._load(key)

    def _forget(self, app_id: str, type_name: str) -> None:
        self._changes += 1
        if self._cache.get(app_id, {}).pop(type_name, None) is not None:
            self._count -= 1

    def _forget_all(self) -> None:
        self._changes += 1
        self._clear()

    def _forget_app(self, app_id: str) -> None:
        self._changes += 1
        self._count -= len(self._cache.pop(app_id, ()))

    drop_app = _forget_app  # of an app that was deleted: every node is told of that by itself

    def _clear(self) -> None:
        self._cache.clear()
        self._size = self._count = 0

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

    async def _load(self, key: tuple[str, str]) -> CatalogEntry | None:
        now, changes = self._clock.monotonic(), self._changes
        entry = await self.read(*key)
        # A change made during the read may be missing in its result, which is then not cached.
        if changes == self._changes:
            self._store(key, now, entry)
        return entry

    def _look_up(self, key: tuple[str, str]) -> tuple[CatalogEntry | None] | None:
        """Return the cached entry in a tuple: that there is no such type is cached, too."""
        app_id, type_name = key
        cached_at, entry = self._cache.get(app_id, _NOTHING).get(type_name, (-CACHED_MS, None))
        return (entry,) if self._clock.monotonic() - cached_at < CACHED_MS else None

    def _store(self, key: tuple[str, str], now: int, entry: CatalogEntry | None) -> None:
        size = entry.size_bytes if entry else 0
        if self._count >= _CACHE_LIMIT or self._size + size > _CACHE_LIMIT_SIZE:
            self._clear()
        # Entries that are replaced count again, so that the cache is emptied early, never late.
        self._size += size
        app_id, type_name = key
        of_app = self._cache.setdefault(app_id, {})
        self._count += type_name not in of_app
        of_app[type_name] = (now, entry)


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
