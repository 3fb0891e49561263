"""A notification type with its schema and templates, ready to check data and to render."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter

import msgspec

from clarion.catalog import built_in
from clarion.catalog.model import Channel, Form, NotificationType, RenderedText, Template
from clarion.catalog.rendering.quick import is_quick, render_quickly
from clarion.catalog.sandbox.jobs import ConvertMjml, FindFaults, Job, JobResult, Render
from clarion.catalog.schemas import SmallSchema, load_small
from clarion.errors import FieldFault, InvalidFields, NotFound, Overloaded

_CACHE_LIMIT = 1_000
# Templates that are rendered in a row to check them, before other work gets its turn.
_CHECKED_IN_A_ROW = 16
# Names that a template may show without declaring them.
_UNDECLARED = ("actor", "target")
# Does a job for the app of the entry.
Run = Callable[[Job], Awaitable[JobResult]]


class DataSchema:
    """Checks data in this process if that is certainly cheap, and in the sandbox otherwise."""

    def __init__(self, document: Mapping[str, object], run: Run) -> None:
        self._document = document
        self._run = run

    async def find_faults(self, data: Mapping[str, object]) -> tuple[FieldFault, ...]:
        faults = None if self._small is None else self._small.find_faults(data)
        if faults is not None:
            return faults
        return (await self._run(FindFaults(self._raw, dict(data)))).faults

    @cached_property
    def _small(self) -> SmallSchema | None:
        return load_small(self._document)

    @cached_property
    def _raw(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self._document))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CatalogEntry:
    """A notification type with its schema and templates."""

    type: NotificationType
    schema: DataSchema | None
    templates: Mapping[tuple[Channel, str], Template]
    channels: frozenset[Channel]  # for which there is a template
    variables: Mapping[Channel, frozenset[str]]  # declared by the templates of any language
    run: Run
    mentions: Mapping[str, tuple[Template, ...]]  # which templates mention an undeclared name
    size_bytes: int
    # Called with the seconds that a text took to render.
    on_rendered: Callable[[float], None] = lambda _seconds: None
    _picked: dict[tuple[Channel, str], Template | None] = field(default_factory=dict, repr=False)
    _converted: dict[str, Template] = field(default_factory=dict, repr=False)  # by language
    _quick: dict[Channel, CatalogEntry | None] = field(default_factory=dict, repr=False)

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

    def find_quick(self, channel: Channel) -> CatalogEntry | None:
        """Return a variant that never uses the sandbox; None if a template needs it.

        The variant raises `Overloaded` for values that need the sandbox.
        """
        if channel not in self._quick:
            some = (each for (of, _), each in self.templates.items() if of is channel)
            quick = replace(self, run=_refuse) if all(map(is_quick, some)) else None
            self._quick[channel] = quick
        return self._quick[channel]

    async def find_faults(
        self, data: Mapping[str, object], channels: Collection[Channel]
    ) -> tuple[FieldFault, ...]:
        """Return how data violates the schema, and which required variables are missing.

        Like `render` and `check_context` it may need the sandbox, and fail as that does.
        """
        faults = await self.schema.find_faults(data) if self.schema else ()
        required = frozenset[str]().union(*(self.variables.get(each, ()) for each in channels))
        missing = sorted(name for name in required if data.get(name) is None)
        return faults + tuple(
            FieldFault(f"data.{name}", "is required by a template") for name in missing
        )

    async def render(
        self, channel: Channel, language: str, context: Mapping[str, object]
    ) -> RenderedText:
        """Render the template for a channel in the nearest language: `pt-BR`, `pt`, `en`, any.

        `NotFound` if the channel has no template, `InvalidFields` if it cannot be rendered.
        """
        template = self.pick(channel, language)
        if template is None:
            raise NotFound(f"{self.type.type} has no template for {channel}.")
        began = perf_counter()
        text = await render(await self._convert(template), context, self.run)
        self.on_rendered(perf_counter() - began)
        return RenderedText(text.subject, text.body, text.is_html, template.language)

    async def check_context(
        self, channels: Collection[Channel], context: Mapping[str, object], missing: Collection[str]
    ) -> None:
        """Raise `InvalidFields` if a template of these channels shows one of the missing names."""
        mentioning = {id(each): each for name in missing for each in self.mentions.get(name, ())}
        for number, template in enumerate(mentioning.values(), 1):
            if template.channel in channels:
                await render(await self._convert(template), context, self.run)
            if not number % _CHECKED_IN_A_ROW:
                await asyncio.sleep(0)

    async def _convert(self, template: Template) -> Template:
        """Return the template; if it is MJML as HTML, which is made once."""
        if template.form is not Form.MJML:
            return template
        if template.language not in self._converted:
            self._converted[template.language] = await convert(template, self.run)
        return self._converted[template.language]

    def with_type(self, definition: NotificationType) -> CatalogEntry:
        """Return the entry with another definition of its type."""
        return replace(self, type=definition, _quick={})


async def _refuse(_job: Job) -> JobResult:
    raise Overloaded("It must be rendered in the sandbox.")


async def convert(template: Template, run: Run) -> Template:
    """Return a template of MJML as HTML, any other as it is; `InvalidFields` if it is not valid."""
    if template.form is not Form.MJML:
        return template
    answer = await run(ConvertMjml(template.body))
    if answer.faults:
        raise InvalidFields(*answer.faults)
    return replace(template, body=answer.body)


async def render(template: Template, context: Mapping[str, object], run: Run) -> RenderedText:
    """Render text or HTML; in the sandbox if it needs Liquid. `InvalidFields` if it fails there."""
    is_html = template.form is not Form.TEXT
    text = render_quickly(template, context, is_html=is_html)
    if text is not None:
        return text
    answer = await run(Render(template.subject, template.body, is_html, dict(context)))
    if answer.faults:
        raise InvalidFields(*answer.faults)
    return RenderedText(answer.subject, answer.body, is_html)


def build_entry(definition: NotificationType, own: Collection[Template], run: Run) -> CatalogEntry:
    """Return the entry of a type; the app's own templates override built-in ones."""
    all_templates = (*built_in.TEMPLATES.get(definition.type, ()), *own)
    templates = {(each.channel, each.language): each for each in all_templates}
    variables: defaultdict[Channel, frozenset[str]] = defaultdict(frozenset)
    for each in templates.values():
        variables[each.channel] |= frozenset(each.variables)
    return CatalogEntry(
        type=definition,
        schema=DataSchema(definition.data_schema, run) if definition.data_schema else None,
        templates=templates,
        channels=frozenset(variables),
        variables=dict(variables),
        run=run,
        mentions={name: tuple(_find_mentions(name, templates.values())) for name in _UNDECLARED},
        size_bytes=sum(map(measure, own)),
    )


def measure(template: Template) -> int:
    """Return the size of a template; at most four bytes for each character."""
    return len(template.body) + len(template.subject or "")


def _find_mentions(name: str, templates: Collection[Template]) -> Iterator[Template]:
    for each in templates:
        if name in each.body or (each.subject and name in each.subject):
            yield each
