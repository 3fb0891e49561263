"""Users over HTTP: identified by the ids that the app gives them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from litestar import Controller, Response, get, patch, put
from litestar.openapi import ResponseSpec
from msgspec import UNSET, UnsetType

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import NotFound
from clarion.fields import check_user_id
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, app_of, owner_of
from clarion.http.dependencies import Injected, OnUserChanged
from clarion.http.shapes import check_value, collect, given_checks
from clarion.http.views import Timestamp, View
from clarion.people.erasure.eraser import Eraser
from clarion.people.fields import check_attributes, check_field
from clarion.people.model import User, UserStatus
from clarion.people.port import Users

T = TypeVar("T")
# Null stands for the default; a field that is left out is unset.
Given: TypeAlias = T | UnsetType | None


class UserBody(Body):
    """The fields of a user. Null resets a field to its default."""

    name: Given[str] = UNSET
    email: Given[str] = UNSET
    phone: Given[str] = UNSET
    language: Given[str] = UNSET
    timezone: Given[str] = UNSET
    status: Given[UserStatus] = UNSET
    tags: Given[list[str]] = UNSET
    attributes: Given[dict[str, Any]] = UNSET


class UserView(View):
    """A user of the calling app."""

    id: str
    name: str | None
    email: str | None
    phone: str | None
    language: str
    timezone: str
    status: UserStatus
    tags: list[str]
    attributes: dict[str, Any]
    created_at: Timestamp
    updated_at: Timestamp


class UsersController(Controller):
    """The users of the calling app."""

    path = "/v1/users/{user_id:str}"
    tags = ("Users",)

    @put(
        summary="Create or replace a user",
        responses={201: ResponseSpec(UserView, description="The user was created.")},
    )
    async def put_user(
        self,
        request: ApiRequest,
        user_id: str,
        data: UserBody,
        users: Injected[Users],
        clock: Injected[Clock],
        eraser: Injected[Eraser],
        on_user_changed: Injected[OnUserChanged],
    ) -> Response[UserView]:
        """Create (201) or replace (200) a user. Fields left out get their defaults.

        The preferences of an existing user stay.
        """
        app_id = app_of(request, Scope.USERS_WRITE).app_id
        now = clock.now()
        given = collect({"id": partial(check_user_id, user_id), **given_checks(data, check_field)})
        await eraser.check_writable(app_id, user_id)
        user, is_new = await users.put(User(app_id=app_id, created_at=now, updated_at=now, **given))
        # A user may have been connected before they were created.
        if not is_new or user.status is not UserStatus.ACTIVE:
            await on_user_changed(app_id, user_id)
        return Response(UserView.of(user), status_code=201 if is_new else 200)

    @get(summary="Get a user")
    async def get_user(self, request: ApiRequest, user_id: str, users: Injected[Users]) -> UserView:
        """Return the user, whether active or not."""
        owner = owner_of(request, user_id, Scope.USERS_READ)
        return UserView.of(check_found(await users.get(*owner)))

    @patch(summary="Update a user")
    async def patch_user(
        self,
        request: ApiRequest,
        user_id: str,
        data: UserBody,
        users: Injected[Users],
        clock: Injected[Clock],
        on_user_changed: Injected[OnUserChanged],
    ) -> UserView:
        """Update the given fields. Attributes are merged by name; null removes one."""
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        given = collect(given_checks(data, check_field))
        now = clock.now()

        def edit(user: User) -> User:
            edited = replace(user, **given, updated_at=now)
            if isinstance(data.attributes, dict):
                return replace(edited, attributes=_merge(user.attributes, data.attributes))
            return edited

        user = check_found(await users.patch(*owner, edit))
        await on_user_changed(*owner)
        return UserView.of(user)


def check_found(user: User | None) -> User:
    """Return the user; `NotFound` if there is none."""
    if user is None:
        raise NotFound("This app has no such user. Create it with PUT /v1/users/{id}.")
    return user


def _merge(old: dict[str, object], new: dict[str, Any]) -> dict[str, object]:
    merged = {name: value for name, value in {**old, **new}.items() if value is not None}
    return check_value("attributes", check_attributes, merged)


ROUTES = (UsersController,)
