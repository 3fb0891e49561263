"""Preferences over HTTP: for the app under the user's id, for the user under `/v1/me`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from litestar import Controller, get, patch, put
from litestar.params import Parameter
from msgspec import UNSET

from clarion.access.model import Scope
from clarion.catalog.model import CategoryDefinition, Channel, NotificationType
from clarion.catalog.port import Catalog
from clarion.clock import Clock
from clarion.fields import LanguageTag, TimezoneName, UserId, documented
from clarion.http.bodies import Body, Checks, collect, given_checks
from clarion.http.callers import ApiRequest, owner_of
from clarion.http.dependencies import Injected, OnUserChanged
from clarion.http.shapes import Toggles, check_toggle_names, check_toggles
from clarion.http.views import View
from clarion.people import preferences as rules
from clarion.people.api.shapes import Given
from clarion.people.api.users import check_found
from clarion.people.fields import check_field
from clarion.people.model import Preferences, User
from clarion.people.model.quiet_hours import (
    QUIET_HOURS,
    GivenQuietHours,
    QuietHours,
    QuietWindow,
    check_quiet_hours,
)
from clarion.people.preferences import TOGGLED_CHANNELS, PreferenceSource, Setting
from clarion.people.sql import Users

T = TypeVar("T")
ChannelToggles = Annotated[Toggles, documented(propertyNames={"enum": list(Channel)})]
TYPES_LIMIT = 1_000
Explain = Annotated[bool, Parameter(description="Show the source of each value.")]
_USER_FIELDS = ("timezone", "language")
_PATHS = ["/users/{user_id:str}/preferences", "/me/preferences"]


class _Known(NamedTuple):
    """The categories and types that a user can set preferences for."""

    categories: tuple[CategoryDefinition, ...]
    types: tuple[NotificationType, ...]


class PreferencesBody(Body):
    """Preferences to set. Null resets a value to its default."""

    timezone: Given[TimezoneName] = UNSET
    """The time zone in which quiet hours and daily digests apply, an IANA name."""
    language: Given[LanguageTag] = UNSET
    """The language of texts, a tag like pt-BR."""
    quiet_hours: Annotated[Given[GivenQuietHours], QUIET_HOURS] = UNSET
    """When pushes, email and SMS are held: windows, or 24 flags, one for each hour from midnight.
    """
    categories: Given[Toggles] = UNSET
    """Whether notifications of a category are sent, by category."""
    types: Annotated[
        Given[dict[str, ChannelToggles | None]], documented(maxProperties=TYPES_LIMIT)
    ] = UNSET
    """Whether a type is sent on a channel, by type and channel."""

    def checks(self, known: _Known | None = None) -> Checks:
        """Return the checks of the given values; for categories and types, if these are known."""
        return given_checks(self, partial(_check, known))


class PreferencesView(View):
    """The effective preferences. `quiet_hours` are flags or windows, as they were set."""

    timezone: str
    """The time zone in which quiet hours and daily digests apply, an IANA name."""
    language: str
    """The language of texts, a tag like pt-BR."""
    quiet_hours: list[bool | QuietWindow]
    """When pushes, email and SMS are held: windows, or 24 flags, as they were set."""
    categories: dict[str, bool]
    """Whether notifications of a category are sent, by category."""
    types: dict[str, dict[str, bool]]
    """Whether a type is sent on a channel, by type and channel, all in all: also false if its
    category is off.
    """


class TextSetting(View):
    """An effective text, its source, and what the user has set."""

    value: str
    """What applies."""
    source: PreferenceSource
    """Where it comes from."""
    set_to: str | None
    """What the user has set; null if nothing."""


class FlagSetting(View):
    """An effective flag, its source, and what the user has set."""

    value: bool
    """What applies."""
    source: PreferenceSource
    """Where it comes from."""
    set_to: bool | None
    """What the user has set, even if it does not apply; null if nothing."""


class QuietHoursSetting(View):
    """The effective quiet hours, their source, and what the user has set."""

    value: QuietHours
    """What applies: windows, or 24 flags."""
    source: PreferenceSource
    """Where it comes from."""
    set_to: QuietHours | None
    """What the user has set; null if nothing."""


class ExplainedPreferences(View):
    """The effective preferences, the source of each, and what the user has set."""

    timezone: TextSetting
    """The time zone in which quiet hours and daily digests apply, an IANA name."""
    language: TextSetting
    """The language of texts, a tag like pt-BR."""
    quiet_hours: QuietHoursSetting
    """When pushes, email and SMS are held: windows, or 24 flags, one for each hour from midnight.
    """
    categories: dict[str, FlagSetting]
    """Whether notifications of a category are sent, by category."""
    types: dict[str, dict[str, FlagSetting]]
    """Whether a type is sent on a channel, by type and channel."""


class PreferencesController(Controller):
    """The preferences of a user: for the app, or under `/v1/me` for the calling user."""

    path = "/v1"
    tags = ("Preferences",)

    @get(_PATHS, summary="Get preferences")
    async def get_preferences(
        self,
        request: ApiRequest,
        users: Injected[Users],
        catalog: Injected[Catalog],
        *,
        user_id: UserId | None = None,
        explain: Explain = False,
    ) -> PreferencesView | ExplainedPreferences:
        """Return the effective preferences; with `explain`, the source of each value."""
        owner = owner_of(request, user_id, Scope.USERS_READ)
        user = check_found(await users.get(*owner), owner[1])
        known = await _read_known(catalog, user.app_id)
        return _explain(user, known) if explain else _view(user, known)

    @put(_PATHS, summary="Replace preferences")
    async def replace_preferences(
        self,
        request: ApiRequest,
        data: PreferencesBody,
        users: Injected[Users],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        on_user_changed: Injected[OnUserChanged],
        user_id: UserId | None = None,
    ) -> PreferencesView:
        """Set the given values and reset the others, except for language and time zone."""
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        known = await _read_known(catalog, owner[0])
        change = partial(rules.replace_preferences, {each.type: each for each in known.types})
        user = await _change(owner, data, known, users, clock.now(), change)
        await on_user_changed(*owner)
        return _view(user, known)

    @patch(_PATHS, summary="Update preferences")
    async def update_preferences(
        self,
        request: ApiRequest,
        data: PreferencesBody,
        users: Injected[Users],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        on_user_changed: Injected[OnUserChanged],
        user_id: UserId | None = None,
    ) -> PreferencesView:
        """Set the given values; the others stay."""
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        known = await _read_known(catalog, owner[0])
        user = await _change(owner, data, known, users, clock.now(), rules.update)
        await on_user_changed(*owner)
        return _view(user, known)


async def _change(
    owner: tuple[str, str],
    data: PreferencesBody,
    known: _Known,
    users: Users,
    now: int,
    change: Callable[..., Preferences],
) -> User:
    toggles = collect(data.checks(known))
    fields = {name: toggles.pop(name) for name in _USER_FIELDS if name in toggles}

    def edit(user: User) -> User:
        preferences = change(user.preferences, **toggles)
        return replace(user, **fields, preferences=preferences, updated_at=now)

    return check_found(await users.patch(*owner, edit), owner[1])


async def _read_known(catalog: Catalog, app_id: str) -> _Known:
    return _Known(await catalog.list_categories(app_id), await catalog.list_types(app_id))


def _check(known: _Known | None, name: str, value: Any) -> Any:
    if name in _USER_FIELDS:
        return check_field(name, value)
    if value is None:
        return None
    if name == "quiet_hours":
        return check_quiet_hours(value)
    if known is None:
        return value
    match name:
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
        types=_by_type(user, known.types, lambda setting: setting.value),
    )


def _explain(user: User, known: _Known) -> ExplainedPreferences:
    own = user.preferences
    return ExplainedPreferences(
        timezone=TextSetting.of(rules.explain_timezone(user)),
        language=TextSetting.of(rules.explain_language(user)),
        quiet_hours=QuietHoursSetting.of(rules.explain_quiet_hours(own)),
        categories={
            each.name: FlagSetting.of(rules.explain_category(own, each))
            for each in known.categories
        },
        types=_by_type(user, known.types, FlagSetting.of),
    )


def _by_type(
    user: User, types: Collection[NotificationType], show: Callable[[Setting[bool]], T]
) -> dict[str, dict[str, T]]:
    own = user.preferences
    return {
        each.type: {
            channel: show(rules.explain_channel(own, each, channel)) for channel in TOGGLED_CHANNELS
        }
        for each in types
    }


ROUTES = (PreferencesController,)
