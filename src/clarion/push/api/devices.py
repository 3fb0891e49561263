"""Devices over HTTP: registered by the app's server, or by a user's own client."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from litestar.openapi import ResponseSpec

from clarion import fields
from clarion.access.model import AppCaller, Caller, Scope, UserCaller, require_app
from clarion.clock import Clock, to_rfc3339
from clarion.errors import DeviceOfAnotherUser, Forbidden, NotFound, TooManyRequests
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, caller_of, owner_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.shapes import (
    PAGE_DEFAULT,
    After,
    IdempotencyKey,
    Items,
    Limit,
    check_limit,
    collect,
)
from clarion.http.views import Timestamp, View
from clarion.idempotency.model import StoredResponse
from clarion.nodes.port import Limits
from clarion.push.model import Device, DeviceDetails, InvalidationReason, Platform
from clarion.push.registry import Registry, new_token

_PLATFORMS = {
    **{platform.value: platform for platform in Platform},
    "apns": Platform.IOS,
    "fcm": Platform.ANDROID,
}
# A user's client registers a device when it is installed; one that registers more makes rubbish.
REGISTRATIONS_PER_HOUR = 20
_HOUR_S = 3600
_TOKEN = re.compile(r"[!-~]{8,4096}")
_DETAIL_CHECKS = {
    "user_id": fields.check_user_id,
    "language": fields.check_language,
    "timezone": fields.check_timezone,
}
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Details(Body):
    """What is known about a device."""

    user_id: Short | None = None
    model: Short | None = None
    os_version: Short | None = None
    app_version: Short | None = None
    language: Short | None = None
    timezone: Short | None = None
    label: Short | None = None


class NewDevice(Details, kw_only=True):
    """A device to register. Without a token, one is generated.

    With the `secret` of a device that is registered, a user takes it over from another.
    """

    platform: str
    app_id: str | None = None
    token: str | None = None
    secret: Short | None = None


class RegisteredDevice(msgspec.Struct, omit_defaults=True):
    """A registered device. The secret is returned once: for a new device, or a new user."""

    device_id: str
    token: str
    is_new: bool
    secret: str | None = None


class StateView(View):
    """The state of a device's connection to this node."""

    online: bool
    foreground: bool
    enabled: bool
    last_active_at: Timestamp


class DeviceView(View):
    """A device with its details and the state of its connection."""

    device_id: str
    app_id: str
    platform: Platform
    user_id: str | None
    model: str | None
    os_version: str | None
    app_version: str | None
    language: str | None
    timezone: str | None
    label: str | None
    is_valid: bool
    created_at: Timestamp
    last_seen_at: Timestamp
    invalidated_at: Timestamp | None
    invalidation_reason: InvalidationReason | None
    state: StateView


class Invalidation(Body):
    """Why a device is no longer valid."""

    reason: InvalidationReason = InvalidationReason.REVOKED


class DevicesController(Controller):
    """The devices of the calling app, or of the calling user."""

    path = "/v1/devices"
    tags = ("Devices",)

    @post(
        summary="Register a device",
        responses={200: ResponseSpec(RegisteredDevice, description="It was registered before.")},
    )
    async def register(
        self,
        request: ApiRequest,
        data: NewDevice,
        registry: Injected[Registry],
        idempotency: Injected[Idempotency],
        limits: Injected[Limits],
        clock: Injected[Clock],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[RegisteredDevice]:
        """Register a device (201), or refresh the one that has this token already (200).

        If the user then has more devices than allowed, the least recently seen one is revoked. A
        device of another user is refused (409) unless its secret is given or the app itself calls;
        then its stored messages and subscriptions are deleted, and it has to reconnect. A user who
        gives the secret gets a new one.
        """
        caller = _caller(request, Scope.DEVICES_WRITE)
        details = _details_of(caller, data)
        token = data.token if data.token is not None else new_token()
        checked = collect(
            {
                "app_id": partial(_check_app, caller, data.app_id),
                "platform": partial(_check_platform, data.platform),
                "token": partial(_check_token, token),
            }
        )
        device, secret = registry.propose(**checked, details=details)
        if isinstance(caller, UserCaller) and not await _is_known(device, registry):
            await _check_rate(caller, limits, clock.now())
        new = RegisteredDevice(device.id, token, is_new=True, secret=secret)
        once = await idempotency.once(request, idempotency_key, new)
        is_by_app = isinstance(caller, AppCaller)
        for _ in range(2):  # twice, because the device may be deleted in between
            added = await registry.add(device, once)
            if isinstance(added, StoredResponse):
                return idempotency.answer_again(added, once, RegisteredDevice, 201)
            if added:
                return Response(new, status_code=201)
            refreshed = await registry.refresh(device, is_by_app=is_by_app, secret=data.secret)
            if refreshed is not None:
                is_renewed = refreshed.secret_hash == device.secret_hash
                old = RegisteredDevice(
                    refreshed.id, token, is_new=False, secret=secret if is_renewed else None
                )
                return Response(old, status_code=200)
        raise DeviceOfAnotherUser

    @get("/{device_id:str}", summary="Get a device")
    async def get_device(
        self,
        request: ApiRequest,
        device_id: str,
        registry: Injected[Registry],
    ) -> DeviceView:
        """Return the device, valid or not, with the state of its connection."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_READ)
        return _view(device, registry)

    @patch("/{device_id:str}", summary="Update a device")
    async def update(
        self,
        request: ApiRequest,
        device_id: str,
        data: Details,
        registry: Injected[Registry],
    ) -> DeviceView:
        """Update the fields that are given; the others stay."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        details = _details_of(caller_of(request), data)
        changed = _found(await registry.update(device.app_id, device.id, details))
        return _view(changed, registry)

    @delete("/{device_id:str}", summary="Delete a device", status_code=204)
    async def delete_device(
        self,
        request: ApiRequest,
        device_id: str,
        registry: Injected[Registry],
    ) -> None:
        """Delete the device; add its token to the feedback. Its messages stay in the history."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        await registry.delete(device.app_id, device.id)

    @post("/{device_id:str}/invalidate", summary="Invalidate a device", status_code=200)
    async def invalidate(
        self,
        request: ApiRequest,
        device_id: str,
        data: Invalidation,
        registry: Injected[Registry],
    ) -> DeviceView:
        """Stop sending to the device; add its token to the feedback. A repeat changes nothing."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        invalidated = await registry.invalidate(device.app_id, device.id, data.reason)
        return _view(invalidated or device, registry)

    @post("/{device_id:str}/secret", summary="Renew the secret of a device", status_code=200)
    async def renew_secret(
        self,
        request: ApiRequest,
        device_id: str,
        registry: Injected[Registry],
    ) -> dict[str, str]:
        """Return a new secret, this once; the old one is refused, its connection closed."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        return {"device_id": device.id, "secret": await registry.renew_secret(device)}


@get(
    ["/v1/users/{user_id:str}/devices", "/v1/me/devices"],
    summary="List the devices of a user",
    tags=["Devices"],
)
async def list_devices(
    request: ApiRequest,
    registry: Injected[Registry],
    user_id: str | None = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[DeviceView]:
    """Return the devices of a user, on `/v1/me` those of the user whose token calls."""
    app_id, owner = owner_of(request, user_id, Scope.DEVICES_READ)
    page = await registry.devices.list(app_id, owner, after=after, limit=check_limit(limit))
    return Items([_view(device, registry) for device in page.items], page.next)


def _caller(request: ApiRequest, scope: Scope) -> Caller:
    """Return the calling user, or the calling app if its key has the scope."""
    caller = caller_of(request)
    return require_app(caller, scope) if isinstance(caller, AppCaller) else caller


async def _is_known(device: Device, registry: Registry) -> bool:
    """Return whether the user has a device with this token: clients register at each start."""
    known = await registry.find(device.app_id, device.token_hash)
    return known is not None and known.details.user_id == device.details.user_id


async def _check_rate(caller: UserCaller, limits: Limits, now: int) -> None:
    """Raise `TooManyRequests` if a user registers too many devices, or guesses secrets."""
    key = f"registrations:{caller.app_id}:{caller.user_id}"
    left = await limits.take(key, limit=REGISTRATIONS_PER_HOUR, window_s=_HOUR_S, now=now)
    if left.is_exceeded:
        msg = f"A user may register {REGISTRATIONS_PER_HOUR} devices an hour."
        raise TooManyRequests(left.reset_s, msg)


async def find_device(
    request: ApiRequest, device_id: str, registry: Registry, scope: Scope
) -> Device:
    """Return a device of the calling app or user; `NotFound` if it is not theirs."""
    caller = _caller(request, scope)
    device = _found(await registry.devices.get(caller.app_id, device_id))
    if isinstance(caller, UserCaller) and device.details.user_id != caller.user_id:
        return _found(None)
    return device


def _found(device: Device | None) -> Device:
    if device is None:
        raise NotFound("There is no such device.")
    return device


def _details_of(caller: Caller, data: Details) -> DeviceDetails:
    """Return the checked details; a user's client may register devices of that user only."""
    given = {name: getattr(data, name) for name in Details.__struct_fields__}
    checks = {
        name: partial(check, given[name])
        for name, check in _DETAIL_CHECKS.items()
        if given[name] is not None
    }
    details = DeviceDetails(**given | collect(checks))
    if isinstance(caller, AppCaller) or details.user_id == caller.user_id:
        return details
    if details.user_id is not None:
        raise Forbidden("With a user token, user_id must be the user of the token.")
    return replace(details, user_id=caller.user_id)


def _check_app(caller: Caller, app_id: str | None) -> str:
    if app_id not in (None, caller.app_id):
        raise ValueError("must be the app of the key or token that calls")
    return caller.app_id


def _check_platform(text: str) -> Platform:
    platform = _PLATFORMS.get(text)
    if platform is None:
        raise ValueError("must be ios (or apns), android (or fcm), web or clarion")
    return platform


def _check_token(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError("must have 8 to 4096 printable ASCII characters without spaces")
    return token


def _view(device: Device, registry: Registry) -> DeviceView:
    return DeviceView.of(
        device, device_id=device.id, **asdict(device.details), state=_state(device, registry)
    )


def _state(device: Device, registry: Registry) -> StateView:
    connection = registry.connections.get(device.id)
    session = connection.session if connection else None
    return StateView(
        online=session is not None,
        foreground=session is not None and session.is_foreground,
        enabled=session is None or session.is_enabled,
        last_active_at=to_rfc3339(session.heard_at if session else device.last_seen_at),
    )


ROUTES = (DevicesController, list_devices)
