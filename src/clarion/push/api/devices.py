"""Devices over HTTP: registered by the app's server, or by a user's own client."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from litestar.params import Parameter
from msgspec import UNSET, UnsetType

from clarion import fields
from clarion.access.model import AppCaller, Scope, UserCaller
from clarion.catalog.port import Catalog
from clarion.clock import to_rfc3339
from clarion.errors import DeviceOfAnotherUser, Forbidden, NotFound, TooManyRequests
from clarion.fields import DeviceId, UserId, check_value
from clarion.http.bodies import Body, collect
from clarion.http.callers import ApiRequest, app_of, app_or_user_of, owner_of
from clarion.http.dependencies import CheckPresent, Injected, OnUserChanged
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import After, IdempotencyKey, Limit
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_choice, check_limit, read_flag
from clarion.http.views import Timestamp, View
from clarion.idempotency.model import StoredResponse
from clarion.nodes.port import Limits
from clarion.pages import PAGE_DEFAULT
from clarion.push.api.device_preferences import (
    DevicePreferencesBody,
    DevicePreferencesView,
    check_preferences,
    view_preferences,
)
from clarion.push.api.registrations import Details, NewDevice, read_registration
from clarion.push.model import (
    Device,
    DeviceDetails,
    DeviceFilter,
    DevicePreferences,
    InvalidationReason,
    Platform,
)
from clarion.push.registry import Registered, Registry

# A client registers a device when it is installed. A client that registers more is misbehaving.
REGISTRATIONS_PER_HOUR = 20
_HOUR_S = 3600
_DETAIL_CHECKS = {
    "user_id": fields.check_user_id,
    "language": fields.check_language,
    "timezone": fields.check_timezone,
}


OfUser = Annotated[str | None, Parameter(description="Only devices of this user.")]
OfPlatform = Annotated[
    str | None,
    Parameter(description="Only devices of this platform.", schema_extra={"enum": list(Platform)}),
]
# Not `bool | None`: Litestar would take `?valid=null` for one.
Valid = Annotated[
    str | None,
    Parameter(
        description="Only devices to which messages may be sent, or only others.",
        schema_extra={"type": "boolean"},
    ),
]
_check_platform = partial(check_choice, Platform)


class DeviceChanges(Details, kw_only=True):
    """What to change about a device."""

    preferences: DevicePreferencesBody | UnsetType | None = UNSET
    """What the device receives; null resets all to the defaults."""


class RegisteredDevice(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A registered device. The secret is returned once: for a new device, or a new user.

    There is no token if it was registered with a subscription. `revoked_device_id` is the device
    that was revoked because the user had as many as allowed.
    """

    device_id: str
    """The id of the device in this API."""
    token: str | None = None
    """The token to which messages are sent; left out for a subscription."""
    is_new: bool
    """Whether it was registered just now."""
    secret: str | None = None
    """With it the device connects to Clarion. Store it: it is returned this once."""
    revoked_device_id: str | None = None
    """The device that was revoked because the user had as many as allowed; left out if none was."""


class RenewedSecret(View):
    """The new secret of a device."""

    device_id: str
    """The id of the device in this API."""
    secret: str
    """With it the device connects to Clarion. Store it: it is returned this once."""


class ConnectionStateView(View):
    """The state of a device's connection to this node."""

    online: bool
    """Whether the device is connected to this node."""
    foreground: bool
    """Whether your app is in use on it."""
    enabled: bool
    """Whether the device itself accepts notifications."""
    last_active_at: Timestamp
    """When the device was last connected or seen."""


class DeviceView(View):
    """A device with its details and the state of its connection."""

    device_id: str
    """The id of the device in this API."""
    app_id: str
    """The app of the device."""
    platform: Platform
    """By which service the device is reached."""
    user_id: str | None
    """The user of the device."""
    model: str | None
    """The model of the device."""
    os_version: str | None
    """The version of its operating system."""
    app_version: str | None
    """The version of your app on it."""
    language: str | None
    """The language of the device, a tag like pt-BR."""
    timezone: str | None
    """The time zone of the device, an IANA name."""
    label: str | None
    """A name for people."""
    is_valid: bool
    """Whether messages may be sent to it."""
    created_at: Timestamp
    """When it was registered first."""
    last_seen_at: Timestamp
    """When it registered or connected last."""
    invalidated_at: Timestamp | None
    """Since when it is not valid; null if it is."""
    invalidation_reason: InvalidationReason | None
    """Why it is not valid; null if it is."""
    preferences: DevicePreferencesView
    """What the device receives."""
    state: ConnectionStateView
    """The state of its connection."""


class Invalidation(Body):
    """Why a device is no longer valid."""

    reason: InvalidationReason = InvalidationReason.REVOKED
    """Why the device is no longer valid."""


class DevicesController(Controller):
    """The devices of the calling app, or of the calling user."""

    path = "/v1/devices"
    tags = ("Devices",)

    @post(
        summary="Register a device",
        responses={200: describe_response(RegisteredDevice, "It was registered before.")},
    )
    async def register(
        self,
        request: ApiRequest,
        data: NewDevice,
        registry: Injected[Registry],
        idempotency: Injected[Idempotency],
        limits: Injected[Limits],
        catalog: Injected[Catalog],
        on_user_changed: Injected[OnUserChanged],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[RegisteredDevice]:
        """Register a device (201), or refresh the one that has this token already (200).

        If the user then has more devices than allowed, the least recently seen one is revoked. A
        device of another user is refused (409) unless its secret is given or the app itself calls;
        then its stored messages and subscriptions are deleted, and it has to reconnect. A user who
        gives the secret gets a new one.
        """
        caller = app_or_user_of(request, Scope.DEVICES_WRITE)
        details = _details_of(caller, data)
        given = read_registration(caller, data)
        edit = await check_preferences(data.preferences, catalog, given.app_id)
        device, secret = registry.propose(**given._asdict(), details=details)
        if edit is not None:
            device = replace(device, preferences=edit(device.preferences))
        if isinstance(caller, UserCaller) and not await _is_known(device, registry):
            await _check_rate(caller, limits, device.created_at)
        token = None if data.subscription else given.token
        answer = RegisteredDevice(device_id=device.id, token=token, is_new=True, secret=secret)
        once = await idempotency.once(request, idempotency_key, answer, details.user_id)
        is_by_app = isinstance(caller, AppCaller)
        for _ in range(2):  # twice, because the device may be deleted in between
            added = await registry.add(device, once)
            if isinstance(added, StoredResponse):
                return idempotency.answer_again(added, once, RegisteredDevice, 201)
            before = None if added else await registry.find(device.app_id, device.token_hash)
            done = added or await registry.refresh(device, is_by_app=is_by_app, secret=data.secret)
            if done is None:
                continue
            after = done.device
            if edit is not None and not added:  # a new device has them already
                after = await registry.set_preferences(after.app_id, after.id, edit) or after
            await _replan(before, after, on_user_changed)
            return _answer(done, answer, device)
        raise DeviceOfAnotherUser

    @get(summary="List devices")
    async def list_all(
        self,
        request: ApiRequest,
        registry: Injected[Registry],
        user_id: OfUser = None,
        platform: OfPlatform = None,
        valid: Valid = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[DeviceView]:
        """Return the devices of the app for which all given conditions hold, sorted by id.

        With several conditions a page can have fewer items than `limit`, even none, and a `next`:
        follow it until it is null.
        """
        app_id = app_of(request, Scope.DEVICES_READ).app_id
        kind = None if platform is None else check_value("platform", _check_platform, platform)
        chosen = DeviceFilter(user_id=user_id, platform=kind, is_valid=read_flag(valid, "valid"))
        size = check_limit(limit)
        page = await registry.devices.list_all(app_id, chosen, after=after, limit=size)
        return Items([_view(device, registry) for device in page.items], page.next)

    @get("/{device_id:str}", summary="Get a device")
    async def get_device(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        registry: Injected[Registry],
    ) -> DeviceView:
        """Return the device, valid or not, with the state of its connection."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_READ)
        return _view(device, registry)

    @patch("/{device_id:str}", summary="Update a device")
    async def update(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        data: DeviceChanges,
        registry: Injected[Registry],
        catalog: Injected[Catalog],
        on_user_changed: Injected[OnUserChanged],
    ) -> DeviceView:
        """Update the given fields, also inside `preferences`; the others do not change.

        Null resets a value to its default.
        """
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        details = _details_of(app_or_user_of(request, Scope.DEVICES_WRITE), data)
        edit = await check_preferences(data.preferences, catalog, device.app_id)
        changed = _found(await registry.update(device.app_id, device.id, details))
        if edit is not None:
            changed = _found(await registry.set_preferences(device.app_id, device.id, edit))
        await _replan(device, changed, on_user_changed)
        return _view(changed, registry)

    @delete("/{device_id:str}", summary="Delete a device", status_code=204)
    async def delete_device(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        registry: Injected[Registry],
        on_user_changed: Injected[OnUserChanged],
    ) -> None:
        """Delete the device; add its token to the feedback. Its messages stay in the history."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        await registry.delete(device.app_id, device.id)
        await _replan(device, None, on_user_changed)

    @post("/{device_id:str}/invalidate", summary="Invalidate a device", status_code=200)
    async def invalidate(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        data: Invalidation,
        registry: Injected[Registry],
        on_user_changed: Injected[OnUserChanged],
    ) -> DeviceView:
        """Stop sending to the device; add its token to the feedback. A repeat changes nothing."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        invalidated = await registry.invalidate(device.app_id, device.id, data.reason)
        await _replan(device, invalidated or device, on_user_changed)
        return _view(invalidated or device, registry)

    @post("/{device_id:str}/secret", summary="Renew the secret of a device", status_code=200)
    async def renew_secret(
        self,
        request: ApiRequest,
        device_id: DeviceId,
        registry: Injected[Registry],
    ) -> RenewedSecret:
        """Return a new secret, only once; the old one is refused, and its connection closed."""
        device = await find_device(request, device_id, registry, Scope.DEVICES_WRITE)
        secret = await registry.renew_secret(device)
        return RenewedSecret(device_id=device.id, secret=secret)


@get(
    ["/v1/users/{user_id:str}/devices", "/v1/me/devices"],
    summary="List the devices of a user",
    tags=["Devices"],
)
async def list_devices(
    request: ApiRequest,
    registry: Injected[Registry],
    check_present: Injected[CheckPresent],
    user_id: UserId | None = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[DeviceView]:
    """Return the devices of a user; under `/v1/me` those of the calling user."""
    app_id, owner = owner_of(request, user_id, Scope.DEVICES_READ)
    await check_present(app_id, owner)
    page = await registry.devices.list(app_id, owner, after=after, limit=check_limit(limit))
    if user_id is not None and not page.items:  # a device may be registered before its user is
        await check_present(app_id, owner, must_be_created=True)
    return Items([_view(device, registry) for device in page.items], page.next)


async def _replan(
    before: Device | None, after: Device | None, on_user_changed: OnUserChanged
) -> None:
    """Schedule new decisions on what waits for a changed device's users, if they may differ."""
    if _what_counts(before) == _what_counts(after):
        return
    devices = [device for device in (before, after) if device is not None]
    for app_id, user_id in {(device.app_id, device.details.user_id) for device in devices}:
        if user_id is not None:
            await on_user_changed(app_id, user_id)


def _what_counts(device: Device | None) -> tuple[str | None, str | None, DevicePreferences] | None:
    """Return what decisions depend on; None if there is no device to send to."""
    if device is None or not device.is_valid:
        return None
    return device.details.user_id, device.details.timezone, device.preferences


def _answer(
    done: Registered, proposed: RegisteredDevice, device: Device
) -> Response[RegisteredDevice]:
    """Return the response to a registration: the proposed one if the proposed device was added."""
    is_new = done.device.id == device.id
    answer = RegisteredDevice(
        device_id=done.device.id,
        token=proposed.token,
        is_new=is_new,
        secret=proposed.secret if done.device.secret_hash == device.secret_hash else None,
        revoked_device_id=done.revoked[0] if done.revoked else None,
    )
    return Response(answer, status_code=201 if is_new else 200)


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
    caller = app_or_user_of(request, scope)
    device = _found(await registry.devices.get(caller.app_id, device_id))
    if isinstance(caller, UserCaller) and device.details.user_id != caller.user_id:
        return _found(None)
    return device


def _found(device: Device | None) -> Device:
    if device is None:
        raise NotFound("There is no such device.")
    return device


def _details_of(caller: AppCaller | UserCaller, data: Details) -> DeviceDetails:
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


def _view(device: Device, registry: Registry) -> DeviceView:
    return DeviceView.of(
        device,
        device_id=device.id,
        **asdict(device.details),
        preferences=view_preferences(device),
        state=_state(device, registry),
    )


def _state(device: Device, registry: Registry) -> ConnectionStateView:
    connection = registry.connections.get(device.id)
    session = connection.session if connection else None
    return ConnectionStateView(
        online=session is not None,
        foreground=session is not None and session.is_foreground,
        enabled=session is None or session.is_enabled,
        last_active_at=to_rfc3339(registry.last_active_at(device)),
    )


ROUTES = (DevicesController, list_devices)
