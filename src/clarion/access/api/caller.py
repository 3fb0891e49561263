"""Who am I: lets a developer try a key or a token."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get

from clarion.access.model import AppCaller
from clarion.http.callers import caller_of


class CallerView(msgspec.Struct):
    """The caller as Clarion knows it. `kind` is `app` or `user`."""

    kind: str
    app_id: str
    key_id: str | None
    scopes: list[str]
    user_id: str | None


@get("/v1/caller", summary="Who the key or token stands for", tags=["Keys"])
async def get_caller(request: Request[Any, Any, Any]) -> CallerView:
    """Return who calls, and what the key may do."""
    caller = caller_of(request)
    if isinstance(caller, AppCaller):
        return CallerView("app", caller.app_id, caller.key_id, sorted(caller.scopes), None)
    return CallerView("user", caller.app_id, None, [], caller.user_id)
