"""API keys over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Controller, Request, Response, delete, get, post
from litestar.params import Parameter

from clarion.access.callers import require_app
from clarion.access.issuing import IssuedKey, issue_key
from clarion.api.injected import Callers, Clock, Keys, Vault
from clarion.api.shapes import (
    IDEMPOTENCY_MS,
    PAGE_DEFAULT,
    Body,
    Items,
    caller_of,
    check_idempotency_key,
    check_limit,
    fingerprint,
)
from clarion.clock import to_rfc3339
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.model import AppCaller, Once, Scope

if TYPE_CHECKING:
    from clarion.model import ApiKey

Limit = Annotated[int, Parameter(description="Items a page, 1 to 100.")]
After = Annotated[str | None, Parameter(description="The cursor `next` of the page before.")]
IdempotencyKey = Annotated[
    str | None,
    Parameter(header="Idempotency-Key", description="A repeat within 24 h gets the first answer."),
]


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
        keys: Keys,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[KeyView]:
        """Return the keys in the order of their ids, revoked and expired ones too."""
        caller = require_app(caller_of(request), Scope.KEYS_READ)
        page = await keys.list(caller.app_id, after=after, limit=check_limit(limit))
        return Items([KeyView(**_view(key)) for key in page.items], page.next)

    @post(summary="Make an API key", status_code=201)
    async def create_key(
        self,
        request: Request[Any, Any, Any],
        data: NewKey,
        keys: Keys,
        vault: Vault,
        clock: Clock,
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedKey]:
        """Make a key that holds at most the scopes of the key that calls."""
        caller = require_app(caller_of(request), Scope.KEYS_WRITE)
        now = clock.now()
        issued = issue_key(
            app_id=caller.app_id,
            label=data.label,
            scopes=data.scopes,
            now=now,
            expires_at=_milliseconds(data.expires_at),
        )
        _check_scopes(caller, issued)
        answer = CreatedKey(**_view(issued.key), api_key=issued.secret.text)
        given = check_idempotency_key(idempotency_key)
        if given is None:
            await keys.create(issued.key)
            return Response(answer, status_code=201)
        once = await _once(request, given, caller.app_id, answer, vault, now)
        replay = await keys.create(issued.key, once)
        if replay is None:
            return Response(answer, status_code=201)
        first = msgspec.json.decode(
            vault.open(replay.answer, _context(caller.app_id, given)), type=CreatedKey
        )
        return Response(first, status_code=201, headers={"idempotent-replayed": "true"})

    @delete("/{key_id:str}", summary="Revoke an API key", status_code=200)
    async def revoke_key(
        self,
        request: Request[Any, Any, Any],
        key_id: str,
        keys: Keys,
        clock: Clock,
        callers: Callers,
    ) -> KeyView:
        """Revoke a key at once; it stays in the list. Revoking it again changes nothing."""
        caller = require_app(caller_of(request), Scope.KEYS_WRITE)
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
        "created_at": to_rfc3339(key.created_at),
        "expires_at": to_rfc3339(key.expires_at) if key.expires_at else None,
        "revoked_at": to_rfc3339(key.revoked_at) if key.revoked_at else None,
    }


def _check_scopes(caller: AppCaller, issued: IssuedKey) -> None:
    missing = sorted(issued.key.scopes - caller.scopes)
    if missing:
        reason = f"the calling key itself lacks {', '.join(missing)}"
        raise InvalidFields(FieldFault("scopes", reason))


def _milliseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidFields(
            FieldFault("expires_at", "must say its offset, like 2026-01-31T12:00:00Z")
        )
    return int(moment.timestamp() * 1000)


async def _once(
    request: Request[Any, Any, Any],
    key: str,
    app_id: str,
    answer: CreatedKey,
    vault: Vault,
    now: int,
) -> Once:
    return Once(
        app_id=app_id,
        key=key,
        fingerprint=fingerprint(request.method, request.url.path, await request.body()),
        # The answer holds the secret, so it is sealed like every secret that is read again.
        answer=vault.seal(msgspec.json.encode(answer), _context(app_id, key)),
        now=now,
        expires_at=now + IDEMPOTENCY_MS,
    )


def _context(app_id: str, key: str) -> str:
    return f"apps/{app_id}/idempotency/{key}"
