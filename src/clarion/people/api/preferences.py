"""Preferences over HTTP: for the app under the user's id, for the user under `/v1/me`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from litestar import Controller, get, route
from litestar.enums import HttpMethod
from litestar.params import Parameter
from msgspec import UNSET

from clarion.access.model import Scope
from clarion.catalog.model import CategoryDefinition, Channel, NotificationType
from clarion.catalog.port import Catalog
from clarion.clock import Clock
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, owner_of
from clarion.http.dependencies import Injected, OnUserChanged
from clarion.http.shapes import Toggles, check_toggle_names, check_toggles, collect, given_checks
from clarion.http.views import View
from clarion.people import preferences as rules
from clarion.people.api.shapes import Given
from clarion.people.api.users import check_found
from clarion.people.fields import check_field
from clarion.people.model import Preferences, User
from clarion.people.port import Users
from clarion.people.preferences import TOGGLED_CHANNELS, Setting
from clarion.quiet_hours import GivenQuietHours, QuietHours, QuietWindow, check_quiet_hours

T = TypeVar("T")
TYPES_LIMIT = 1_000
Explain = Annotated[bool, Parameter(description="Show the source of each value.")]
_USER_FIELDS = ("timezone", "language")
_PATHS = ["/users/{user_id:str}/preferences", "/me/preferences"]


class _Known(NamedTuple):
    """What a user can set preferences for."""

    categories: tuple[CategoryDefinition, ...]
    types: tuple[NotificationType, ...]


class PreferencesBody(Body):
    """Preferences to set. Null resets a value to its default."""

    timezone: Given[str] = UNSET
    language: Given[str] = UNSET
    quiet_hours: Given[GivenQuietHours] = UNSET
    categories: Given[Toggles] = UNSET
    types: Given[dict[str, Toggles | None]] = UNSET


class PreferencesView(View):
    """The effective preferences. `quiet_hours` are flags or windows, as they were set."""

    timezone: str
    language: str
    quiet_hours: list[bool | QuietWindow]
    categories: dict[str, bool]
    types: dict[str, dict[str, bool]]


class ExplainedPreferences(View):
    """The effective preferences, the source of each, and what the user has set."""

    timezone: Setting[str]
    language: Setting[str]
    quiet_hours: Setting[QuietHours]
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
        known = await _read_known(catalog, user.app_id)
        return _explain(user, known) if explain else _view(user, known)

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
        known = await _read_known(catalog, owner[0])
        toggles = collect(given_checks(data, partial(_check, known)))
        fields = {name: toggles.pop(name) for name in _USER_FIELDS if name in toggles}
        now = clock.now()

        def edit(user: User) -> User:
            old = Preferences() if request.method == HttpMethod.PUT else user.preferences
            preferences = rules.update(old, **toggles)
            return replace(user, **fields, preferences=preferences, updated_at=now)

        user = check_found(await users.patch(*owner, edit))
        await on_user_changed(*owner)
        return _view(user, known)


async def _read_known(catalog: Catalog, app_id: str) -> _Known:
    return _Known(await catalog.list_categories(app_id), await catalog.list_types(app_id))


def _check(known: _Known, name: str, value: Any) -> Any:
    if name in _USER_FIELDS:
        return check_field(name, value)
    if value is None:
        return None
    match name:
        case "quiet_hours":
            return check_quiet_hours(value)
        case "categories":
            return check_toggle_names(name, value, [each.name for each in known.categories])
        case _:
            return _check_types(value, {each.type for each in known.types})


def _check_types(types: dict[str, Toggles | None], known: Collection[str]) -> dict[str, Any]:
    if len(types) > TYPES_LIMIT:
        raise ValueError(f"must name at most {TYPES_LIMIT:,} types")
    checks = {f"types.{name}": partial(_check_type, known, name, types[name]) for name in types}
    return dict(zip(types, collect(checks).values(), strict=True))


def _check_type(
    known: Collection[str], name: str, toggles: Toggles | None
) -> dict[Channel, bool | None] | None:
    if toggles is None:  # those of a type that was deleted can still be reset
        return None
    if name not in known:
        raise ValueError("there is no such type")
    return check_toggles(f"types.{name}", toggles, Channel)


def _view(user: User, known: _Known) -> PreferencesView:
    preferences = user.preferences
    return PreferencesView.of(
        user,
        quiet_hours=rules.explain_quiet_hours(preferences).value,
        categories={
            each.name: rules.explain_category(preferences, each).value for each in known.categories
        },
        types=_by_type(user, known.types, rules.get_toggle),
    )


def _explain(user: User, known: _Known) -> ExplainedPreferences:
    return ExplainedPreferences(
        timezone=rules.explain_timezone(user),
        language=rules.explain_language(user),
        quiet_hours=rules.explain_quiet_hours(user.preferences),
        categories={
            each.name: rules.explain_category(user.preferences, each) for each in known.categories
        },
        types=_by_type(user, known.types, rules.explain_channel),
    )


def _by_type(
    user: User,
    types: Collection[NotificationType],
    rule: Callable[[Preferences, NotificationType, Channel], T],
) -> dict[str, dict[str, T]]:
    return {
        each.type: {channel: rule(user.preferences, each, channel) for channel in TOGGLED_CHANNELS}
        for each in types
    }


ROUTES = (PreferencesController,)
