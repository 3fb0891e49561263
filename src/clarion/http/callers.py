"""The caller of a request: an application with a scope, a user, or either of them."""

from __future__ import annotations

from typing import Any, TypeAlias

from litestar import Request

from clarion.access.model import AppCaller, Caller, Scope, UserCaller, require_app, require_user
from clarion.errors import NotFound
from clarion.fields import is_user_id

ApiRequest: TypeAlias = Request[Any, Any, Any]


def caller_of(request: ApiRequest) -> Caller:
    """Return the caller that the front has identified."""
    caller: Caller = request.scope["clarion.caller"]  # type: ignore[typeddict-item]
    return caller


def app_of(request: ApiRequest, scope: Scope) -> AppCaller:
    """Return the calling application; `Forbidden` if its key does not have the scope."""
    return require_app(caller_of(request), scope)


def user_of(request: ApiRequest) -> UserCaller:
    """Return the calling user; `Forbidden` for an application."""
    return require_user(caller_of(request))


def owner_of(request: ApiRequest, user_id: str | None, scope: Scope) -> tuple[str, str]:
    """Return app id and user id: of the token on `/v1/me`, otherwise of the path.

    `NotFound` if the id in the path is not valid.
    """
    if user_id is None:
        user = user_of(request)
        return user.app_id, user.user_id
    app = app_of(request, scope)
    if not is_user_id(user_id):
        raise NotFound(f"There is no user {user_id!r}.")
    return app.app_id, user_id
