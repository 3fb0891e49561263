"""A notification type with its schema and templates, ready to check data and to render."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from clarion.catalog import built_in
from clarion.catalog.model import Channel, NotificationType, RenderedText, Template
from clarion.catalog.rendering.templates import render
from clarion.catalog.schemas import Schema
from clarion.errors import FieldFault, NotFound

_CACHE_LIMIT = 1_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Entry:
    """The `CatalogEntry` port."""

    type: NotificationType
    schema: Schema | None
    templates: Mapping[tuple[Channel, str], Template]
    channels: frozenset[Channel]
    variables: Mapping[Channel, frozenset[str]]  # declared by the templates of any language
    _picked: dict[tuple[Channel, str], Template | None] = field(default_factory=dict, repr=False)

    def pick(self, channel: Channel, language: str) -> Template | None:
        """Return the template in the nearest language: `pt-BR`, else `pt`, else `en`, else any."""
        place = (channel, language)
        if place in self._picked:
            return self._picked[place]
        if len(self._picked) >= _CACHE_LIMIT:
            self._picked.clear()
        picked = self._picked[place] = self._search(channel, language)
        return picked

    def _search(self, channel: Channel, language: str) -> Template | None:
        for wanted in (language, language.partition("-")[0], built_in.ENGLISH):
            if template := self.templates.get((channel, wanted)):
                return template
        languages = sorted(known for of, known in self.templates if of is channel)
        return self.templates[channel, languages[0]] if languages else None

    def find_faults(
        self, data: Mapping[str, object], channels: Collection[Channel]
    ) -> tuple[FieldFault, ...]:
        faults = self.schema.find_faults(data) if self.schema else ()
        required = frozenset[str]().union(*(self.variables.get(each, ()) for each in channels))
        missing = sorted(name for name in required if data.get(name) is None)
        return faults + tuple(
            FieldFault(f"data.{name}", "is required by a template") for name in missing
        )

    def render(
        self, channel: Channel, language: str, context: Mapping[str, object]
    ) -> RenderedText:
        template = self.pick(channel, language)
        if template is None:
            raise NotFound(f"{self.type.type} has no template for {channel}.")
        return render(template, context, is_html=channel is Channel.EMAIL)

    def check_context(
        self, channels: Collection[Channel], context: Mapping[str, object], missing: Collection[str]
    ) -> None:
        for (channel, _), template in self.templates.items():
            text = f"{template.subject}{template.body}"
            if channel in channels and any(name in text for name in missing):
                render(template, context, is_html=channel is Channel.EMAIL)

    def with_type(self, definition: NotificationType) -> Entry:
        return replace(self, type=definition)


def build_entry(definition: NotificationType, own: Collection[Template]) -> Entry:
    """Return the entry of a type; the app's own templates override built-in ones."""
    all_templates = (*built_in.TEMPLATES.get(definition.type, ()), *own)
    templates = {(each.channel, each.language): each for each in all_templates}
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
