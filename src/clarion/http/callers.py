"""The caller of a request: an application with a scope, a user, or an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from clarion.access.model import (
    AdminCaller,
    AppCaller,
    Caller,
    Role,
    Scope,
    UserCaller,
    Visitor,
    require_admin,
    require_any_admin,
    require_app,
    require_user,
)
from clarion.errors import NotFound
from clarion.fields import check_user_id

if TYPE_CHECKING:
    from litestar import Request

    ApiRequest: TypeAlias = Request[Any, Any, Any]


def __getattr__(name: str) -> Any:
    """Import `ApiRequest` when a handler needs it: fast routes do not load the framework."""
    if name != "ApiRequest":
        raise AttributeError(name)
    from litestar import Request  # noqa: PLC0415

    return Request[Any, Any, Any]


def caller_of(request: ApiRequest) -> Caller:
    """Return the caller that the front has identified."""
    caller: Caller = request.scope["clarion.caller"]  # type: ignore[typeddict-item]
    return caller


def visitor_of(request: ApiRequest) -> Visitor:
    """Return where a request under `/v1/admin/` comes from."""
    visitor: Visitor = request.scope["clarion.visitor"]  # type: ignore[typeddict-item]
    return visitor


def app_of(request: ApiRequest, scope: Scope) -> AppCaller:
    """Return the calling application; `Forbidden` if its key does not have the scope.

    An administrator acts for the app of the header `Clarion-App`.
    """
    return require_app(caller_of(request), scope)


def app_or_user_of(request: ApiRequest, scope: Scope) -> AppCaller | UserCaller:
    """Return the calling user, or the calling application if its key has the scope."""
    caller = caller_of(request)
    return caller if isinstance(caller, UserCaller) else require_app(caller, scope)


def admin_of(
    request: ApiRequest, role: Role | None = None, app_id: str | None = None
) -> AdminCaller:
    """Return the calling administrator; `Forbidden` without the role, for all apps or for one.

    Without a role to have, every administrator may call.
    """
    caller = caller_of(request)
    return require_any_admin(caller) if role is None else require_admin(caller, role, app_id)


def owner_of(request: ApiRequest, user_id: str | None, scope: Scope) -> tuple[str, str]:
    """Return app id and user id: of the token on `/v1/me`, otherwise of the path.

    `NotFound` if the id in the path is not valid.
    """
    return find_owner(caller_of(request), user_id, scope)


def find_owner(caller: Caller, user_id: str | None, scope: Scope) -> tuple[str, str]:
    """Return the same for a caller."""
    if user_id is None:
        user = require_user(caller)
        return user.app_id, user.user_id
    app = require_app(caller, scope)
    try:
        check_user_id(user_id)
    except ValueError as error:
        raise NotFound(f"This app has no user {user_id!r}: an id {error}") from None
    return app.app_id, user_id
