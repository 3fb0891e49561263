"""Accounts of administrators over HTTP, for those with the role admin for all apps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from msgspec import UNSET, UnsetType, field

from clarion.access.administrators.api.callers import operator
from clarion.access.administrators.api.sessions import TAGS
from clarion.access.administrators.attempts import hash_name
from clarion.access.administrators.invitations import Invitations
from clarion.access.administrators.model import (
    APP_ROLES_LIMIT,
    NETWORKS_LIMIT,
    USERNAME,
    Administrator,
    check_networks,
    check_username,
)
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.model import Role
from clarion.access.sql import Apps
from clarion.audit.port import AuditLog
from clarion.clock import Clock, to_rfc3339
from clarion.errors import Conflict, FieldFault, InvalidFields, NotFound, existing
from clarion.fields import documented, is_plain
from clarion.http.bodies import Body, Checks, collect, given_checks
from clarion.http.callers import ApiRequest, admin_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.shapes import Items, check_limit
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT
from clarion.telemetry.logs import get_logger

_UNKNOWN = "There is no administrator with this id."

Username = Annotated[str, documented(pattern=USERNAME)]
Networks = Annotated[list[str], documented(maxItems=NETWORKS_LIMIT)]
AdministratorId = Annotated[
    str, msgspec.Meta(description="The id of the administrator, from the list of administrators.")
]


class NewAdministrator(Body):
    """An administrator to create, with a role for all apps, for particular apps, or both."""

    username: Username
    """The name to sign in with."""
    role: Role | None = None
    """The role for all apps; null: none."""
    app_roles: dict[str, Role] = field(default_factory=dict)
    """The roles for single apps, by app id."""
    networks: Networks = field(default_factory=list)
    """The only networks that the account can be used from, like `192.0.2.0/24`; empty: all."""

    def checks(self) -> Checks:
        return {
            "username": partial(check_username, self.username),
            "networks": partial(check_networks, self.networks),
        }


class AdministratorChanges(Body):
    """Changes to an administrator. `app_roles` and `networks` are replaced as a whole."""

    role: Role | UnsetType | None = UNSET
    """The role for all apps; null: none."""
    app_roles: dict[str, Role] | UnsetType = UNSET
    """The roles for single apps, by app id."""
    networks: Networks | UnsetType = UNSET
    """The only networks that the account can be used from, like `192.0.2.0/24`; empty: all."""
    is_active: bool | UnsetType = UNSET
    """Whether the administrator may sign in."""


class ResetBody(Body):
    """Whether the second factor is removed, too."""

    totp: bool = False
    """Whether the second factor is removed, too."""


class AdministratorView(View):
    """An administrator. The account can be used only from `networks`; empty means from anywhere.

    An administrator without a password has not used the set-up link yet.
    """

    id: str
    """The id of the administrator, from the list of administrators."""
    username: str
    """The name to sign in with."""
    role: Role | None
    """The role for all apps; null: none."""
    app_roles: dict[str, Role]
    """The roles for single apps, by app id."""
    networks: list[str]
    """The only networks that the account can be used from, like `192.0.2.0/24`; empty: all."""
    is_active: bool
    """Whether the administrator may sign in."""
    has_password: bool
    """False until the set-up link was used."""
    created_at: Timestamp
    """When the account was created."""
    password_changed_at: Timestamp | None
    """When the password was set last; null if it never was."""


class InvitedAdministrator(AdministratorView):
    """An administrator with a set-up link, which can be used once, until it expires."""

    setup_url: str
    """The link with which the administrator sets a password. It can be used once."""
    setup_expires_at: Timestamp
    """Until when it can be used."""


class SetupUrl(View):
    """A set-up link, which can be used once, until it expires. It is shown only here."""

    setup_url: str
    """The link with which the administrator sets a password. It can be used once."""
    setup_expires_at: Timestamp
    """Until when it can be used."""


class AdministratorsController(Controller):
    """All administrators."""

    path = "/v1/admin/administrators"
    tags = TAGS

    @get(summary="List administrators")
    async def list_administrators(
        self,
        request: ApiRequest,
        admins: Injected[AdminStores],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[AdministratorView]:
        """Return administrators, oldest first."""
        admin_of(request, Role.ADMIN)
        page = await admins.accounts.list(after=after, limit=check_limit(limit))
        return Items([_view(each) for each in page.items], page.next)

    @get("/{administrator_id:str}", summary="Get an administrator")
    async def get_administrator(
        self, request: ApiRequest, administrator_id: AdministratorId, admins: Injected[AdminStores]
    ) -> AdministratorView:
        """Return an administrator."""
        admin_of(request, Role.ADMIN)
        return _view(existing(await admins.accounts.get(administrator_id), _UNKNOWN))

    @post(summary="Create an administrator", status_code=201)
    async def create(  # noqa: PLR0913, PLR0917 - each is injected, or part of the request
        self,
        request: ApiRequest,
        data: NewAdministrator,
        admins: Injected[AdminStores],
        invitations: Injected[Invitations],
        apps: Injected[Apps],
        clock: Injected[Clock],
        idempotency: Injected[Idempotency],
        audit_log: Injected[AuditLog],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[InvitedAdministrator]:
        """Create an administrator, who sets a password with the link in the response."""
        operator(request, clock)
        await _check_apps(data.app_roles, apps)
        checked = collect(data.checks())
        account = invitations.propose(role=data.role, app_roles=data.app_roles, **checked)
        invitation = invitations.make(account.id)
        answer = InvitedAdministrator.of(
            account,
            networks=list(account.networks),
            has_password=False,
            setup_url=invitation.url,
            setup_expires_at=to_rfc3339(invitation.link.expires_at),
        )
        roles = _describe_changes({"role": account.role, "app_roles": account.app_roles})
        audit_log.describe(administrator_id=account.id, **roles)
        add = partial(admins.accounts.create, account, invitation.link)
        return await idempotency.create(request, idempotency_key, answer, add)

    @patch("/{administrator_id:str}", summary="Update an administrator", errors=(Conflict,))
    async def update(
        self,
        request: ApiRequest,
        administrator_id: AdministratorId,
        data: AdministratorChanges,
        admins: Injected[AdminStores],
        apps: Injected[Apps],
        audit_log: Injected[AuditLog],
        clock: Injected[Clock],
    ) -> AdministratorView:
        """Update the given fields. All sessions of the administrator end.

        An administrator who is not active cannot sign in, and the admin API keys are revoked.
        """
        caller = operator(request, clock)
        if data.app_roles is not UNSET:
            await _check_apps(data.app_roles, apps)
        changes = _read_changes(data, clock.now())
        audit_log.describe(**_describe_changes(changes))
        edited = await admins.accounts.edit(administrator_id, lambda old: replace(old, **changes))
        account = existing(edited, _UNKNOWN)
        _log("administrator_changed", caller.administrator_id, administrator_id)
        return _view(account)

    @delete(
        "/{administrator_id:str}",
        summary="Delete an administrator",
        status_code=204,
        errors=(Conflict,),
    )
    async def delete_administrator(
        self,
        request: ApiRequest,
        administrator_id: AdministratorId,
        admins: Injected[AdminStores],
        clock: Injected[Clock],
    ) -> None:
        """Delete an administrator with all sessions, keys and second factors."""
        caller = operator(request, clock)
        if not await admins.accounts.delete(administrator_id):
            raise NotFound(_UNKNOWN)
        _log("administrator_deleted", caller.administrator_id, administrator_id)

    @post("/{administrator_id:str}/reset", summary="Reset an administrator", status_code=200)
    async def reset(
        self,
        request: ApiRequest,
        administrator_id: AdministratorId,
        data: ResetBody,
        admins: Injected[AdminStores],
        invitations: Injected[Invitations],
        audit_log: Injected[AuditLog],
        clock: Injected[Clock],
    ) -> SetupUrl:
        """Remove the password, end all sessions, revoke all keys, and return a new set-up link.

        The second factor stays, unless `totp` is true. Failed sign-ins are cleared.
        """
        caller = operator(request, clock)
        account = existing(await admins.accounts.get(administrator_id), _UNKNOWN)
        audit_log.describe(totp=str(data.totp).lower())
        reset = await invitations.reset(account.id, clears_totp=data.totp)
        invitation = existing(reset, _UNKNOWN)
        await admins.attempts.forget(f"account:{hash_name(account.username)}")
        _log("administrator_reset", caller.administrator_id, administrator_id)
        return SetupUrl(
            setup_url=invitation.url,
            setup_expires_at=to_rfc3339(invitation.link.expires_at),
        )


def _read_changes(data: AdministratorChanges, now: int) -> dict[str, Any]:
    checks = given_checks(
        data, lambda name, value: check_networks(value) if name == "networks" else value
    )
    changes = collect(checks)
    if "is_active" in changes:
        changes["disabled_at"] = None if changes.pop("is_active") else now
    return changes


def _describe_changes(changes: dict[str, Any]) -> dict[str, str]:
    """Return what the audit log says of a change: which fields, and the new roles."""
    described = {"changed": " ".join(sorted(changes))}
    if "role" in changes:
        described["role"] = changes["role"] or "none"
    if "app_roles" in changes:
        roles = sorted(changes["app_roles"].items())
        described["app_roles"] = " ".join(f"{app_id}:{role}" for app_id, role in roles)
    return described


async def _check_apps(app_roles: dict[str, Role], apps: Apps) -> None:
    if len(app_roles) > APP_ROLES_LIMIT:
        reason = f"must have at most {APP_ROLES_LIMIT} apps"
        raise InvalidFields(FieldFault("app_roles", reason))
    # What no store can hold is no app's id.
    ids = [app_id if is_plain(app_id) else "" for app_id in app_roles]
    found = await asyncio.gather(*map(apps.get, ids))
    faults = [
        FieldFault(f"app_roles.{app_id}", "there is no app with this id")
        for app_id, app in zip(app_roles, found, strict=True)
        if app is None
    ]
    if faults:
        raise InvalidFields(*faults)


def _view(account: Administrator) -> AdministratorView:
    return AdministratorView.of(
        account,
        networks=list(account.networks),
        has_password=account.password_hash is not None,
    )


def _log(event: str, by: str, administrator_id: str) -> None:
    get_logger().info(event, by=by, administrator_id=administrator_id)


ROUTES = (AdministratorsController,)
