"""Preferences over HTTP: for the app under the user's id, for the user under `/v1/me`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

from litestar import Controller, get, route
from litestar.enums import HttpMethod
from litestar.params import Parameter
from msgspec import UNSET

from clarion.access.model import Scope
from clarion.catalog.model import Category, Channel
from clarion.catalog.port import Catalog
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, owner_of
from clarion.http.dependencies import Injected, OnUserChanged
from clarion.http.shapes import collect
from clarion.http.views import View
from clarion.people import preferences as rules
from clarion.people.api.users import Given, check_found, field_checks
from clarion.people.model import Preferences, User
from clarion.people.port import Users
from clarion.people.preferences import TOGGLED_CHANNELS, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from clarion.catalog.model import NotificationType

N = TypeVar("N", bound=StrEnum)
TYPES_LIMIT = 1_000
HOURS = 24
Explain = Annotated[bool, Parameter(description="Show the source of each value.")]
Toggles = dict[str, bool | None]
_USER_FIELDS = ("timezone", "language")
_PATHS = ["/users/{user_id:str}/preferences", "/me/preferences"]


class PreferencesBody(Body):
    """Preferences to set. Null resets a value to its default."""

    timezone: Given[str] = UNSET
    language: Given[str] = UNSET
    quiet_hours: Given[list[bool]] = UNSET
    categories: Given[Toggles] = UNSET
    types: Given[dict[str, Toggles | None]] = UNSET


class PreferencesView(View):
    """The effective preferences. `quiet_hours` has a flag for each hour in the user's time zone."""

    timezone: str
    language: str
    quiet_hours: list[bool]
    categories: dict[str, bool]
    types: dict[str, dict[str, bool]]


class ExplainedPreferences(View):
    """The effective preferences, the source of each, and what the user has set."""

    timezone: Setting[str]
    language: Setting[str]
    quiet_hours: Setting[tuple[bool, ...]]
    categories: dict[str, Setting[bool]]
    types: dict[str, dict[str, Setting[bool]]]


class PreferencesController(Controller):
    """The preferences of a user, for the app; of the calling user under `/v1/me`."""

    path = "/v1"
    tags = ("Preferences",)

    @get(_PATHS, summary="Get preferences")
    async def get_preferences(
        self,
        request: ApiRequest,
        users: Injected[Users],
        catalog: Injected[Catalog],
        *,
        user_id: str | None = None,
        explain: Explain = False,
    ) -> PreferencesView | ExplainedPreferences:
        """Return the effective preferences; with `explain`, the source of each value."""
        owner = owner_of(request, user_id, Scope.USERS_READ)
        user = check_found(await users.get(*owner))
        types = await catalog.list_types(user.app_id)
        return _explain(user, types) if explain else _view(user, types)

    @route(_PATHS, http_method=[HttpMethod.PUT, HttpMethod.PATCH], summary="Set preferences")
    async def set_preferences(
        self,
        request: ApiRequest,
        data: PreferencesBody,
        users: Injected[Users],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        on_user_changed: Injected[OnUserChanged],
        user_id: str | None = None,
    ) -> PreferencesView:
        """Set the given values. What is left out stays with `PATCH`.

        With `PUT` it is reset to its default, except for language and time zone.
        """
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        types = await catalog.list_types(owner[0])
        toggles = collect(_checks(data, {each.type for each in types}))
        fields = {name: toggles.pop(name) for name in _USER_FIELDS if name in toggles}
        now = clock.now()

        def edit(user: User) -> User:
            old = Preferences() if request.method == HttpMethod.PUT else user.preferences
            preferences = rules.update(old, **toggles)
            return replace(user, **fields, preferences=preferences, updated_at=now)

        user = check_found(await users.patch(*owner, edit))
        await on_user_changed(*owner)
        return _view(user, types)


def _checks(data: PreferencesBody, known: Collection[str]) -> dict[str, Callable[[], object]]:
    checks = field_checks(data, *_USER_FIELDS)
    if data.quiet_hours is not UNSET:
        checks["quiet_hours"] = partial(_check_hours, data.quiet_hours)
    if data.categories is not UNSET:
        checks["categories"] = partial(_check_toggles, "categories", data.categories, Category)
    if data.types is not UNSET:
        checks["types"] = partial(_check_types, data.types, known)
    return checks


def _check_hours(hours: list[bool] | None) -> tuple[bool, ...] | None:
    if hours is None:
        return None
    if len(hours) != HOURS:
        msg = f"must have {HOURS} flags, one for each hour"
        raise ValueError(msg)
    return tuple(hours)


def _check_types(
    types: dict[str, Toggles | None] | None, known: Collection[str]
) -> dict[str, dict[Channel, bool | None] | None] | None:
    if types is None:
        return None
    if len(types) > TYPES_LIMIT:
        msg = f"must name at most {TYPES_LIMIT:,} types"
        raise ValueError(msg)
    checks = {
        f"types.{name}": partial(_check_type, name, toggles, known)
        for name, toggles in types.items()
    }
    return dict(zip(types, collect(checks).values(), strict=True))


def _check_type(
    name: str, toggles: Toggles | None, known: Collection[str]
) -> dict[Channel, bool | None] | None:
    # The toggles of a type that was deleted can still be reset.
    if toggles is not None and name not in known:
        msg = "there is no such type"
        raise ValueError(msg)
    return _check_toggles(f"types.{name}", toggles, Channel)


def _check_toggles(
    place: str, toggles: Toggles | None, names: type[N]
) -> dict[N, bool | None] | None:
    if toggles is None:
        return None
    known = {each.value: each for each in names}
    reason = f"must be one of {', '.join(known)}"
    if faults := [FieldFault(f"{place}.{name}", reason) for name in toggles if name not in known]:
        raise InvalidFields(*faults)
    return {known[name]: on for name, on in toggles.items()}


def _view(user: User, types: Collection[NotificationType]) -> PreferencesView:
    preferences = user.preferences
    return PreferencesView.of(
        user,
        quiet_hours=rules.explain_quiet_hours(preferences).value,
        categories={each: rules.explain_category(preferences, each).value for each in Category},
        types={
            each.type: {
                channel: rules.get_toggle(preferences, each, channel)
                for channel in TOGGLED_CHANNELS
            }
            for each in types
        },
    )


def _explain(user: User, types: Collection[NotificationType]) -> ExplainedPreferences:
    preferences = user.preferences
    return ExplainedPreferences(
        timezone=rules.explain_timezone(user),
        language=rules.explain_language(user),
        quiet_hours=rules.explain_quiet_hours(preferences),
        categories={each: rules.explain_category(preferences, each) for each in Category},
        types={
            each.type: {
                channel: rules.explain_channel(preferences, each, channel)
                for channel in TOGGLED_CHANNELS
            }
            for each in types
        },
    )


ROUTES = (PreferencesController,)
