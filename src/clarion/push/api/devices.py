"""Devices over HTTP: registered by the app's server, or by a user's own client."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Controller, Request, Response, delete, get, patch, post

from clarion.access.model import AppCaller, Scope, UserCaller, require_app
from clarion.errors import FieldFault, Forbidden, InvalidFields, NotFound
from clarion.fields import check_language, check_timezone, check_user_id
from clarion.http.bodies import Body
from clarion.http.callers import caller_of, owner_of
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
    to_wire,
)
from clarion.idempotency.model import StoredResponse
from clarion.push.connections import Connections
from clarion.push.model import DeviceDetails, InvalidationReason, Platform
from clarion.push.port import Devices
from clarion.push.registry import Registry, new_token
from clarion.sockets.protocol import CloseCode

if TYPE_CHECKING:
    from clarion.access.model import Caller
    from clarion.push.model import Device

# Other words for the same platforms.
_PLATFORMS = {
    **{platform.value: platform for platform in Platform},
    "apns": Platform.IOS,
    "fcm": Platform.ANDROID,
}
_TOKEN = re.compile(r"[!-~]{8,4096}")
# The same rules as for a user.
_CHECKS = {
    "user_id": check_user_id,
    "language": check_language,
    "timezone": check_timezone,
}
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Details(Body):
    """What a device says about itself."""

    user_id: Short | None = None
    model: Short | None = None
    os_version: Short | None = None
    app_version: Short | None = None
    language: Short | None = None
    timezone: Short | None = None
    label: Short | None = None

    def to_model(self) -> DeviceDetails:
        """Check what can be checked, and return it."""
        checks = {
            name: partial(check, value)
            for name, check in _CHECKS.items()
            if (value := getattr(self, name)) is not None
        }
        return DeviceDetails(
            model=self.model,
            os_version=self.os_version,
            app_version=self.app_version,
            label=self.label,
            **collect(checks),
        )


class NewDevice(Details, kw_only=True):
    """A device to register. Without a token one is made."""

    platform: str
    app_id: str | None = None
    token: str | None = None


class RegisteredDevice(msgspec.Struct, omit_defaults=True):
    """A registered device. The secret is shown once, to a device that is new."""

    device_id: str
    token: str
    is_new: bool
    secret: str | None = None


class StateView(msgspec.Struct):
    """What a device is doing, as far as this node knows."""

    online: bool
    foreground: bool
    enabled: bool
    last_active_at: str | None


class DeviceView(msgspec.Struct):
    """A device as its app sees it."""

    device_id: str
    app_id: str
    platform: str
    user_id: str | None
    model: str | None
    os_version: str | None
    app_version: str | None
    language: str | None
    timezone: str | None
    label: str | None
    is_valid: bool
    created_at: str | None
    last_seen_at: str | None
    invalidated_at: str | None
    invalidation_reason: str | None
    state: StateView


class Invalidation(Body):
    """Why a device is no longer valid."""

    reason: InvalidationReason = InvalidationReason.REVOKED


class DevicesController(Controller):
    """The devices of the calling app, or of the calling user."""

    path = "/v1/devices"
    tags = ("Devices",)

    @post(summary="Register a device")
    async def register(
        self,
        request: Request[Any, Any, Any],
        data: NewDevice,
        registry: Injected[Registry],
        connections: Injected[Connections],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[RegisteredDevice]:
        """Add a device (201), or refresh the one that has this token already (200).

        If the user has more devices than they may, the one seen longest ago is revoked.
        """
        caller = _writer(request)
        details = _own_details(caller, data)
        token = _check_token(data.token) if data.token is not None else new_token()
        device, secret = registry.propose(
            app_id=_check_app(caller, data.app_id),
            token=token,
            platform=_check_platform(data.platform),
            details=details,
        )
        new = RegisteredDevice(device.id, token, is_new=True, secret=secret)
        once = await idempotency.once(request, idempotency_key, caller.app_id, new)
        added = await registry.add(device, once)
        if isinstance(added, StoredResponse):
            return idempotency.answer_again(added, once, RegisteredDevice, 201)
        if added:
            await _make_room(device, registry, connections)
            return Response(new, status_code=201)
        refreshed = await registry.refresh(device)
        if isinstance(refreshed, StoredResponse):
            return idempotency.answer_again(refreshed, once, RegisteredDevice, 200)
        await _make_room(refreshed, registry, connections)
        return Response(RegisteredDevice(refreshed.id, token, is_new=False), status_code=200)

    @get("/{device_id:str}", summary="See a device")
    async def see(
        self,
        request: Request[Any, Any, Any],
        device_id: str,
        devices: Injected[Devices],
        connections: Injected[Connections],
    ) -> DeviceView:
        """Return the device, valid or not, and what it is doing."""
        device = await find_device(request, device_id, devices, Scope.DEVICES_READ)
        return _view(device, connections)

    @patch("/{device_id:str}", summary="Change a device's details")
    async def change(
        self,
        request: Request[Any, Any, Any],
        device_id: str,
        data: Details,
        devices: Injected[Devices],
        registry: Injected[Registry],
        connections: Injected[Connections],
    ) -> DeviceView:
        """Take over the fields that are given; the others stay."""
        device = await find_device(request, device_id, devices, Scope.DEVICES_WRITE)
        details = _own_details(caller_of(request), data)
        changed = _found(await registry.update(device.app_id, device.id, details))
        await _make_room(changed, registry, connections)
        return _view(changed, connections)

    @delete("/{device_id:str}", summary="Delete a device", status_code=204)
    async def remove(
        self,
        request: Request[Any, Any, Any],
        device_id: str,
        devices: Injected[Devices],
        registry: Injected[Registry],
        connections: Injected[Connections],
    ) -> None:
        """Remove the device; its messages stay in the history, its token goes to the feedback."""
        device = await find_device(request, device_id, devices, Scope.DEVICES_WRITE)
        await registry.delete(device.app_id, device.id)
        _hang_up(device, connections)

    @post("/{device_id:str}/invalidate", summary="End a device", status_code=200)
    async def invalidate(
        self,
        request: Request[Any, Any, Any],
        device_id: str,
        data: Invalidation,
        devices: Injected[Devices],
        registry: Injected[Registry],
        connections: Injected[Connections],
    ) -> DeviceView:
        """Let nothing more be sent to it, and feed its token back. Again changes nothing."""
        device = await find_device(request, device_id, devices, Scope.DEVICES_WRITE)
        ended = await registry.invalidate(device.app_id, device.id, data.reason)
        _hang_up(device, connections)
        return _view(ended or device, connections)

    @post("/{device_id:str}/secret", summary="Give a device a new secret", status_code=200)
    async def renew_secret(
        self,
        request: Request[Any, Any, Any],
        device_id: str,
        devices: Injected[Devices],
        registry: Injected[Registry],
    ) -> dict[str, str]:
        """Return the new secret, once; the old one is refused from now on."""
        device = await find_device(request, device_id, devices, Scope.DEVICES_WRITE)
        return {"device_id": device.id, "secret": await registry.renew_secret(device)}


@get("/v1/users/{user_id:str}/devices", summary="List a user's devices", tags=["Devices"])
async def list_user_devices(
    request: Request[Any, Any, Any],
    user_id: str,
    devices: Injected[Devices],
    connections: Injected[Connections],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[DeviceView]:
    """Return the devices of a user."""
    app_id, owner = owner_of(request, user_id, Scope.DEVICES_READ)
    page = await devices.list(app_id, user_id=owner, after=after, limit=check_limit(limit))
    return Items([_view(device, connections) for device in page.items], page.next)


@get("/v1/me/devices", summary="List the user's own devices", tags=["Devices"])
async def list_my_devices(
    request: Request[Any, Any, Any],
    devices: Injected[Devices],
    connections: Injected[Connections],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[DeviceView]:
    """Return the devices of the user whose token calls."""
    caller = caller_of(request)
    if not isinstance(caller, UserCaller):
        msg = "This is for users: call it with a user token."
        raise Forbidden(msg)
    page = await devices.list(
        caller.app_id, user_id=caller.user_id, after=after, limit=check_limit(limit)
    )
    return Items([_view(device, connections) for device in page.items], page.next)


def _writer(request: Request[Any, Any, Any]) -> Caller:
    caller = caller_of(request)
    return require_app(caller, Scope.DEVICES_WRITE) if isinstance(caller, AppCaller) else caller


async def find_device(
    request: Request[Any, Any, Any], device_id: str, devices: Devices, scope: Scope
) -> Device:
    """Return a device that the caller may touch: the app's, or the user's own."""
    caller = caller_of(request)
    if isinstance(caller, AppCaller):
        require_app(caller, scope)
    device = _found(await devices.get(caller.app_id, device_id))
    if isinstance(caller, UserCaller) and device.details.user_id != caller.user_id:
        return _found(None)
    return device


async def _make_room(device: Device, registry: Registry, connections: Connections) -> None:
    for ended in await registry.make_room(device.app_id, device.details.user_id):
        _hang_up(ended, connections)


def _found(device: Device | None) -> Device:
    if device is None:
        msg = "There is no such device."
        raise NotFound(msg)
    return device


def _own_details(caller: Caller, data: Details) -> DeviceDetails:
    """Return the details; a user's client can speak for that user alone."""
    details = data.to_model()
    if isinstance(caller, AppCaller) or details.user_id == caller.user_id:
        return details
    if details.user_id is not None:
        msg = "A user's token can name that user alone."
        raise Forbidden(msg)
    return DeviceDetails(**{**asdict(details), "user_id": caller.user_id})


def _check_app(caller: Caller, app_id: str | None) -> str:
    if app_id is not None and app_id != caller.app_id:
        raise InvalidFields(FieldFault("app_id", "must be the app of the key or token that calls"))
    return caller.app_id


def _check_platform(text: str) -> Platform:
    platform = _PLATFORMS.get(text)
    if platform is None:
        reason = "must be ios, android, web or clarion (apns and fcm are other words for two)"
        raise InvalidFields(FieldFault("platform", reason))
    return platform


def _check_token(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise InvalidFields(FieldFault("token", "must have 8 to 4096 printable characters"))
    return token


def _hang_up(device: Device, connections: Connections) -> None:
    connection = connections.get(device.id)
    if connection is not None:
        connection.carry_out(connection.session.end(CloseCode.REVOKED, "the device was revoked"))


def _view(device: Device, connections: Connections) -> DeviceView:
    return DeviceView(
        device_id=device.id,
        app_id=device.app_id,
        platform=device.platform.value,
        **asdict(device.details),
        is_valid=device.is_valid,
        created_at=to_wire(device.created_at),
        last_seen_at=to_wire(device.last_seen_at),
        invalidated_at=to_wire(device.invalidated_at),
        invalidation_reason=device.invalidation_reason,
        state=_state(device, connections),
    )


def _state(device: Device, connections: Connections) -> StateView:
    connection = connections.get(device.id)
    if connection is None:
        return StateView(False, False, True, to_wire(device.last_seen_at))  # noqa: FBT003
    session = connection.session
    return StateView(True, session.is_foreground, session.is_enabled, to_wire(session.heard_at))  # noqa: FBT003
