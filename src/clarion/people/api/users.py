"""People over HTTP: known by the ids that the app gives them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Controller, Request, Response, get, patch, put
from msgspec import UNSET, UnsetType

from clarion import fields
from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.http.bodies import Body
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected, OnPersonChanged
from clarion.http.shapes import collect, to_wire
from clarion.people.model import User, UserStatus
from clarion.people.port import Users
from clarion.people.preferences import DEFAULT_LANGUAGE, DEFAULT_TIMEZONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ATTRIBUTES_LIMIT_BYTES = 16_384
_DEFAULTS: dict[str, object] = {
    "name": None,
    "email": None,
    "phone": None,
    "language": DEFAULT_LANGUAGE,
    "timezone": DEFAULT_TIMEZONE,
    "status": UserStatus.ACTIVE,
    "tags": (),
    "attributes": {},
}


class PersonBody(Body):
    """What is known of a person. Null is the default, which is what `PUT` takes if left out."""

    name: str | UnsetType | None = UNSET
    email: str | UnsetType | None = UNSET
    phone: str | UnsetType | None = UNSET
    language: str | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    status: UserStatus | UnsetType | None = UNSET
    tags: list[str] | UnsetType | None = UNSET
    attributes: dict[str, Any] | UnsetType | None = UNSET


class PersonView(msgspec.Struct):
    """A person as their app sees them."""

    id: str
    name: str | None
    email: str | None
    phone: str | None
    language: str
    timezone: str
    status: UserStatus
    tags: list[str]
    attributes: dict[str, Any]
    created_at: str | None
    updated_at: str | None


class PeopleController(Controller):
    """The people of the calling app."""

    path = "/v1/users/{user_id:str}"
    tags = ("People",)

    @put(summary="Add a person, or replace what is known of them")
    async def put_person(
        self,
        request: Request[Any, Any, Any],
        user_id: str,
        data: PersonBody,
        users: Injected[Users],
        clock: Injected[Clock],
        on_person_changed: Injected[OnPersonChanged],
    ) -> Response[PersonView]:
        """Add (201) or replace (200). What is left out has its default; preferences stay."""
        caller = app_of(request, Scope.USERS_WRITE)
        now = clock.now()
        user = User(
            app_id=caller.app_id,
            created_at=now,
            updated_at=now,
            **collect({"id": partial(fields.check_user_id, user_id), **_checks(data)}),
        )
        stored, is_new = await users.put(user)
        if not is_new:
            await on_person_changed(caller.app_id, user_id)
        return Response(_view(stored), status_code=201 if is_new else 200)

    @get(summary="See a person")
    async def see_person(
        self, request: Request[Any, Any, Any], user_id: str, users: Injected[Users]
    ) -> PersonView:
        """Return the person, active or not."""
        caller = app_of(request, Scope.USERS_READ)
        return _view(await find_user(users, caller.app_id, user_id))

    @patch(summary="Change what is known of a person")
    async def change_person(
        self,
        request: Request[Any, Any, Any],
        user_id: str,
        data: PersonBody,
        users: Injected[Users],
        clock: Injected[Clock],
        on_person_changed: Injected[OnPersonChanged],
    ) -> PersonView:
        """Take over what is given; null is the default. Attributes are merged, null removes one."""
        caller = app_of(request, Scope.USERS_WRITE)
        changes = collect(_checks(data))
        now = clock.now()
        changed = found(
            await users.patch(
                caller.app_id, check_known(user_id), lambda user: _change(user, changes, now)
            )
        )
        await on_person_changed(caller.app_id, user_id)
        return _view(changed)


async def find_user(users: Users, app_id: str, user_id: str) -> User:
    """Return a person; `NotFound` if the app has none such."""
    return found(await users.get(app_id, check_known(user_id)))


def check_known(user_id: str) -> str:
    """Return the id, if there can be a person with it at all."""
    return user_id if fields.is_user_id(user_id) else found(None).id


def found(user: User | None) -> User:
    """Return the person, if there is one."""
    if user is None:
        msg = "This app has no such person; PUT /v1/users/{id} adds one."
        raise NotFound(msg)
    return user


def _checks(data: PersonBody) -> Mapping[str, Callable[[], object]]:
    given: dict[str, Any] = {
        name: value for name in _DEFAULTS if (value := getattr(data, name)) is not UNSET
    }
    return {name: partial(_check, name, value) for name, value in given.items()}


def _check(name: str, value: Any) -> object:
    return _DEFAULTS[name] if value is None else _CHECKS[name](value)


def _check_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(attributes)) > ATTRIBUTES_LIMIT_BYTES:
        msg = f"must take at most {ATTRIBUTES_LIMIT_BYTES:,} bytes as JSON"
        raise ValueError(msg)
    return attributes


_CHECKS: dict[str, Callable[[Any], object]] = {
    "name": fields.check_name,
    "email": fields.check_email,
    "phone": fields.check_phone,
    "language": fields.check_language,
    "timezone": fields.check_timezone,
    "status": UserStatus,
    "tags": fields.check_tags,
    "attributes": _check_attributes,
}


def _change(user: User, changes: dict[str, Any], now: int) -> User:
    merged = dict(changes)
    if merged.get("attributes"):
        merged["attributes"] = _merge_attributes(user.attributes, merged["attributes"])
    return replace(user, **merged, updated_at=now)


def _merge_attributes(old: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    attributes = {key: value for key, value in {**old, **new}.items() if value is not None}
    try:
        return _check_attributes(attributes)
    except ValueError as error:
        raise InvalidFields(FieldFault("attributes", str(error))) from error


def _view(user: User) -> PersonView:
    return PersonView(
        id=user.id,
        name=user.name,
        email=user.email,
        phone=user.phone,
        language=user.language,
        timezone=user.timezone,
        status=user.status,
        tags=list(user.tags),
        attributes=user.attributes,
        created_at=to_wire(user.created_at),
        updated_at=to_wire(user.updated_at),
    )
