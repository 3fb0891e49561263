"""API keys over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Controller, Request, Response, delete, get, post

from clarion.access.callers import Callers
from clarion.access.issuing import IssuedKey, issue_key
from clarion.access.model import AppCaller, Scope
from clarion.access.port import Keys
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.http.bodies import Body
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import (
    PAGE_DEFAULT,
    After,
    IdempotencyKey,
    Items,
    Limit,
    check_limit,
    to_milliseconds,
    to_wire,
)
from clarion.idempotency.requests import Idempotency

if TYPE_CHECKING:
    from clarion.access.model import ApiKey


class NewKey(Body):
    """A key to make. `scopes` of `["*"]` means all."""

    label: str
    scopes: list[str]
    expires_at: datetime | None = None


class KeyView(msgspec.Struct):
    """A key as its app sees it; the secret is never shown again."""

    id: str
    label: str
    scopes: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class CreatedKey(KeyView):
    """A key just made, with the whole secret: `api_key` is shown this once."""

    api_key: str


class KeysController(Controller):
    """The API keys of the calling app."""

    path = "/v1/keys"
    tags = ("Keys",)

    @get(summary="List the app's API keys")
    async def list_keys(
        self,
        request: Request[Any, Any, Any],
        keys: Injected[Keys],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[KeyView]:
        """Return the keys in the order of their ids, revoked and expired ones too."""
        caller = app_of(request, Scope.KEYS_READ)
        page = await keys.list(caller.app_id, after=after, limit=check_limit(limit))
        return Items([KeyView(**_view(key)) for key in page.items], page.next)

    @post(summary="Make an API key", status_code=201)
    async def create_key(
        self,
        request: Request[Any, Any, Any],
        data: NewKey,
        keys: Injected[Keys],
        clock: Injected[Clock],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedKey]:
        """Make a key that holds at most the scopes of the key that calls."""
        caller = app_of(request, Scope.KEYS_WRITE)
        now = clock.now()
        issued = issue_key(
            app_id=caller.app_id,
            label=data.label,
            scopes=data.scopes,
            now=now,
            expires_at=to_milliseconds(data.expires_at, "expires_at"),
        )
        _check_scopes(caller, issued)
        answer = CreatedKey(**_view(issued.key), api_key=issued.secret.text)
        once = await idempotency.once(request, idempotency_key, caller.app_id, answer)
        replay = await keys.create(issued.key, once)
        if replay is not None:
            return idempotency.answer_again(replay, once, CreatedKey, 201)
        return Response(answer, status_code=201)

    @delete("/{key_id:str}", summary="Revoke an API key", status_code=200)
    async def revoke_key(
        self,
        request: Request[Any, Any, Any],
        key_id: str,
        keys: Injected[Keys],
        clock: Injected[Clock],
        callers: Injected[Callers],
    ) -> KeyView:
        """Revoke a key at once; it stays in the list. Revoking it again changes nothing."""
        caller = app_of(request, Scope.KEYS_WRITE)
        key = await keys.revoke(caller.app_id, key_id, clock.now())
        if key is None:
            msg = "This app has no such key."
            raise NotFound(msg)
        callers.forget(key.id)
        return KeyView(**_view(key))


def _view(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "label": key.label,
        "scopes": sorted(key.scopes),
        "created_at": to_wire(key.created_at),
        "expires_at": to_wire(key.expires_at),
        "revoked_at": to_wire(key.revoked_at),
    }


def _check_scopes(caller: AppCaller, issued: IssuedKey) -> None:
    missing = sorted(issued.key.scopes - caller.scopes)
    if missing:
        reason = f"the calling key itself lacks {', '.join(missing)}"
        raise InvalidFields(FieldFault("scopes", reason))
