"""Notification types over HTTP: ready-made ones, and the app's own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Controller, Request, delete, get, put
from msgspec import UNSET, UnsetType

from clarion.access.model import Scope
from clarion.catalog import built_in
from clarion.catalog.catalog import Catalog
from clarion.catalog.model import (
    Category,
    Channel,
    Dedupe,
    DedupeMode,
    Digest,
    NotificationType,
    Overflow,
    Priority,
    RateLimit,
)
from clarion.catalog.port import Types
from clarion.catalog.schemas import compile_schema
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.fields import is_plain
from clarion.http.bodies import Body
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit

if TYPE_CHECKING:
    from clarion.catalog.entry import Entry

TYPES_LIMIT = 1_000
SCHEMA_LIMIT_BYTES = 65_536
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_PRIORITIES = {priority.name.lower(): priority for priority in Priority}
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Uses = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, msgspec.Meta(ge=1, le=30 * 24 * 3_600)]


class RateLimitBody(Body):
    """How many a person gets in an hour, and what becomes of the rest."""

    per_user_per_hour: Uses
    overflow: Overflow = Overflow.DROP


class DedupeBody(Body):
    """For how long repeats are one, and whether they are dropped or counted."""

    window_s: Seconds
    mode: DedupeMode = DedupeMode.DROP


class DigestBody(Body):
    """Until when to collect before telling: so long after the first, or daily at a time.

    The time is by each person's own clock.
    """

    window_s: Seconds | None = None
    daily_at: Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] | None = None


class TypeBody(Body):
    """A type. What is left out has its default; for a ready-made type, what it was shipped with."""

    display_name: Label | UnsetType = UNSET
    category: Category | UnsetType = UNSET
    default_channels: list[Channel] | UnsetType = UNSET
    priority: str | int | UnsetType = UNSET
    user_can_disable: bool | UnsetType = UNSET
    is_active: bool | UnsetType = UNSET
    rate_limit: RateLimitBody | UnsetType | None = UNSET
    dedupe: DedupeBody | UnsetType | None = UNSET
    digest: DigestBody | UnsetType | None = UNSET
    data_schema: dict[str, Any] | UnsetType | None = UNSET


class DigestView(msgspec.Struct, omit_defaults=True):
    """Until when a digest is collected; the one of the two that was given."""

    window_s: int | None = None
    daily_at: str | None = None


class TypeView(msgspec.Struct):
    """A type as its app sees it. `origin` is `built_in`, `changed` or `own`."""

    type: str
    display_name: str
    category: Category
    default_channels: list[Channel]
    priority: str
    user_can_disable: bool
    is_active: bool
    rate_limit: RateLimit | None
    dedupe: Dedupe | None
    digest: DigestView | None
    data_schema: dict[str, Any] | None
    origin: str


class TypesController(Controller):
    """The notification types of the calling app."""

    path = "/v1/types"
    tags = ("Types",)

    @get(summary="List the types")
    async def list_types(
        self,
        request: Request[Any, Any, Any],
        catalog: Injected[Catalog],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[TypeView]:
        """Return all types, ready-made ones too, in the order of their names."""
        caller = app_of(request, Scope.TYPES_READ)
        size = check_limit(limit)
        types = await catalog.list_types(caller.app_id)
        rest = [each for each in types if each.type > (after or "")]
        shown = rest[:size]
        return Items([_view(t) for t in shown], shown[-1].type if len(rest) > size else None)

    @get("/{type_name:str}", summary="See a type")
    async def see_type(
        self, request: Request[Any, Any, Any], type_name: str, catalog: Injected[Catalog]
    ) -> TypeView:
        """Return the type as it is at this moment."""
        caller = app_of(request, Scope.TYPES_READ)
        return _view((await find_kind(catalog, caller.app_id, type_name)).type)

    @put("/{type_name:str}", summary="Add a type, or change one")
    async def put_type(
        self,
        request: Request[Any, Any, Any],
        type_name: str,
        data: TypeBody,
        types: Injected[Types],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
    ) -> TypeView:
        """Define the type anew. A ready-made type can be changed like any other."""
        caller = app_of(request, Scope.TYPES_WRITE)
        definition = _define(_check_name(type_name), data)
        await _check_room(types, caller.app_id, type_name)
        await types.put(caller.app_id, definition, clock.now())
        catalog.forget(caller.app_id, type_name)
        return _view(definition)

    @delete("/{type_name:str}", summary="Remove a type, or what was changed of it", status_code=204)
    async def remove_type(
        self,
        request: Request[Any, Any, Any],
        type_name: str,
        types: Injected[Types],
        catalog: Injected[Catalog],
    ) -> None:
        """Remove the type with its templates; a ready-made type is as it was shipped again."""
        caller = app_of(request, Scope.TYPES_WRITE)
        is_removed = is_type_name(type_name) and await types.delete(caller.app_id, type_name)
        catalog.forget(caller.app_id, type_name)
        if not is_removed:
            msg = (
                "There is nothing to remove: no such type, or a ready-made one that is as it was "
                "shipped. To stop one, set `is_active` to false."
            )
            raise NotFound(msg)


async def find_kind(catalog: Catalog, app_id: str, type_name: str) -> Entry:
    """Return a kind as it is at this moment; `NotFound` if there is none."""
    kind = await catalog.read(app_id, type_name) if is_type_name(type_name) else None
    if kind is None:
        msg = "There is no such type; PUT /v1/types/{type} adds one."
        raise NotFound(msg)
    return kind


def is_type_name(text: str) -> bool:
    """Whether a type can have this name."""
    return _NAME.fullmatch(text) is not None


def _check_name(text: str) -> str:
    if not is_type_name(text):
        reason = "must begin with a letter, and have 1 to 100 letters, digits or . _ -"
        raise InvalidFields(FieldFault("type", reason))
    return text


async def _check_room(types: Types, app_id: str, type_name: str) -> None:
    defined = {each.type for each in await types.list(app_id)}
    if len(defined) >= TYPES_LIMIT and type_name not in defined:
        raise InvalidFields(FieldFault("type", f"an app can define {TYPES_LIMIT:,} types at most"))


def _define(name: str, data: TypeBody) -> NotificationType:
    plain = NotificationType(
        type=name,
        display_name=name,
        category=Category.TRANSACTIONAL,
        default_channels=(Channel.IN_APP,),
    )
    given = {
        field: value
        for field in data.__struct_fields__
        if (value := getattr(data, field)) is not UNSET
    }
    values: dict[str, Any] = {
        field: value if (parse := _PARSE.get(field)) is None or value is None else parse(value)
        for field, value in given.items()
    }
    return replace(built_in.TYPES.get(name, plain), **values)


def _parse_display_name(text: str) -> str:
    if not is_plain(text) or not text.strip():
        raise InvalidFields(FieldFault("display_name", "must be text without control characters"))
    return text


def _parse_channels(channels: list[Channel]) -> tuple[Channel, ...]:
    if not channels or len(set(channels)) != len(channels):
        reason = "must name one channel at least, and none twice"
        raise InvalidFields(FieldFault("default_channels", reason))
    return tuple(channels)


def _parse_priority(given: str | int) -> Priority:
    """Return a priority by its name or its number, 0 to 3."""
    if isinstance(given, int) and given in set(Priority):
        return Priority(given)
    if given not in _PRIORITIES:
        reason = f"must be one of {', '.join(_PRIORITIES)}, or 0 to 3"
        raise InvalidFields(FieldFault("priority", reason))
    return _PRIORITIES[str(given)]


def _parse_digest(body: DigestBody) -> Digest:
    if (body.window_s is None) == (body.daily_at is None):
        raise InvalidFields(FieldFault("digest", "give one of window_s and daily_at"))
    return Digest(window_s=body.window_s, daily_at=body.daily_at)


def _parse_schema(document: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(document)) > SCHEMA_LIMIT_BYTES:
        reason = f"must take at most {SCHEMA_LIMIT_BYTES:,} bytes as JSON"
        raise InvalidFields(FieldFault("data_schema", reason))
    compile_schema("data_schema", document)
    return document


_PARSE: dict[str, Any] = {
    "display_name": _parse_display_name,
    "default_channels": _parse_channels,
    "priority": _parse_priority,
    "rate_limit": lambda body: RateLimit(**msgspec.structs.asdict(body)),
    "dedupe": lambda body: Dedupe(**msgspec.structs.asdict(body)),
    "digest": _parse_digest,
    "data_schema": _parse_schema,
}


def _view_digest(digest: Digest | None) -> DigestView | None:
    return DigestView(digest.window_s, digest.daily_at) if digest else None


def _view(definition: NotificationType) -> TypeView:
    return TypeView(
        type=definition.type,
        display_name=definition.display_name,
        category=definition.category,
        default_channels=list(definition.default_channels),
        priority=definition.priority.name.lower(),
        user_can_disable=definition.user_can_disable,
        is_active=definition.is_active,
        rate_limit=definition.rate_limit,
        dedupe=definition.dedupe,
        digest=_view_digest(definition.digest),
        data_schema=definition.data_schema,
        origin=_origin(definition),
    )


def _origin(definition: NotificationType) -> str:
    shipped = built_in.TYPES.get(definition.type)
    if shipped is None:
        return "own"
    return "built_in" if definition == shipped else "changed"
