"""A notification type with its schema and templates, ready to check data and to render."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clarion.catalog import built_in
from clarion.catalog.model import Channel
from clarion.catalog.rendering.templates import render
from clarion.catalog.schemas import Schema
from clarion.errors import FieldFault, NotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from clarion.catalog.model import NotificationType, RenderedText, Template

_PICKS = 1_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Entry:
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

    def render(
        self, channel: Channel, language: str, context: Mapping[str, object]
    ) -> RenderedText:
        """Render the template for a channel; see `CatalogEntry`."""
        template = self.pick(channel, language)
        if template is None:
            msg = f"{self.type.type} has no template for {channel}."
            raise NotFound(msg)
        return render(template, context, is_html=channel is Channel.EMAIL)

    def check_context(
        self, channels: Collection[Channel], context: Mapping[str, object], missing: Collection[str]
    ) -> None:
        """Render what mentions one of the missing names; see `CatalogEntry`."""
        for (channel, _), template in self.templates.items():
            text = f"{template.subject}{template.body}"
            if channel in channels and any(name in text for name in missing):
                render(template, context, is_html=channel is Channel.EMAIL)

    def with_type(self, definition: NotificationType) -> Entry:
        """Return the entry with another definition of its type."""
        return replace(self, type=definition)


def build_entry(definition: NotificationType, own: Collection[Template]) -> Entry:
    """Put a kind together; the app's own words come before the ready-made ones."""
    words = (*built_in.TEMPLATES.get(definition.type, ()), *own)
    templates = {(each.channel, each.language): each for each in words}
    variables: defaultdict[Channel, frozenset[str]] = defaultdict(frozenset)
    for each in templates.values():
        variables[each.channel] |= frozenset(each.variables)
    return Entry(
        type=definition,
        schema=Schema(definition.data_schema) if definition.data_schema else None,
        templates=templates,
        channels=frozenset(variables),
        variables=dict(variables),
    )
