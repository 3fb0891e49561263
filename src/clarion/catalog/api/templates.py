"""Templates over HTTP: written, seen, and tried out."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Controller, Request, get, post, put
from litestar.params import Parameter

from clarion import fields
from clarion.access.model import Scope
from clarion.catalog.api.types import find_kind
from clarion.catalog.built_in import ENGLISH
from clarion.catalog.catalog import Catalog
from clarion.catalog.model import GIVEN, Channel, Template, build_context
from clarion.catalog.port import Templates
from clarion.catalog.rendering.templates import check_template, render
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.http.bodies import Body
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, collect, to_wire

if TYPE_CHECKING:
    from clarion.catalog.entry import Entry

VARIABLES_LIMIT = 100
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Language = Annotated[str | None, Parameter(description="A language tag; `en` if left out.")]


class TemplateBody(Body):
    """The words of a type for a channel, in Liquid. `variables` are required of every event."""

    body: str
    subject: str | None = None
    variables: list[str] = msgspec.field(default_factory=list)
    language: str | None = None


class Trial(Body):
    """What to fill in; and words to try that are not stored, if `body` is given."""

    data: dict[str, Any] = msgspec.field(default_factory=dict)
    actor: dict[str, Any] | None = None
    target: dict[str, Any] | None = None
    user: dict[str, Any] | None = None
    count: Count = 1
    subject: str | None = None
    body: str | None = None
    variables: list[str] = msgspec.field(default_factory=list)


class TemplateView(msgspec.Struct):
    """A template. A ready-made one has version 0 and no time."""

    type: str
    channel: Channel
    language: str
    version: int
    subject: str | None
    body: str
    variables: list[str]
    created_at: str | None


class PreviewView(msgspec.Struct):
    """The words as a person would read them. `version` is null for words that are not stored."""

    subject: str | None
    body: str
    language: str
    version: int | None


class TemplatesController(Controller):
    """The templates of a type."""

    path = "/v1/types/{type_name:str}/templates"
    tags = ("Templates",)

    @get(summary="List the templates of a type")
    async def list_templates(
        self, request: Request[Any, Any, Any], type_name: str, catalog: Injected[Catalog]
    ) -> Items[TemplateView]:
        """Return the newest for each channel and language, ready-made ones too."""
        caller = app_of(request, Scope.TYPES_READ)
        kind = await find_kind(catalog, caller.app_id, type_name)
        return Items([_view(kind.templates[place]) for place in sorted(kind.templates)], None)

    @get("/{channel:str}", summary="See a template")
    async def see_template(
        self,
        request: Request[Any, Any, Any],
        type_name: str,
        channel: str,
        catalog: Injected[Catalog],
        language: Language = None,
    ) -> TemplateView:
        """Return the newest version in just this language."""
        caller = app_of(request, Scope.TYPES_READ)
        place = (_check_channel(channel), _check_language(language))
        kind = await find_kind(catalog, caller.app_id, type_name)
        return _view(_found(kind.templates.get(place)))

    @get("/{channel:str}/versions", summary="List the versions of a template")
    async def list_versions(
        self,
        request: Request[Any, Any, Any],
        type_name: str,
        channel: str,
        templates: Injected[Templates],
        catalog: Injected[Catalog],
        language: Language = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[TemplateView]:
        """Return what the app has written, newest first."""
        caller = app_of(request, Scope.TYPES_READ)
        place = (_check_channel(channel), _check_language(language))
        size = check_limit(limit)
        await find_kind(catalog, caller.app_id, type_name)
        page = await templates.versions(caller.app_id, type_name, *place, after=after, limit=size)
        return Items([_view(each) for each in page.items], page.next)

    @put("/{channel:str}", summary="Write a template")
    async def put_template(
        self,
        request: Request[Any, Any, Any],
        type_name: str,
        channel: str,
        data: TemplateBody,
        templates: Injected[Templates],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        language: Language = None,
    ) -> TemplateView:
        """Add a new version, which is used from now on."""
        caller = app_of(request, Scope.TYPES_WRITE)
        template = Template(
            type=type_name,
            channel=_check_channel(channel),
            language=_check_languages(data.language, language),
            version=0,
            subject=data.subject,
            body=data.body,
            variables=_check_variables(data.variables),
            created_at=clock.now(),
        )
        _check_words(template)
        await find_kind(catalog, caller.app_id, type_name)
        written = await templates.put(caller.app_id, template)
        catalog.forget(caller.app_id, type_name)
        return _view(written)

    @post("/{channel:str}/preview", summary="Try a template", status_code=200)
    async def preview(
        self,
        request: Request[Any, Any, Any],
        type_name: str,
        channel: str,
        data: Trial,
        catalog: Injected[Catalog],
        language: Language = None,
    ) -> PreviewView:
        """Fill in the template that a person of this language would get; nothing is stored."""
        caller = app_of(request, Scope.TYPES_READ)
        place = (_check_channel(channel), _check_language(language))
        kind = await find_kind(catalog, caller.app_id, type_name)
        template = _found(kind.pick(*place)) if data.body is None else _draft(kind, *place, data)
        return _preview(template, data, is_draft=data.body is not None)


def _draft(kind: Entry, channel: Channel, language: str, data: Trial) -> Template:
    template = Template(
        type=kind.type.type,
        channel=channel,
        language=language,
        version=0,
        subject=data.subject,
        body=data.body or "",
        variables=_check_variables(data.variables),
        created_at=0,
    )
    _check_words(template)
    return template


def _preview(template: Template, data: Trial, *, is_draft: bool) -> PreviewView:
    missing = [name for name in template.variables if data.data.get(name) is None]
    if missing:
        raise InvalidFields(*(FieldFault(f"data.{name}", "is required") for name in missing))
    values = build_context(
        data.data, actor=data.actor, target=data.target, user=data.user, count=data.count
    )
    words = render(template, values, is_html=template.channel is Channel.EMAIL)
    version = None if is_draft else template.version
    return PreviewView(words.subject, words.body, template.language, version)


def _check_channel(text: str) -> Channel:
    try:
        return Channel(text)
    except ValueError:
        reason = f"must be one of {', '.join(Channel)}"
        raise InvalidFields(FieldFault("channel", reason)) from None


def _check_language(text: str | None) -> str:
    checks = {"language": partial(fields.check_language, ENGLISH if text is None else text)}
    language: str = collect(checks)["language"]
    return language


def _check_languages(of_body: str | None, of_query: str | None) -> str:
    language = _check_language(of_query if of_body is None else of_body)
    if of_query is not None and _check_language(of_query) != language:
        raise InvalidFields(FieldFault("language", "is another one in the query; say it once"))
    return language


def _check_variables(names: list[str]) -> tuple[str, ...]:
    are_names = all(_VARIABLE.fullmatch(name) and name not in GIVEN for name in names)
    if not are_names or len(set(names)) != len(names) or len(names) > VARIABLES_LIMIT:
        reason = (
            f"must be at most {VARIABLES_LIMIT} different names of letters, digits and _, "
            f"other than {', '.join(sorted(GIVEN))}"
        )
        raise InvalidFields(FieldFault("variables", reason))
    return tuple(names)


def _check_words(template: Template) -> None:
    for field, text in (("subject", template.subject), ("body", template.body)):
        if text is not None and (not text.strip() or "\0" in text):
            raise InvalidFields(FieldFault(field, "must have words in it"))
    check_template(template.subject, template.body, template.variables)


def _found(template: Template | None) -> Template:
    if template is None:
        msg = "This type has no such template."
        raise NotFound(msg)
    return template


def _view(template: Template) -> TemplateView:
    return TemplateView(
        type=template.type,
        channel=template.channel,
        language=template.language,
        version=template.version,
        subject=template.subject,
        body=template.body,
        variables=list(template.variables),
        created_at=to_wire(template.created_at) if template.version else None,
    )
