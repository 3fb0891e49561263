"""A type with all that is needed to tell it, found fast: events ask for it one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from clarion.catalog import built_in
from clarion.catalog.entry import build_entry

if TYPE_CHECKING:
    from clarion.catalog.entry import Entry
    from clarion.catalog.model import NotificationType
    from clarion.catalog.port import Templates, Types
    from clarion.clock import Clock

# How old what is remembered may be. On the node that changes a type, the change counts at once.
BELIEVED_MS = 10_000
_REMEMBERED = 10_000
_LOCKS = 64


class Catalog:
    """Finds the kinds of an app."""

    def __init__(self, types: Types, templates: Templates, clock: Clock) -> None:
        self._types = types
        self._templates = templates
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[int, Entry | None]] = {}
        self._changes = 0
        self._locks = [asyncio.Lock() for _ in range(_LOCKS)]

    async def find(self, app_id: str, type_name: str) -> Entry | None:
        """Return a kind, or None if the app has no such type."""
        place = (app_id, type_name)
        known = self._recall(place)
        if known is not None:
            return known[0]
        # When a kind grows old, one of all who ask at that moment reads it for the others.
        async with self._locks[hash(place) % _LOCKS]:
            known = self._recall(place)
            return known[0] if known is not None else await self._read_anew(place)

    def forget(self, app_id: str, type_name: str) -> None:
        """Read a kind afresh next time: it was changed."""
        self._changes += 1
        self._known.pop((app_id, type_name), None)

    async def list_types(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return all types of an app, ready-made ones too, in the order of their names."""
        own = {each.type: each for each in await self._types.list(app_id)}
        types = {**built_in.TYPES, **own}
        return tuple(types[name] for name in sorted(types))

    async def read(self, app_id: str, type_name: str) -> Entry | None:
        """Return a kind as it is at this moment, whatever is remembered."""
        if "\0" in type_name:
            # No type is called so, and PostgreSQL cannot even be asked.
            return None
        own = await self._types.get(app_id, type_name)
        definition = own or built_in.TYPES.get(type_name)
        if definition is None:
            return None
        return build_entry(definition, await self._templates.list(app_id, type_name))

    async def _read_anew(self, place: tuple[str, str]) -> Entry | None:
        now, changes = self._clock.now(), self._changes
        kind = await self.read(*place)
        # What was changed while we read may be missing in what we read.
        if changes == self._changes:
            self._remember(place, now, kind)
        return kind

    def _recall(self, place: tuple[str, str]) -> tuple[Entry | None] | None:
        """Return what is remembered, in a tuple since it may be that there is no such kind."""
        looked_up, kind = self._known.get(place, (-BELIEVED_MS, None))
        return (kind,) if 0 <= self._clock.now() - looked_up < BELIEVED_MS else None

    def _remember(self, place: tuple[str, str], now: int, kind: Entry | None) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[place] = (now, kind)
