"""Apps over HTTP: for administrators, and the calling app's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from msgspec import UNSET, UnsetType

from clarion.access.administrators.api.callers import check_creator
from clarion.access.deleted_apps import DeletedApps
from clarion.access.keyring import Keyring
from clarion.access.known_apps import KnownApps
from clarion.access.model import AdminCaller, App, Role, Scope, ends_of_children
from clarion.access.origins import check_origins
from clarion.access.provisioning import (
    BUNDLE_ID,
    NewApp,
    check_app_name,
    check_bundle_id,
    check_per_hour,
    propose_app,
)
from clarion.access.sql import Apps
from clarion.access.views import AllowedOrigins, AppView, PerHour, show_app
from clarion.audit.port import AuditLog
from clarion.clock import Clock, to_rfc3339
from clarion.errors import existing
from clarion.fields import VISIBLE, AppId, documented
from clarion.http.bodies import Body, Checks, collect, given_checks
from clarion.http.callers import ApiRequest, admin_of, app_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.shapes import Items, check_limit
from clarion.http.views import Timestamp
from clarion.pages import PAGE_DEFAULT, cut_page

_TAGS = ("Apps",)
AppName = Annotated[str, documented(minLength=1, maxLength=100, pattern=VISIBLE)]


class NewAppBody(Body):
    """An app to create. Its `bundle_id` is also the APNs topic of its pushes."""

    name: AppName
    """The name of the app for people."""
    bundle_id: Annotated[str, documented(pattern=BUNDLE_ID, maxLength=155)]
    """The bundle id, like `com.example.app`; no other app has it."""
    allowed_origins: AllowedOrigins = msgspec.field(default_factory=list)

    def checks(self) -> Checks:
        return _checks_of(self)


class AppChange(Body):
    """Changes to an app; fields that are left out do not change."""

    name: AppName | UnsetType = UNSET
    """The name of the app for people."""
    allowed_origins: AllowedOrigins | UnsetType = UNSET
    user_per_hour: PerHour | UnsetType = UNSET
    """Notifications that a user gets in an hour; 0: no limit, null: that of the installation."""
    category_per_hour: PerHour | UnsetType = UNSET
    """The same for each category."""

    def checks(self) -> Checks:
        return _checks_of(self)


class OwnAppChange(Body):
    """What an app may change of itself; fields that are left out do not change."""

    allowed_origins: AllowedOrigins | UnsetType = UNSET
    user_per_hour: PerHour | UnsetType = UNSET
    """Notifications that a user gets in an hour; 0: no limit, null: that of the installation."""
    category_per_hour: PerHour | UnsetType = UNSET
    """The same for each category."""

    def checks(self) -> Checks:
        return _checks_of(self)


class CreatedApp(AppView):
    """A new app. Its secrets are shown only in this response."""

    api_key: str
    """An API key with all scopes. Store it: it is returned this once."""
    user_secret: Annotated[str, msgspec.Meta(description="Signs user tokens (HS256).")]
    user_key_id: Annotated[str, msgspec.Meta(description="The `kid` of the user secret.")]
    key_id: Annotated[str, msgspec.Meta(description="The `kid` of APNs provider tokens.")]
    provider_key: Annotated[str, msgspec.Meta(description="Signs them (ES256): a .p8 file.")]
    keys_expire_at: Timestamp | None = None
    """When these keys expire, with the admin API key that created the app; null: when revoked."""


class AppsController(Controller):
    """The apps of this installation."""

    path = "/v1/apps"
    tags = _TAGS

    @get(summary="List apps")
    async def list_apps(
        self,
        request: ApiRequest,
        apps: Injected[Apps],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[AppView]:
        """Return the apps for which the administrator has a role, oldest first."""
        caller = admin_of(request)
        found = await _find_apps(apps, caller, after or "", check_limit(limit) + 1)
        page = cut_page(found, limit, lambda each: each.id)
        return Items(list(map(show_app, page.items)), page.next)

    @post(summary="Create an app", status_code=201)
    async def create_app(
        self,
        request: ApiRequest,
        data: NewAppBody,
        keyring: Injected[Keyring],
        audit_log: Injected[AuditLog],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedApp]:
        """Create an app with an API key, a user secret and a provider key.

        Needs the role admin for all apps. In a session, the password must have been given in the
        last 10 minutes. If an admin API key creates it, its keys expire with that key.
        """
        caller = admin_of(request, Role.ADMIN)
        check_creator(request, keyring.clock)
        collect(data.checks())
        new = propose_app(
            name=data.name,
            bundle_id=data.bundle_id,
            allowed_origins=data.allowed_origins,
            vault=keyring.vault,
            clock=keyring.clock,
            expires_at=ends_of_children(caller),
        )
        audit_log.describe(app_id=new.app.id)
        add = partial(keyring.apps.create, new.app, new.provider_key, new.user_key, new.key)
        return await idempotency.create(request, idempotency_key, _created(new), add)

    @get("/{app_id:str}", summary="Get an app")
    async def get_app(self, request: ApiRequest, app_id: AppId, apps: Injected[Apps]) -> AppView:
        """Return the app. Needs the role viewer for it."""
        admin_of(request, Role.VIEWER, app_id)
        return show_app(_found(await apps.get(app_id), app_id))

    @patch("/{app_id:str}", summary="Update an app")
    async def update_app(
        self,
        request: ApiRequest,
        app_id: AppId,
        data: AppChange,
        apps: Injected[Apps],
        known_apps: Injected[KnownApps],
    ) -> AppView:
        """Change the name, the allowed origins or the limits. Needs the role admin for the app.

        Running servers apply new limits within two seconds.
        """
        admin_of(request, Role.ADMIN, app_id)
        return await _update(app_id, data, apps, known_apps)

    @delete("/{app_id:str}", summary="Delete an app", status_code=204)
    async def delete_app(
        self,
        request: ApiRequest,
        app_id: AppId,
        apps: Injected[Apps],
        clock: Injected[Clock],
        deleted_apps: Injected[DeletedApps],
    ) -> None:
        """Delete an app with all its data. Needs the role admin for the app.

        Its keys, tokens, devices, streams and jobs stop at once on this node, and within seconds
        on others. Its data is removed in the background. It cannot be restored.
        """
        admin_of(request, Role.ADMIN, app_id)
        _found(await apps.delete(app_id, clock.now()), app_id)
        await deleted_apps.add(app_id)


class OwnAppController(Controller):
    """The calling app."""

    path = "/v1/app"
    tags = _TAGS

    @get(summary="Get the calling app")
    async def get_own_app(self, request: ApiRequest, apps: Injected[Apps]) -> AppView:
        """Return the app whose key calls."""
        caller = app_of(request, Scope.KEYS_READ)
        return show_app(_found(await apps.get(caller.app_id), caller.app_id))

    @patch(summary="Update the calling app")
    async def update_own_app(
        self,
        request: ApiRequest,
        data: OwnAppChange,
        apps: Injected[Apps],
        known_apps: Injected[KnownApps],
    ) -> AppView:
        """Change the origins from which browsers may open streams and sockets, or the limits.

        Running servers apply new limits within two seconds.
        """
        caller = app_of(request, Scope.KEYS_WRITE)
        return await _update(caller.app_id, data, apps, known_apps)


def _found(app: App | None, app_id: str) -> App:
    return existing(app, f"There is no app {app_id!r}.")


async def _find_apps(apps: Apps, caller: AdminCaller, after: str, limit: int) -> tuple[App, ...]:
    if caller.role is not None:
        return await apps.list(after, limit)
    found: list[App] = []
    # There may be roles for apps that were deleted.
    for app_id in sorted(each for each in caller.app_roles if each > after):
        app = await apps.get(app_id)
        found += [app] if app is not None else []
        if len(found) == limit:
            break
    return tuple(found)


async def _update(
    app_id: str, data: AppChange | OwnAppChange, apps: Apps, known_apps: KnownApps
) -> AppView:
    changes = collect(data.checks())
    app = _found(await apps.update(app_id, **changes), app_id)
    known_apps.forget(app_id)
    return show_app(app)


def _checks_of(data: Body) -> Checks:
    return given_checks(data, lambda name, value: _CHECKS[name](value))


_CHECKS: dict[str, Callable[[Any], object]] = {
    "name": check_app_name,
    "bundle_id": check_bundle_id,
    "allowed_origins": check_origins,
    "user_per_hour": check_per_hour,
    "category_per_hour": check_per_hour,
}


def _created(new: NewApp) -> CreatedApp:
    ends = new.key.expires_at
    return CreatedApp.of(
        new.app,
        allowed_origins=list(new.app.allowed_origins),
        api_key=new.api_key,
        user_secret=new.user_secret,
        user_key_id=new.user_key.kid,
        key_id=new.key_id,
        provider_key=new.provider_key_pem.decode(),
        keys_expire_at=None if ends is None else to_rfc3339(ends),
    )


ROUTES = (AppsController, OwnAppController)
