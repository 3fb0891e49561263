"""API keys of administrators over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post

from clarion.access.administrators.api.callers import confirmed, signed_in
from clarion.access.administrators.api.sessions import TAGS
from clarion.access.administrators.keys import issue_admin_key
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.model import AdminCaller, Role
from clarion.audit.port import AuditLog
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, existing
from clarion.fields import Label, Moment
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.shapes import Items, check_limit, to_milliseconds
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT

AdminKeyId = Annotated[str, msgspec.Meta(description="The id of the admin API key.")]


class NewAdminKey(Body):
    """An admin API key to create. It has the permissions of its owner, limited by `role`."""

    label: Label
    """A name for people."""
    role: Role
    """The most that the key may do."""
    expires_at: Moment | None = None
    """Until when it is valid; until it is revoked if left out."""


class AdminKeyView(View):
    """An admin API key without its secret. `last_used_at` is accurate to a minute."""

    id: str
    """The id of the key."""
    label: str
    """A name for people."""
    role: Role
    """The most that the key may do."""
    created_at: Timestamp
    """When the key was created."""
    expires_at: Timestamp | None
    """Until when it is valid; null: until it is revoked."""
    last_used_at: Timestamp | None
    """When it was used last, to the minute; null if never."""
    revoked_at: Timestamp | None
    """When it was revoked; null if it was not."""


class CreatedAdminKey(AdminKeyView):
    """A new admin API key with its secret: `api_key` is shown only in this response."""

    api_key: str
    """The key itself. Store it: it is returned this once."""


class AdminKeysController(Controller):
    """The API keys of the calling administrator."""

    path = "/v1/admin/keys"
    tags = TAGS

    @get(summary="List admin API keys")
    async def list_keys(
        self,
        request: ApiRequest,
        admins: Injected[AdminStores],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[AdminKeyView]:
        """Return the caller's own keys, oldest first, including revoked and expired ones."""
        caller = signed_in(request)
        page = await admins.keys.list(
            caller.administrator_id, after=after, limit=check_limit(limit)
        )
        return Items([AdminKeyView.of(key) for key in page.items], page.next)

    @post(summary="Create an admin API key", status_code=201)
    async def create_key(
        self,
        request: ApiRequest,
        data: NewAdminKey,
        admins: Injected[AdminStores],
        clock: Injected[Clock],
        idempotency: Injected[Idempotency],
        audit_log: Injected[AuditLog],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedAdminKey]:
        """Create a key. The password must have been given in the last 10 minutes."""
        caller = confirmed(request, clock)
        _check_role(caller, data.role)
        issued = issue_admin_key(
            administrator_id=caller.administrator_id,
            label=data.label,
            role=data.role,
            now=clock.now(),
            expires_at=to_milliseconds(data.expires_at, "expires_at"),
        )
        answer = CreatedAdminKey.of(issued.key, api_key=issued.secret.text)
        audit_log.describe(key_id=issued.key.id, role=data.role)
        add = partial(admins.keys.create, issued.key)
        return await idempotency.create(request, idempotency_key, answer, add)

    @delete("/{key_id:str}", summary="Revoke an admin API key", status_code=200)
    async def revoke_key(
        self,
        request: ApiRequest,
        key_id: AdminKeyId,
        admins: Injected[AdminStores],
        clock: Injected[Clock],
    ) -> AdminKeyView:
        """Revoke a key at once; it stays in the list. Idempotent."""
        caller = signed_in(request)
        key = await admins.keys.revoke(caller.administrator_id, key_id, clock.now())
        return AdminKeyView.of(existing(key, "There is no admin API key with this id."))


def _check_role(caller: AdminCaller, role: Role) -> None:
    """Raise `InvalidFields` if a key would have a role that its owner has for no app."""
    own = [each for each in (caller.role, *caller.app_roles.values()) if each]
    if not any(each.covers(role) for each in own):
        raise InvalidFields(FieldFault("role", "is higher than your own"))


ROUTES = (AdminKeysController,)
