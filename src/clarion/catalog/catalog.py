"""A type with all that is needed to tell it, found fast: events ask for it one by one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clarion.catalog import built_in
from clarion.catalog.model import Channel
from clarion.catalog.schemas import Schema
from clarion.errors import FieldFault

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from clarion.catalog.model import NotificationType, Template
    from clarion.catalog.port import Templates, Types
    from clarion.clock import Clock

# How old what is remembered may be. On the node that changes a type, the change counts at once.
BELIEVED_MS = 10_000
_REMEMBERED = 10_000
_PICKS = 1_000
_LOCKS = 64


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """A notification type, its schema and its words."""

    type: NotificationType
    schema: Schema | None
    templates: Mapping[tuple[Channel, str], Template]
    channels: frozenset[Channel]  # those that there are words for
    variables: Mapping[Channel, frozenset[str]]  # what their templates declare, in any language
    _picked: dict[tuple[Channel, str], Template | None] = field(default_factory=dict, repr=False)

    def pick(self, channel: Channel, language: str) -> Template | None:
        """Return the words for a channel: `pt-BR`, else `pt`, else `en`, else any language."""
        place = (channel, language)
        if place in self._picked:
            return self._picked[place]
        if len(self._picked) >= _PICKS:
            self._picked.clear()
        picked = self._picked[place] = self._search(channel, language)
        return picked

    def _search(self, channel: Channel, language: str) -> Template | None:
        for wanted in (language, language.partition("-")[0], built_in.ENGLISH):
            if template := self.templates.get((channel, wanted)):
                return template
        spoken = sorted(known for of, known in self.templates if of is channel)
        return self.templates[channel, spoken[0]] if spoken else None

    def required_variables(self, channels: Collection[Channel]) -> frozenset[str]:
        """Return what an event must bring for these channels, in whichever language."""
        return frozenset().union(*(self.variables.get(channel, ()) for channel in channels))

    def find_faults(
        self, data: Mapping[str, object], channels: Collection[Channel]
    ) -> tuple[FieldFault, ...]:
        """Return what is wrong with the data of an event: what the schema says, what is missing."""
        faults = self.schema.find_faults(data) if self.schema else ()
        missing = sorted(n for n in self.required_variables(channels) if data.get(n) is None)
        return faults + tuple(FieldFault(f"data.{n}", "is required by a template") for n in missing)


class Catalog:
    """Finds the kinds of an app."""

    def __init__(self, types: Types, templates: Templates, clock: Clock) -> None:
        self._types = types
        self._templates = templates
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[int, Kind | None]] = {}
        self._changes = 0
        self._locks = [asyncio.Lock() for _ in range(_LOCKS)]

    async def find(self, app_id: str, type_name: str) -> Kind | None:
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

    async def read(self, app_id: str, type_name: str) -> Kind | None:
        """Return a kind as it is at this moment, whatever is remembered."""
        if "\0" in type_name:
            # No type is called so, and PostgreSQL cannot even be asked.
            return None
        own = await self._types.get(app_id, type_name)
        definition = own or built_in.TYPES.get(type_name)
        if definition is None:
            return None
        return build_kind(definition, await self._templates.list(app_id, type_name))

    async def _read_anew(self, place: tuple[str, str]) -> Kind | None:
        now, changes = self._clock.now(), self._changes
        kind = await self.read(*place)
        # What was changed while we read may be missing in what we read.
        if changes == self._changes:
            self._remember(place, now, kind)
        return kind

    def _recall(self, place: tuple[str, str]) -> tuple[Kind | None] | None:
        """Return what is remembered, in a tuple since it may be that there is no such kind."""
        looked_up, kind = self._known.get(place, (-BELIEVED_MS, None))
        return (kind,) if 0 <= self._clock.now() - looked_up < BELIEVED_MS else None

    def _remember(self, place: tuple[str, str], now: int, kind: Kind | None) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[place] = (now, kind)


def build_kind(definition: NotificationType, own: Collection[Template]) -> Kind:
    """Put a kind together; the app's own words come before the ready-made ones."""
    words = (*built_in.TEMPLATES.get(definition.type, ()), *own)
    templates = {(each.channel, each.language): each for each in words}
    variables: defaultdict[Channel, frozenset[str]] = defaultdict(frozenset)
    for each in templates.values():
        variables[each.channel] |= frozenset(each.variables)
    return Kind(
        type=definition,
        schema=Schema(definition.data_schema) if definition.data_schema else None,
        templates=templates,
        channels=frozenset(variables),
        variables=dict(variables),
    )
