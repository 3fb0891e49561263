"""The request to register a device, with the address at which the device is reached."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from clarion.access.model import AppCaller, UserCaller
from clarion.fields import NO_ZEROS, LanguageTag, TimezoneName, UserId, documented
from clarion.http.bodies import Body, Checks, collect
from clarion.push import addresses
from clarion.push.api.device_preferences import DevicePreferencesBody
from clarion.push.model import Platform
from clarion.push.registry import new_token

_PLATFORMS = {
    **{platform.value: platform for platform in Platform},
    "apns": Platform.IOS,
    "fcm": Platform.ANDROID,
}
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=NO_ZEROS)]


class Details(Body):
    """The details of a device."""

    user_id: UserId | None = None
    """The user of the device."""
    model: Short | None = None
    """The model of the device."""
    os_version: Short | None = None
    """The version of its operating system."""
    app_version: Short | None = None
    """The version of your app on it."""
    language: LanguageTag | None = None
    """The language of the device, a tag like pt-BR."""
    timezone: TimezoneName | None = None
    """The time zone of the device, an IANA name."""
    label: Short | None = None
    """A name for people."""


class SubscriptionKeys(Body):
    """The keys of a Web Push subscription, in base64url."""

    p256dh: Annotated[str, documented(pattern="^[A-Za-z0-9_-]{87}=?$")]
    """The public key of the browser: 65 bytes on the curve P-256, in base64url."""
    auth: Annotated[str, documented(pattern="^[A-Za-z0-9_-]{22}(==)?$")]
    """The secret of the subscription: 16 bytes, in base64url."""


class WebSubscription(Body):
    """A Web Push subscription, as browsers write it."""

    endpoint: Annotated[str, documented(format="uri", pattern="^https://", maxLength=2_000)]
    """The URL of the push service."""
    keys: SubscriptionKeys
    """The keys with which messages are encrypted."""
    expirationTime: float | None = None  # noqa: N815 - the name that browsers give it
    """As browsers give it; not used."""


class NewDevice(Details, kw_only=True):
    """A device to register.

    With platform `ios` or `android`, `token` is that of APNs or FCM; with `web`, `subscription` is
    that of the browser. A device with neither connects to Clarion, and a token is generated.
    With the `secret` of a registered device, a user takes it over from another user.
    """

    platform: Annotated[str, documented(enum=list(_PLATFORMS))]
    """`ios` (or `apns`), `android` (or `fcm`), `web`, or `clarion` for devices that connect to
    Clarion.
    """
    app_id: str | None = None
    """The app of the device; must be that of the key or token that calls."""
    token: Annotated[str, documented(pattern=addresses.TOKEN)] | None = None
    """The token of APNs or FCM. Of a device that connects to Clarion, one is generated if it is
    left out.
    """
    subscription: WebSubscription | None = None
    """The Web Push subscription of a browser."""
    secret: Short | None = None
    """The secret of a registered device, to take it over from another user."""
    preferences: DevicePreferencesBody | UnsetType | None = UNSET
    """What the device receives; null resets all to the defaults."""

    def checks(self) -> Checks:
        """Return the checks of the fields with the address of the device."""
        checks: dict[str, Callable[[], object]] = {
            "platform": partial(_check_platform, self.platform),
            "token": partial(_check_token, self),
        }
        if self.subscription is not None:
            checks["subscription"] = partial(_check_subscription, self, self.subscription)
        return checks


class Registration(NamedTuple):
    """A checked request. `address` is for another push service; None for Clarion's own gateway."""

    app_id: str
    platform: Platform
    token: str  # what the device is found by: of a subscription, its endpoint
    address: str | None


def read_registration(caller: AppCaller | UserCaller, data: NewDevice) -> Registration:
    """Return the registration of a request; `InvalidFields` names every fault."""
    checked = collect({"app_id": partial(_check_app, caller, data.app_id), **data.checks()})
    platform, token = checked["platform"], checked["token"]
    if data.subscription is not None:
        address = msgspec.json.encode(checked["subscription"]).decode()
        return Registration(checked["app_id"], platform, data.subscription.endpoint, address)
    is_foreign = platform in addresses.FOREIGN_TOKENS and data.token is not None
    return Registration(checked["app_id"], platform, token, token if is_foreign else None)


def _check_app(caller: AppCaller | UserCaller, app_id: str | None) -> str:
    if app_id not in (None, caller.app_id):
        raise ValueError("must be the app of the key or token that calls")
    return caller.app_id


def _check_platform(text: str) -> Platform:
    platform = _PLATFORMS.get(text)
    if platform is None:
        raise ValueError("must be ios (or apns), android (or fcm), web or clarion")
    return platform


def _check_token(data: NewDevice) -> str:
    if data.token is None:
        return new_token()
    if data.subscription is not None:
        raise ValueError("must not be given together with a subscription")
    return addresses.check_token(data.token)


def _check_subscription(data: NewDevice, given: WebSubscription) -> dict[str, object]:
    """Return a subscription as it is sealed."""
    if data.platform != Platform.WEB:
        raise ValueError("is for platform web only; a token of APNs or FCM is given as token")
    checked = collect(
        {
            "subscription.endpoint": partial(addresses.check_endpoint, given.endpoint),
            "subscription.keys.p256dh": partial(addresses.check_p256dh, given.keys.p256dh),
            "subscription.keys.auth": partial(addresses.check_auth, given.keys.auth),
        }
    )
    endpoint, p256dh, auth = checked.values()
    return {"endpoint": endpoint, "keys": {"p256dh": p256dh, "auth": auth}}
