"""Notification types over HTTP: built-in ones, and the app's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, delete, get, put
from msgspec import UNSET, UnsetType

from clarion.access.model import Scope
from clarion.catalog import built_in
from clarion.catalog.catalog import Catalog, apply_category
from clarion.catalog.entry import CatalogEntry
from clarion.catalog.model import (
    Category,
    CategoryDefinition,
    Channel,
    Dedupe,
    DedupeMode,
    Digest,
    NotificationType,
    Overflow,
    Priority,
    PriorityName,
    RateLimit,
)
from clarion.catalog.port import Sandbox
from clarion.catalog.sandbox.jobs import CheckSchema
from clarion.catalog.schemas import check_size
from clarion.catalog.sql import Types
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.fields import VISIBLE, documented, instead, is_plain
from clarion.http.bodies import Body, Checks, collect, given_checks
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.shapes import Items, check_limit, check_name
from clarion.http.views import View
from clarion.pages import PAGE_DEFAULT, cut_page

TYPES_LIMIT = 1_000
# Of all definitions of an app together: they are listed at once.
DEFINITIONS_LIMIT = 1 << 21
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_PRIORITIES: dict[str, Priority] = {priority.label: priority for priority in Priority}
TypeName = Annotated[
    str,
    msgspec.Meta(
        description="The name of the notification type.",
        examples=["POST_COMMENT"],
        extra_json_schema={"pattern": f"^{_NAME.pattern}$"},
    ),
]
Label = Annotated[
    str, msgspec.Meta(min_length=1, max_length=100, extra_json_schema={"pattern": VISIBLE})
]
_PRIORITY = instead(anyOf=[{"enum": list(PriorityName)}, {"enum": list(Priority)}])
PerHour = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seconds = Annotated[int, msgspec.Meta(ge=1, le=30 * 24 * 3_600)]


class RateLimitBody(Body):
    """How many notifications a user gets in an hour, and what happens to the rest."""

    per_user_per_hour: PerHour
    """How many notifications of the type a user gets in an hour."""
    overflow: Overflow = Overflow.DROP
    """What happens to those beyond."""


class DedupeBody(Body):
    """How long events with the same dedupe key are duplicates, and what happens to these."""

    window_s: Seconds
    """For how many seconds events with the same dedupe key are duplicates."""
    mode: DedupeMode = DedupeMode.DROP
    """What happens to a duplicate."""


class DigestBody(Body):
    """How long to collect: a window from the first event on, or daily until a time.

    The time is in the user's time zone.
    """

    window_s: Seconds | None = None
    """How many seconds to collect, from the first event on."""
    daily_at: Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] | None = None
    """The time of day at which to send the digest, HH:MM in the time zone of the user."""


class TypeBody(Body):
    """A type. A field left out has its default: for a built-in type, its built-in value."""

    display_name: Label | UnsetType = UNSET
    """The name of the type for people."""
    category: Annotated[str, msgspec.Meta(max_length=64)] | UnsetType = UNSET
    """The category, built-in or your own, which users can turn off."""
    default_channels: (
        Annotated[list[Channel], documented(minItems=1, uniqueItems=True)] | UnsetType
    ) = UNSET
    """The channels to use if an event names none."""
    optional_channels: Annotated[list[Channel], documented(uniqueItems=True)] | UnsetType = UNSET
    """Channels that are used only if they have a template."""
    priority: Annotated[str | int, _PRIORITY] | UnsetType = UNSET
    """How urgent it is: `low`, `medium`, `high` or `critical`, or 0 to 3."""
    user_can_disable: bool | UnsetType = UNSET
    """Whether the toggles of users apply."""
    is_active: bool | UnsetType = UNSET
    """Whether events of the type are sent at all."""
    rate_limit: RateLimitBody | UnsetType | None = UNSET
    """How many a user gets; null: any number."""
    dedupe: DedupeBody | UnsetType | None = UNSET
    """Which events count as duplicates; null: none."""
    digest: DigestBody | UnsetType | None = UNSET
    """How to collect several into one; null: each is sent separately."""
    data_schema: dict[str, Any] | UnsetType | None = UNSET
    """A JSON Schema for the `data` of events; null: any data."""
    send_when_read: bool | UnsetType = UNSET
    """Whether a push, email or SMS that had to wait is sent although the user has read it."""

    def checks(self, categories: Collection[str] | None = None) -> Checks:
        """Return the checks of the fields that are given; of the category if these are known."""
        return given_checks(self, partial(_check, categories))


class TypeView(View):
    """A type of the calling app. `origin` is `built_in`, `changed` or `own`."""

    type: str
    """The name of the type."""
    display_name: str
    """The name of the type for people."""
    category: str
    """The category, which users can turn off."""
    default_channels: list[Channel]
    """The channels to use if an event names none."""
    optional_channels: list[Channel]
    """Channels that are used only if they have a template."""
    priority: PriorityName
    """`low`, `medium`, `high` or `critical`."""
    user_can_disable: bool
    """Whether the toggles of users apply."""
    is_active: bool
    """Whether events of the type are sent at all."""
    rate_limit: RateLimit | None
    """How many a user gets; null: any number."""
    dedupe: Dedupe | None
    """Which events count as duplicates; null: none."""
    digest: Digest | None
    """How to collect several into one; null: each is sent separately."""
    data_schema: dict[str, Any] | None
    """A JSON Schema for the `data` of events; null: any data."""
    send_when_read: bool
    """Whether a push, email or SMS that had to wait is sent although the user has read it."""
    origin: Literal["built_in", "changed", "own"]
    """`built_in`, `changed` (built in, but changed by you) or `own`."""


class TypesController(Controller):
    """The notification types of the calling app."""

    path = "/v1/types"
    tags = ("Types",)

    @get(summary="List types")
    async def list_types(
        self,
        request: ApiRequest,
        catalog: Injected[Catalog],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[TypeView]:
        """Return all types, built-in ones included, sorted by name."""
        app_id = app_of(request, Scope.TYPES_READ).app_id
        size = check_limit(limit)
        types = [each for each in await catalog.list_types(app_id) if each.type > (after or "")]
        page = cut_page(types, size, lambda each: each.type)
        return Items([_view(each) for each in page.items], page.next)

    @get("/{type_name:str}", summary="Get a type")
    async def get_type(
        self, request: ApiRequest, type_name: TypeName, catalog: Injected[Catalog]
    ) -> TypeView:
        """Return the current definition of the type."""
        app_id = app_of(request, Scope.TYPES_READ).app_id
        return _view((await find_entry(catalog, app_id, type_name)).type)

    @put("/{type_name:str}", summary="Create or replace a type")
    async def put_type(
        self,
        request: ApiRequest,
        type_name: TypeName,
        data: TypeBody,
        types: Injected[Types],
        catalog: Injected[Catalog],
        sandbox: Injected[Sandbox],
        clock: Injected[Clock],
    ) -> TypeView:
        """Define the type. Built-in types can be changed, too."""
        app_id = app_of(request, Scope.TYPES_WRITE).app_id
        categories = await catalog.list_categories(app_id)
        definition = _define(type_name, data, categories)
        await _check_count(types, app_id, definition)
        if data.data_schema:
            answer = await sandbox.run(app_id, CheckSchema(data.data_schema))
            refuse(answer.faults)
        if not await types.put(app_id, definition, clock.now()):
            reason = f"the category {definition.category} was deleted"
            raise InvalidFields(FieldFault("category", reason))
        catalog.forget(app_id, type_name)
        category = next(each for each in categories if each.name == definition.category)
        return _view(apply_category(category, definition))

    @delete("/{type_name:str}", summary="Delete a type", status_code=204)
    async def delete_type(
        self,
        request: ApiRequest,
        type_name: TypeName,
        types: Injected[Types],
        catalog: Injected[Catalog],
    ) -> None:
        """Delete the type and its templates. A built-in type is reset to its built-in values."""
        app_id = app_of(request, Scope.TYPES_WRITE).app_id
        is_deleted = is_type_name(type_name) and await types.delete(app_id, type_name)
        catalog.forget(app_id, type_name)
        if not is_deleted:
            raise NotFound(
                f"There is no type {type_name!r} to delete, or it is built-in and unchanged. "
                "To disable a built-in type, set `is_active` to false."
            )


async def find_entry(catalog: Catalog, app_id: str, type_name: str) -> CatalogEntry:
    """Return the current entry of a type; `NotFound` if there is none."""
    entry = await catalog.read(app_id, type_name) if is_type_name(type_name) else None
    if entry is None:
        reason = await catalog.explain_missing(app_id, type_name)
        end = "" if reason.endswith("?") else "."
        advice = "Create a type with PUT /v1/types/{type}."
        raise NotFound(f"{reason[0].upper()}{reason[1:]}{end} {advice}")
    return entry


def is_type_name(text: str) -> bool:
    """Whether a type can have this name."""
    return _NAME.fullmatch(text) is not None


def _check_name(text: str) -> str:
    if not is_type_name(text):
        raise ValueError("must begin with a letter, and have 1 to 100 letters, digits or . _ -")
    return text


def refuse(faults: Sequence[FieldFault]) -> None:
    """Raise `InvalidFields` if there are faults."""
    if faults:
        raise InvalidFields(*faults)


async def _check_count(types: Types, app_id: str, definition: NotificationType) -> None:
    others, size = await types.measure(app_id, definition.type)
    if others >= TYPES_LIMIT:
        reason = f"an app can define at most {TYPES_LIMIT:,} types"
        raise InvalidFields(FieldFault("type", reason))
    if size + len(msgspec.json.encode(definition)) > DEFINITIONS_LIMIT:
        reason = f"the definitions of an app can have at most {DEFINITIONS_LIMIT:,} bytes together"
        raise InvalidFields(FieldFault("data_schema", reason))


def _define(
    name: str, data: TypeBody, categories: Collection[CategoryDefinition]
) -> NotificationType:
    known = {each.name: each for each in categories}
    given = collect({"type": partial(_check_name, name), **data.checks(known)})
    del given["type"]
    category = known[given.get("category", Category.TRANSACTIONAL.value)]
    default = NotificationType(
        type=name,
        display_name=name,
        category=category.name,
        default_channels=category.default_channels,
    )
    return replace(built_in.TYPES.get(name, default), **given)


def _check(categories: Collection[str] | None, field: str, value: Any) -> Any:
    if field == "category" and categories is not None:
        return check_name(categories, value)
    check = _CHECKS.get(field)
    return value if check is None or value is None else check(value)


def check_display_name(text: str) -> str:
    if not is_plain(text) or not text.strip():
        raise ValueError("must be text without control characters")
    return text


def check_channels(channels: list[Channel]) -> tuple[Channel, ...]:
    if not channels or len(set(channels)) != len(channels):
        raise ValueError("must name at least one channel, and none twice")
    return tuple(channels)


def _check_optional_channels(channels: list[Channel]) -> tuple[Channel, ...]:
    if len(set(channels)) != len(channels):
        raise ValueError("must name no channel twice")
    return tuple(channels)


def _check_priority(given: str | int) -> Priority:
    if isinstance(given, int) and given in set(Priority):
        return Priority(given)
    if given not in _PRIORITIES:
        raise ValueError(f"must be one of {', '.join(_PRIORITIES)}, or 0 to 3")
    return _PRIORITIES[str(given)]


def _check_digest(body: DigestBody) -> Digest:
    if (body.window_s is None) == (body.daily_at is None):
        raise ValueError("must have either window_s or daily_at")
    return Digest(window_s=body.window_s, daily_at=body.daily_at)


# A field that is not named here needs no check beyond its type.
_CHECKS: dict[str, Callable[[Any], object]] = {
    "display_name": check_display_name,
    "default_channels": check_channels,
    "optional_channels": _check_optional_channels,
    "priority": _check_priority,
    "rate_limit": lambda body: RateLimit(**msgspec.structs.asdict(body)),
    "dedupe": lambda body: Dedupe(**msgspec.structs.asdict(body)),
    "digest": _check_digest,
    "data_schema": check_size,
}


def _view(definition: NotificationType) -> TypeView:
    return TypeView.of(
        definition,
        priority=definition.priority.label,
        origin=_origin(definition),
    )


def _origin(definition: NotificationType) -> str:
    original = built_in.TYPES.get(definition.type)
    if original is None:
        return "own"
    return "built_in" if definition == original else "changed"


ROUTES = (TypesController,)
