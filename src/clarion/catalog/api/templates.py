"""Templates over HTTP: written in versions, previewed before or after."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Controller, get, post, put
from litestar.params import Parameter

from clarion.access.model import Scope
from clarion.catalog.api.types import TypeName, find_entry, refuse
from clarion.catalog.built_in import ENGLISH
from clarion.catalog.catalog import Catalog
from clarion.catalog.entry import CatalogEntry, Run, convert, measure, render
from clarion.catalog.model import GIVEN, Channel, Form, Template, build_context
from clarion.catalog.model.sms_segments import SmsEncoding, count_segments
from clarion.catalog.rendering.limits import check_size
from clarion.catalog.sandbox.jobs import CheckTemplate
from clarion.catalog.sql import Templates
from clarion.clock import Clock
from clarion.errors import Conflict, FieldFault, InvalidFields, existing
from clarion.fields import LanguageTag, check_json, check_language, check_value, documented
from clarion.http.bodies import Body, Checks, collect
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.shapes import Items, check_choice, check_limit
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT

VARIABLES_LIMIT = 100
# As for events.
DATA_LIMIT_BYTES = 65_536
# Of the templates of a type for one channel.
LANGUAGES_LIMIT = 50
# Of all templates of a type, in characters: they are read together.
TYPE_TEXT_LIMIT = 1 << 20
# Of all templates of an app; the store keeps 50 of each.
APP_VERSIONS_LIMIT = 20_000
_NO_TEMPLATE = "This type has no template for this channel and language."
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
TextChannel = Annotated[
    str,
    msgspec.Meta(description="The channel of the text.", extra_json_schema={"enum": list(Channel)}),
]
Text = Annotated[str, documented(pattern=r"^[^\u0000]*[^\s\u0000][^\u0000]*$")]
Variables = Annotated[
    list[
        Annotated[str, documented(pattern=f"^(?!({'|'.join(sorted(GIVEN))})$){_VARIABLE.pattern}$")]
    ],
    documented(maxItems=VARIABLES_LIMIT, uniqueItems=True),
]
Language = Annotated[
    LanguageTag | None, Parameter(description="A language tag; the default is `en`.")
]


class TemplateBody(Body):
    """A template in Liquid. Every event of the type must have the `variables` in its data.

    The body for email is MJML if it begins with `<mjml`, HTML if it begins with another `<`, and
    plain text otherwise. In MJML and HTML, values are escaped.
    """

    body: Text
    """The text, in Liquid."""
    subject: Text | None = None
    """The subject of an email, or the title of a push or inbox item, in Liquid."""
    variables: Variables = msgspec.field(default_factory=list)
    """The names that every event of the type must have in its data."""
    language: LanguageTag | None = None
    """The language of the text; that of the query, else `en`, if left out."""

    def checks(self) -> Checks:
        """Return the checks of the fields."""
        return {
            "variables": partial(_check_variables, self.variables),
            "language": partial(check_language, self.language or ENGLISH),
            "body": partial(check_size, self.subject, self.body),
        }


class PreviewBody(Body):
    """The values to render with. With `body`, that text is rendered instead of the template."""

    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """The data of the event."""
    actor: dict[str, Any] | None = None
    """Who caused the event."""
    target: dict[str, Any] | None = None
    """What the event is about."""
    user: dict[str, Any] | None = None
    """The user, as templates see it: `name`, `language` and so on."""
    count: Count = 1
    """How many events the notification stands for."""
    subject: Text | None = None
    """The subject that goes with `body`."""
    body: Text | None = None
    """A text to render in place of the stored one."""
    variables: Variables = msgspec.field(default_factory=list)
    """The names that `body` needs in `data`."""


class TemplateView(View):
    """A template. A built-in one has version 0 and no time."""

    type: str
    """The notification type."""
    channel: Channel
    """The channel that the text is for."""
    language: str
    """The language of the text."""
    version: int
    """The number of the version; 0 is built in."""
    subject: str | None
    """The subject of an email, or the title of a push or inbox item, in Liquid."""
    body: str
    """The text, in Liquid."""
    variables: list[str]
    """The names that every event of the type must have in its data."""
    created_at: Timestamp | None
    """When this version was written; null if it is built in."""


class SmsSegmentsView(View):
    """The size of the body as a text message; `units` are septets or UTF-16 code units."""

    encoding: SmsEncoding
    """How the text is encoded; one character outside of GSM-7 makes it UCS-2."""
    units: int
    """How long the text is, in septets or UTF-16 code units."""
    count: int
    """How many segments are paid for."""


class PreviewView(View):
    """The rendered text; of MJML, the HTML. `version` is null if the text came with the request.

    `segments` is null for other channels than `sms`.
    """

    subject: str | None
    """The rendered subject."""
    body: str
    """The rendered text; of MJML, the HTML."""
    language: str
    """The language of the template that was used."""
    version: int | None
    """The version that was used; null if the text came with the request."""
    segments: SmsSegmentsView | None
    """The size of the body as a text message; null for other channels."""


class TemplatesController(Controller):
    """The templates of a type."""

    path = "/v1/types/{type_name:str}/templates"
    tags = ("Templates",)

    @get(summary="List templates")
    async def list_templates(
        self, request: ApiRequest, type_name: TypeName, catalog: Injected[Catalog]
    ) -> Items[TemplateView]:
        """Return the newest version for each channel and language, built-in ones included."""
        app_id = app_of(request, Scope.TYPES_READ).app_id
        entry = await find_entry(catalog, app_id, type_name)
        return Items([_view(entry.templates[place]) for place in sorted(entry.templates)], None)

    @get("/{channel:str}", summary="Get a template")
    async def get_template(
        self,
        request: ApiRequest,
        type_name: TypeName,
        channel: TextChannel,
        catalog: Injected[Catalog],
        language: Language = None,
    ) -> TemplateView:
        """Return the newest version in exactly this language."""
        app_id = app_of(request, Scope.TYPES_READ).app_id
        place = _check_place(channel, language)
        entry = await find_entry(catalog, app_id, type_name)
        return _view(existing(entry.templates.get(place), _NO_TEMPLATE))

    @get("/{channel:str}/versions", summary="List versions of a template")
    async def list_versions(
        self,
        request: ApiRequest,
        type_name: TypeName,
        channel: TextChannel,
        templates: Injected[Templates],
        catalog: Injected[Catalog],
        language: Language = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[TemplateView]:
        """Return the versions that the app has written, newest first."""
        app_id = app_of(request, Scope.TYPES_READ).app_id
        place = _check_place(channel, language)
        size = check_limit(limit)
        await find_entry(catalog, app_id, type_name)
        page = await templates.versions(app_id, type_name, *place, after=after, limit=size)
        return Items([_view(each) for each in page.items], page.next)

    @put(
        "/{channel:str}",
        summary="Create or replace a template",
        errors=(Conflict,),
    )
    async def put_template(
        self,
        request: ApiRequest,
        type_name: TypeName,
        channel: TextChannel,
        data: TemplateBody,
        templates: Injected[Templates],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        language: Language = None,
    ) -> TemplateView:
        """Add a new version, which is used from now on."""
        app_id = app_of(request, Scope.TYPES_WRITE).app_id
        place = _check_place(channel, language if data.language is None else data.language)
        if language is not None and _check_place(channel, language) != place:
            raise InvalidFields(FieldFault("language", "differs between query and body"))
        collect(data.checks())
        template = _draft(type_name, place, data, data.body, clock.now())
        entry = await find_entry(catalog, app_id, type_name)
        _check_room(entry, template)
        if await templates.count(app_id) >= APP_VERSIONS_LIMIT:
            reason = f"an app can have at most {APP_VERSIONS_LIMIT:,} versions of templates"
            raise Conflict(f"{reason[0].upper()}{reason[1:]}; delete types that are not used.")
        await _check(template, entry.run)
        written = await templates.put(app_id, template)
        catalog.forget(app_id, type_name)
        return _view(written)

    @post("/{channel:str}/preview", summary="Preview a template", status_code=200)
    async def preview(
        self,
        request: ApiRequest,
        type_name: TypeName,
        channel: TextChannel,
        data: PreviewBody,
        catalog: Injected[Catalog],
        language: Language = None,
    ) -> PreviewView:
        """Render the template that a user of this language would get. Nothing is stored."""
        app_id = app_of(request, Scope.TYPES_READ).app_id
        place = _check_place(channel, language)
        check_value("variables", _check_variables, data.variables)
        entry = await find_entry(catalog, app_id, type_name)
        if data.body is not None:
            template = _draft(type_name, place, data, data.body, 0)
            await _check(template, entry.run)
            return await _preview(template, data, entry.run, version=None)
        template = existing(entry.pick(*place), _NO_TEMPLATE)
        return await _preview(template, data, entry.run, version=template.version)


def _draft(
    type_name: str,
    place: tuple[Channel, str],
    data: TemplateBody | PreviewBody,
    body: str,
    now: int,
) -> Template:
    """Return a template that has no version yet, and a size that can be looked at."""
    channel, language = place
    variables = check_value("variables", _check_variables, data.variables)
    check_size(data.subject, body)
    return Template(
        type=type_name,
        channel=channel,
        language=language,
        version=0,
        subject=data.subject,
        body=body,
        variables=variables,
        created_at=now,
    )


async def _check(template: Template, run: Run) -> None:
    is_mjml = template.form is Form.MJML
    job = CheckTemplate(template.subject, template.body, template.variables, is_mjml)
    refuse((await run(job)).faults)


def _check_room(entry: CatalogEntry, template: Template) -> None:
    """Raise `InvalidFields` if a type would have too many templates, or too much text."""
    others = [
        each
        for each in entry.templates.values()
        if (each.channel, each.language) != (template.channel, template.language)
    ]
    if sum(each.channel is template.channel for each in others) >= LANGUAGES_LIMIT:
        reason = f"a type can have at most {LANGUAGES_LIMIT} languages for a channel"
        raise InvalidFields(FieldFault("language", reason))
    if measure(template) + sum(map(measure, others)) > TYPE_TEXT_LIMIT:
        reason = f"the templates of a type can have at most {TYPE_TEXT_LIMIT:,} characters together"
        raise InvalidFields(FieldFault("body", reason))


async def _preview(
    template: Template, data: PreviewBody, run: Run, *, version: int | None
) -> PreviewView:
    for name in ("data", "actor", "target", "user"):
        check_value(name, partial(check_json, longest_bytes=DATA_LIMIT_BYTES), getattr(data, name))
    missing = [name for name in template.variables if data.data.get(name) is None]
    if missing:
        raise InvalidFields(*(FieldFault(f"data.{name}", "is required") for name in missing))
    context = build_context(
        data.data, actor=data.actor, target=data.target, user=data.user, count=data.count
    )
    text = await render(await convert(template, run), context, run)
    is_sms = template.channel is Channel.SMS
    segments = SmsSegmentsView.of(count_segments(text.body)) if is_sms else None
    return PreviewView.of(text, language=template.language, version=version, segments=segments)


def _check_place(channel: str, language: str | None) -> tuple[Channel, str]:
    """Return channel and language; the default language is English."""
    return (
        check_value("channel", partial(check_choice, Channel), channel),
        check_value("language", check_language, ENGLISH if language is None else language),
    )


def _check_variables(names: Sequence[str]) -> tuple[str, ...]:
    are_names = all(_VARIABLE.fullmatch(name) and name not in GIVEN for name in names)
    if not are_names or len(set(names)) != len(names) or len(names) > VARIABLES_LIMIT:
        raise ValueError(
            f"must be at most {VARIABLES_LIMIT} different names of letters, digits and _, "
            f"other than {', '.join(sorted(GIVEN))}"
        )
    return tuple(names)


def _view(template: Template) -> TemplateView:
    if template.version == 0:
        return TemplateView.of(template, created_at=None)
    return TemplateView.of(template)


ROUTES = (TemplatesController,)
