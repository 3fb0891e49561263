"""Users over HTTP: identified by the ids that the app gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from litestar import Controller, Response, get, patch, put
from litestar.di import Provide
from litestar.params import Parameter

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import Conflict, existing
from clarion.fields import (
    USER_ID,
    VISIBLE,
    LanguageTag,
    UserId,
    check_language,
    check_user_id,
    explain_missing_user,
)
from clarion.http.bodies import collect
from clarion.http.callers import ApiRequest, app_of, owner_of
from clarion.http.dependencies import Injected, OnUserChanged
from clarion.http.parameters import After, Limit
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_choice, check_limit, read_moment
from clarion.pages import PAGE_DEFAULT
from clarion.people.api.shapes import (
    UserBody,
    UserView,
    make_user,
    read_fields,
    update_user,
    view_user,
)
from clarion.people.erasure.eraser import Eraser
from clarion.people.fields import check_name
from clarion.people.model import User, UserFilter, UserStatus
from clarion.people.sql import Users

_TIME = {"format": "date-time"}
_IDS_LIMIT = 100
Email = Annotated[
    str | None, Parameter(description="The email address; upper and lower case make no difference.")
]
Ids = Annotated[
    str | None,
    Parameter(
        description=f"Only these users: up to {_IDS_LIMIT} ids, with commas.",
        schema_extra={"pattern": f"^{USER_ID}(,{USER_ID}){{0,{_IDS_LIMIT - 1}}}$"},
    ),
]
Name = Annotated[
    str | None,
    Parameter(
        description="Only users whose name begins with this; the case of A to Z does not matter.",
        schema_extra={"minLength": 1, "maxLength": 200, "pattern": VISIBLE},
    ),
]
Status = Annotated[
    str | None,
    Parameter(
        description="Only active or only inactive users.",
        schema_extra={"enum": list(UserStatus)},
    ),
]
Tag = Annotated[str | None, Parameter(description="Only users who have this tag.")]
Language = Annotated[
    LanguageTag | None, Parameter(description="Only users with this language, like pt-BR.")
]
CreatedAfter = Annotated[
    str | None, Parameter(description="Created at this time or later.", schema_extra=_TIME)
]
CreatedBefore = Annotated[
    str | None, Parameter(description="Created before this time.", schema_extra=_TIME)
]
LastSeenAfter = Annotated[
    str | None, Parameter(description="Last seen at this time or later.", schema_extra=_TIME)
]
LastSeenBefore = Annotated[
    str | None, Parameter(description="Last seen before this time.", schema_extra=_TIME)
]


def read_filter(  # noqa: PLR0913, PLR0917 - each is a parameter of the request
    ids: Ids = None,
    name: Name = None,
    email: Email = None,
    status: Status = None,
    tag: Tag = None,
    language: Language = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    last_seen_after: LastSeenAfter = None,
    last_seen_before: LastSeenBefore = None,
) -> UserFilter:
    """Return the conditions of a list; `InvalidFields` names those that are not valid."""
    moments = {
        "created_after": created_after,
        "created_before": created_before,
        "last_seen_after": last_seen_after,
        "last_seen_before": last_seen_before,
    }
    checks: dict[str, Callable[[], object]] = {
        name: partial(read_moment, text, name) for name, text in moments.items()
    }
    if ids is not None:
        checks["ids"] = partial(_read_ids, ids)
    if name is not None:
        checks["name"] = partial(check_name, name)
    if status is not None:
        checks["status"] = partial(check_choice, UserStatus, status)
    if language is not None:
        checks["language"] = partial(check_language, language)
    return UserFilter(email=email, tag=tag, **collect(checks))


def _read_ids(text: str) -> tuple[str, ...]:
    ids = text.split(",")
    if len(ids) > _IDS_LIMIT:
        raise ValueError(f"must have at most {_IDS_LIMIT} ids")
    return tuple(map(check_user_id, ids))


@get(
    "/v1/users",
    summary="List users",
    tags=["Users"],
    dependencies={"chosen": Provide(read_filter, sync_to_thread=False)},
)
async def list_users(
    request: ApiRequest,
    users: Injected[Users],
    chosen: Injected[UserFilter],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[UserView]:
    """Return the users for whom all given conditions hold.

    Sorted by id; with a name or a range of times, by that. With several conditions a page can have
    fewer items than `limit`, even none, and a `next`: follow it until it is null.
    """
    app_id = app_of(request, Scope.USERS_READ).app_id
    page = await users.list(app_id, chosen, after=after, limit=check_limit(limit))
    return Items([view_user(user) for user in page.items], page.next)


class UsersController(Controller):
    """The users of the calling app."""

    path = "/v1/users/{user_id:str}"
    tags = ("Users",)

    @put(
        summary="Create or replace a user",
        responses={201: describe_response(UserView, "The user was created.")},
        errors=(Conflict,),
    )
    async def put_user(
        self,
        request: ApiRequest,
        user_id: UserId,
        data: UserBody,
        users: Injected[Users],
        clock: Injected[Clock],
        eraser: Injected[Eraser],
        on_user_changed: Injected[OnUserChanged],
    ) -> Response[UserView]:
        """Create (201) or replace (200) a user. Fields left out get their defaults.

        The preferences of an existing user stay, and `last_login_at` unless it is given.
        """
        app_id = app_of(request, Scope.USERS_WRITE).app_id
        now = clock.now()
        given = collect(
            {
                "id": partial(check_user_id, user_id),
                "fields": partial(read_fields, data, now),
            }
        )
        await eraser.check_writable(app_id, user_id)
        user, is_new = await users.put(make_user(app_id, user_id, given["fields"], now))
        # A user may have been connected before they were created.
        if not is_new or user.status is not UserStatus.ACTIVE:
            await on_user_changed(app_id, user_id)
        return Response(view_user(user), status_code=201 if is_new else 200)

    @get(summary="Get a user")
    async def get_user(
        self, request: ApiRequest, user_id: UserId, users: Injected[Users]
    ) -> UserView:
        """Return the user, whether active or not."""
        owner = owner_of(request, user_id, Scope.USERS_READ)
        return view_user(check_found(await users.get(*owner), owner[1]))

    @patch(summary="Update a user", errors=(Conflict,))
    async def patch_user(
        self,
        request: ApiRequest,
        user_id: UserId,
        data: UserBody,
        users: Injected[Users],
        clock: Injected[Clock],
        on_user_changed: Injected[OnUserChanged],
    ) -> UserView:
        """Update the given fields.

        `attributes`, `metadata` and `consent` are merged by name; null removes one. A group, like
        `billing_address`, is replaced as a whole.
        """
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        now = clock.now()
        given = read_fields(data, now)
        found = await users.patch(*owner, lambda old: update_user(old, given, now))
        user = check_found(found, owner[1])
        await on_user_changed(*owner)
        return view_user(user)


def check_found(user: User | None, user_id: str) -> User:
    """Return the user; `NotFound` if it does not exist."""
    return existing(user, explain_missing_user(user_id))


ROUTES = (list_users, UsersController)
