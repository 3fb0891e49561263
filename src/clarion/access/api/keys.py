"""API keys over HTTP, and what a key or token stands for."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import Controller, Response, delete, get, post

from clarion.access.administrators.api.callers import check_creator
from clarion.access.app_keys import Overlap, check_overlap
from clarion.access.callers import Callers
from clarion.access.keys import check_label, issue_key, parse_scopes
from clarion.access.model import (
    SCOPES_OF,
    AdminCaller,
    ApiKey,
    AppCaller,
    Role,
    Scope,
    require_any_admin,
)
from clarion.access.sql import Keys
from clarion.access.views import ApiKeyView, CreatedApiKey, show_created_key, show_key
from clarion.audit.port import AuditLog
from clarion.clock import Clock, to_rfc3339
from clarion.errors import FieldFault, Forbidden, InvalidFields, NotFound, existing
from clarion.fields import Label, Moment, instead
from clarion.http.bodies import Body, Checks, collect
from clarion.http.callers import ApiRequest, app_of, caller_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.shapes import Items, check_limit, to_milliseconds
from clarion.http.views import View
from clarion.pages import PAGE_DEFAULT

_TAGS = ("Keys",)
_NO_KEY = "This app has no API key with this id."

_SCOPES = instead(
    anyOf=[
        {"type": "array", "items": {"enum": ["*"]}, "minItems": 1},
        {"type": "array", "items": {"enum": list(Scope)}, "minItems": 1},
    ]
)
ApiKeyId = Annotated[str, msgspec.Meta(description="The id of the API key.")]


class NewApiKey(Body):
    """An API key to create. `scopes` of `["*"]` means all scopes."""

    label: Label
    """A name for people, like `billing server`."""
    scopes: Annotated[list[str], _SCOPES]
    """What the key may do, like `events:write`; `*` means everything."""
    expires_at: Moment | None = None
    """Until when it is valid; if left out, as long as the calling key, or until it is revoked."""

    def checks(self) -> Checks:
        return {
            "label": partial(check_label, self.label),
            "scopes": partial(parse_scopes, self.scopes),
            "expires_at": partial(to_milliseconds, self.expires_at, "expires_at"),
        }


class ApiKeyRotation(Body):
    """How an API key is replaced."""

    overlap_s: Overlap = 24 * 3600
    expires_at: Annotated[
        Moment | None,
        msgspec.Meta(
            description="When the new key expires; as the old one or the calling key if left out."
        ),
    ] = None


class CallerView(View):
    """The caller that a key, token or session identifies: an app, a user or an administrator.

    For an administrator, `app_id` is the app of the header `Clarion-App`, `scopes` are their
    permissions for it, and `role` is their role for all apps.
    """

    kind: Literal["app", "user", "administrator"]
    """`app`, `user` or `administrator`."""
    app_id: str | None
    """The app that is acted for; null if an administrator names none."""
    key_id: str | None
    """The id of the API key; null if there is none."""
    scopes: list[str]
    """What the caller may do with the app."""
    user_id: str | None
    """The user of a user token; null otherwise."""
    administrator_id: str | None = None
    """The administrator; null otherwise."""
    role: Role | None = None
    """The role of the administrator for all apps; null if there is none."""


class KeysController(Controller):
    """The API keys of the calling app."""

    path = "/v1/keys"
    tags = _TAGS

    @get(summary="List API keys")
    async def list_keys(
        self,
        request: ApiRequest,
        keys: Injected[Keys],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[ApiKeyView]:
        """Return the app's keys, oldest first, including revoked and expired ones."""
        caller = app_of(request, Scope.KEYS_READ)
        page = await keys.list(caller.app_id, after=after, limit=check_limit(limit))
        return Items([show_key(key) for key in page.items], page.next)

    @post(summary="Create an API key", status_code=201)
    async def create_key(
        self,
        request: ApiRequest,
        data: NewApiKey,
        keys: Injected[Keys],
        clock: Injected[Clock],
        idempotency: Injected[Idempotency],
        audit_log: Injected[AuditLog],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedApiKey]:
        """Create a key that has at most the scopes of the calling key, and expires no later.

        In a session, the password must have been given in the last 10 minutes.
        """
        caller = _creator_of(request, clock)
        collect(data.checks())
        issued = issue_key(
            app_id=caller.app_id,
            label=data.label,
            scopes=data.scopes,
            now=clock.now(),
            expires_at=to_milliseconds(data.expires_at, "expires_at") or caller.expires_at,
        )
        _check_rights(caller, issued.key)
        answer = show_created_key(issued)
        audit_log.describe(key_id=issued.key.id, scopes=" ".join(answer.scopes))
        add = partial(keys.create, issued.key)
        return await idempotency.create(request, idempotency_key, answer, add)

    @post("/{key_id:str}/rotate", summary="Rotate an API key", status_code=201)
    async def rotate_key(
        self,
        request: ApiRequest,
        key_id: ApiKeyId,
        data: ApiKeyRotation,
        keys: Injected[Keys],
        clock: Injected[Clock],
        callers: Injected[Callers],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedApiKey]:
        """Create a successor of a key; the old key expires when the overlap ends.

        The calling key must have all scopes of the key. A key can be rotated once. In a session,
        the password must have been given in the last 10 minutes.
        """
        caller = _creator_of(request, clock)
        now, overlap = clock.now(), check_overlap(data.overlap_s)
        old = await _find_key(keys, caller, key_id)
        issued = issue_key(
            app_id=caller.app_id,
            label=old.label,
            scopes=old.scopes,
            now=now,
            expires_at=to_milliseconds(data.expires_at, "expires_at") or _end_of(old, now, caller),
        )
        _check_rights(caller, issued.key)
        rotate = partial(keys.rotate, key_id, issued.key, now=now, ends_at=now + overlap)
        answer = show_created_key(issued)
        response = await idempotency.create(request, idempotency_key, answer, rotate)
        callers.forget(key_id)
        return response

    @delete("/{key_id:str}", summary="Revoke an API key", status_code=200)
    async def revoke_key(
        self,
        request: ApiRequest,
        key_id: ApiKeyId,
        keys: Injected[Keys],
        clock: Injected[Clock],
        callers: Injected[Callers],
    ) -> ApiKeyView:
        """Revoke a key at once; it stays in the list. Idempotent.

        The calling key must have all scopes of the key.
        """
        caller = app_of(request, Scope.KEYS_WRITE)
        await _find_key(keys, caller, key_id)
        key = existing(await keys.revoke(caller.app_id, key_id, clock.now()), _NO_KEY)
        callers.forget(key.id)
        return show_key(key)


@get("/v1/caller", summary="Get the calling app, user or administrator", tags=_TAGS)
async def get_caller(request: ApiRequest) -> CallerView:
    """Return the caller that the credential identifies, and its permissions."""
    caller = caller_of(request)
    if isinstance(caller, AppCaller):
        return CallerView.of(
            caller, kind="app", scopes=sorted(caller.scopes), user_id=None, role=None
        )
    if isinstance(caller, AdminCaller):
        require_any_admin(caller)
        role = caller.role_for(caller.app_id) if caller.app_id else None
        scopes = sorted(SCOPES_OF[role]) if role else []
        return CallerView.of(caller, kind="administrator", scopes=scopes, user_id=None)
    return CallerView.of(
        caller, kind="user", scopes=[], key_id=None, administrator_id=None, role=None
    )


async def _find_key(keys: Keys, caller: AppCaller, key_id: str) -> ApiKey:
    """Return a key of the calling app, with no more scopes than the calling key has."""
    key = await keys.find(key_id)
    if key is None or key.app_id != caller.app_id:
        raise NotFound(_NO_KEY)
    _check_not_above(caller, key)
    return key


def _creator_of(request: ApiRequest, clock: Clock) -> AppCaller:
    caller = app_of(request, Scope.KEYS_WRITE)
    check_creator(request, clock)
    return caller


def _end_of(key: ApiKey, now: int, caller: AppCaller) -> int | None:
    """Return when the key expires that replaces another: as that one or the calling key.

    An end that is past counts as none: then the rotation is refused anyway.
    """
    own = key.expires_at if key.is_live(now) else None
    return min((each for each in (own, caller.expires_at) if each is not None), default=None)


def _check_rights(caller: AppCaller, key: ApiKey) -> None:
    """Raise `InvalidFields` if a new key may do more than the calling one, or for longer."""
    missing = sorted(key.scopes - caller.scopes)
    if missing:
        reason = f"the calling API key does not have {', '.join(missing)} itself"
        raise InvalidFields(FieldFault("scopes", reason))
    last = caller.expires_at
    if last is not None and (key.expires_at is None or key.expires_at > last):
        reason = f"must be at or before {to_rfc3339(last)}, when the calling API key expires"
        raise InvalidFields(FieldFault("expires_at", reason))


def _check_not_above(caller: AppCaller, key: ApiKey) -> None:
    missing = sorted(key.scopes - caller.scopes)
    if missing:
        raise Forbidden(
            f"The calling API key cannot change this key, which has more scopes: "
            f"{', '.join(missing)}."
        )


ROUTES = (KeysController, get_caller)
