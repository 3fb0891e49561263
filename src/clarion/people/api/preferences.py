"""Preferences over HTTP: a person's, for their app; and the user's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Controller, Request, get, patch, put
from litestar.params import Parameter
from msgspec import UNSET, UnsetType

from clarion import fields
from clarion.access.model import Scope, UserCaller, require_app
from clarion.catalog.model import Category, Channel, NotificationType
from clarion.catalog.port import Catalog
from clarion.clock import Clock
from clarion.errors import FieldFault, Forbidden, InvalidFields
from clarion.http.bodies import Body
from clarion.http.callers import caller_of
from clarion.http.dependencies import Injected, OnPersonChanged
from clarion.people import preferences as rules
from clarion.people.api.users import check_known, find_user, found
from clarion.people.model import Preferences, User
from clarion.people.port import Users

N = TypeVar("N", bound=StrEnum)
TYPES_LIMIT = 1_000
HOURS = 24
Explain = Annotated[bool, Parameter(description="Show for each value where it comes from.")]
Toggles = dict[str, bool | None]


class PreferencesBody(Body):
    """Preferences to set. Null takes a value back to its default.

    `PUT` puts all toggles and quiet hours that are left out back to their defaults, too; language
    and time zone stay unless they are given.
    """

    timezone: str | UnsetType | None = UNSET
    language: str | UnsetType | None = UNSET
    quiet_hours: list[bool] | UnsetType | None = UNSET
    categories: Toggles | UnsetType | None = UNSET
    types: dict[str, Toggles | None] | UnsetType | None = UNSET


class PreferencesView(msgspec.Struct):
    """What holds for a person. `quiet_hours` has a flag for each hour of their own clock."""

    timezone: str
    language: str
    quiet_hours: list[bool]
    categories: dict[str, bool]
    types: dict[str, dict[str, bool]]


class SettingView(msgspec.Struct):
    """A value, where it comes from, and what the person has set, if anything."""

    value: Any
    source: rules.Source
    set_to: Any


class ExplainedPreferences(msgspec.Struct):
    """What holds for a person, and why."""

    timezone: SettingView
    language: SettingView
    quiet_hours: SettingView
    categories: dict[str, SettingView]
    types: dict[str, dict[str, SettingView]]


_PATHS = ["/users/{user_id:str}/preferences", "/me/preferences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """A body, checked. What is None goes back to its default; what is unset stays."""

    person: dict[str, Any]
    quiet_hours: tuple[bool, ...] | UnsetType | None
    categories: dict[Category, bool | None] | UnsetType | None
    types: dict[str, dict[Channel, bool | None] | None] | UnsetType | None


class PreferencesController(Controller):
    """The preferences of a person, for their app; those of the user whose token calls."""

    path = "/v1"
    tags = ("Preferences",)

    @get(_PATHS, summary="See preferences")
    async def see(
        self,
        request: Request[Any, Any, Any],
        users: Injected[Users],
        catalog: Injected[Catalog],
        *,
        user_id: str | None = None,
        explain: Explain = False,
    ) -> PreferencesView | ExplainedPreferences:
        """Return what holds; with `explain`, where each value comes from."""
        app_id, person = _whose(request, user_id, Scope.USERS_READ)
        user = await find_user(users, app_id, person)
        types = await catalog.list_types(app_id)
        return _explain(user, types) if explain else _show(user, types)

    @put(_PATHS, summary="Replace preferences")
    async def put_all(
        self,
        request: Request[Any, Any, Any],
        data: PreferencesBody,
        users: Injected[Users],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        on_person_changed: Injected[OnPersonChanged],
        user_id: str | None = None,
    ) -> PreferencesView:
        """Set what is given; everything else has its default again."""
        app_id, person = _whose(request, user_id, Scope.USERS_WRITE)
        changes, now = await _check(app_id, data, catalog), clock.now()
        changed = await users.patch(
            app_id, person, lambda user: _change(user, Preferences(), changes, now)
        )
        await on_person_changed(app_id, found(changed).id)
        return _show(found(changed), await catalog.list_types(app_id))

    @patch(_PATHS, summary="Change preferences")
    async def change(
        self,
        request: Request[Any, Any, Any],
        data: PreferencesBody,
        users: Injected[Users],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
        on_person_changed: Injected[OnPersonChanged],
        user_id: str | None = None,
    ) -> PreferencesView:
        """Set what is given; everything else stays."""
        app_id, person = _whose(request, user_id, Scope.USERS_WRITE)
        changes, now = await _check(app_id, data, catalog), clock.now()
        changed = await users.patch(
            app_id, person, lambda user: _change(user, user.preferences, changes, now)
        )
        await on_person_changed(app_id, found(changed).id)
        return _show(found(changed), await catalog.list_types(app_id))


def _whose(request: Request[Any, Any, Any], user_id: str | None, scope: Scope) -> tuple[str, str]:
    """Return app and person; the path names the person unless it is about who calls."""
    caller = caller_of(request)
    if user_id is not None:
        return require_app(caller, scope).app_id, check_known(user_id)
    if not isinstance(caller, UserCaller):
        msg = "This is for users: call it with a user token."
        raise Forbidden(msg)
    return caller.app_id, check_known(caller.user_id)


async def _check(app_id: str, data: PreferencesBody, catalog: Catalog) -> _Changes:
    """Return the body, checked; `InvalidFields` names every fault at once."""
    faults: list[FieldFault] = []
    person = _check_person(data, faults)
    changes = _Changes(
        person=person,
        quiet_hours=_check_hours(data.quiet_hours, faults),
        categories=_check_categories(data.categories, faults),
        types=await _check_types(app_id, data.types, catalog, faults),
    )
    if faults:
        raise InvalidFields(*faults)
    return changes


def _check_person(data: PreferencesBody, faults: list[FieldFault]) -> dict[str, Any]:
    """Return language and time zone, if they are given."""
    checks = {
        "timezone": (data.timezone, fields.check_timezone, rules.DEFAULT_TIMEZONE),
        "language": (data.language, fields.check_language, rules.DEFAULT_LANGUAGE),
    }
    person = {}
    for name, (given, check, default) in checks.items():
        if isinstance(given, UnsetType):
            continue
        try:
            person[name] = default if given is None else check(given)
        except ValueError as error:
            faults.append(FieldFault(name, str(error)))
    return person


def _check_hours(
    given: list[bool] | UnsetType | None, faults: list[FieldFault]
) -> tuple[bool, ...] | UnsetType | None:
    if given is None or isinstance(given, UnsetType):
        return given
    if len(given) != HOURS:
        faults.append(FieldFault("quiet_hours", f"must have {HOURS} flags, one for each hour"))
    return tuple(given)


def _check_categories(
    given: Toggles | UnsetType | None, faults: list[FieldFault]
) -> dict[Category, bool | None] | UnsetType | None:
    if given is None or isinstance(given, UnsetType):
        return given
    return _check_names("categories", given, Category, faults)


async def _check_types(
    app_id: str,
    given: dict[str, Toggles | None] | UnsetType | None,
    catalog: Catalog,
    faults: list[FieldFault],
) -> dict[str, dict[Channel, bool | None] | None] | UnsetType | None:
    if given is None or isinstance(given, UnsetType):
        return given
    if len(given) > TYPES_LIMIT:
        faults.append(FieldFault("types", f"must name at most {TYPES_LIMIT:,} types"))
        return None
    types: dict[str, dict[Channel, bool | None] | None] = {}
    for name, toggles in given.items():
        # Toggles of a type that is gone can still be taken back.
        if toggles is not None and await catalog.find(app_id, name) is None:
            faults.append(FieldFault(f"types.{name}", "there is no such type"))
        types[name] = (
            None if toggles is None else _check_names(f"types.{name}", toggles, Channel, faults)
        )
    return types


def _check_names(
    place: str, toggles: Toggles, names: type[N], faults: list[FieldFault]
) -> dict[N, bool | None]:
    known = {each.value: each for each in names}
    for name in toggles:
        if name not in known:
            reason = f"must be one of {', '.join(known)}"
            faults.append(FieldFault(f"{place}.{name}", reason))
    return {known[name]: on for name, on in toggles.items() if name in known}


def _change(user: User, base: Preferences, changes: _Changes, now: int) -> User:
    hours, categories, types = changes.quiet_hours, changes.categories, changes.types
    preferences = Preferences(
        quiet_hours=base.quiet_hours if isinstance(hours, UnsetType) else hours,
        categories=base.categories
        if isinstance(categories, UnsetType)
        else rules.merge(base.categories, categories),
        types=base.types if isinstance(types, UnsetType) else rules.merge_types(base.types, types),
    )
    kept = rules.keep_differences(preferences)
    return replace(user, preferences=kept, **changes.person, updated_at=now)


def _show(user: User, types: tuple[NotificationType, ...]) -> PreferencesView:
    preferences = user.preferences
    return PreferencesView(
        timezone=user.timezone,
        language=user.language,
        quiet_hours=list(rules.explain_quiet_hours(preferences).value),
        categories={each: rules.explain_category(preferences, each).value for each in Category},
        types={
            each.type: {
                channel: rules.get_toggle(preferences, each, channel) for channel in rules.SHOWN
            }
            for each in types
        },
    )


def _explain(user: User, types: tuple[NotificationType, ...]) -> ExplainedPreferences:
    preferences = user.preferences
    return ExplainedPreferences(
        timezone=_setting(rules.explain_timezone(user)),
        language=_setting(rules.explain_language(user)),
        quiet_hours=_setting(rules.explain_quiet_hours(preferences)),
        categories={each: _setting(rules.explain_category(preferences, each)) for each in Category},
        types={
            each.type: {
                channel: _setting(rules.explain_channel(preferences, each, channel))
                for channel in rules.SHOWN
            }
            for each in types
        },
    )


def _setting(setting: rules.Setting[Any]) -> SettingView:
    return SettingView(setting.value, setting.source, setting.set_to)
