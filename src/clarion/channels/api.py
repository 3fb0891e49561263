"""Providers over HTTP. Secrets are taken, never returned."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, Response, delete, get, post, put

from clarion.access.model import Scope
from clarion.catalog.model import Category, Channel, Priority
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import (
    Address,
    Failure,
    Outcome,
    OutgoingMessage,
    Provider,
    Retry,
    Verified,
)
from clarion.channels.port import OnProviderChanged, Providers
from clarion.channels.routing import OWN_PLATFORM, Routing
from clarion.channels.targets import Targets
from clarion.clock import Clock
from clarion.errors import ClarionError, Conflict, FieldFault, InvalidFields, NotFound
from clarion.fields import check_value
from clarion.history.model import Content, Notification
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, app_of
from clarion.http.decoding import find_faults
from clarion.http.dependencies import Injected
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_choice
from clarion.http.views import Timestamp, View
from clarion.people.model import User
from clarion.push.model import GATEWAY

PROVIDERS_LIMIT = 100
# Less than the lease of a job, together with the wait for a slot and for the provider before it.
TIMEOUT_LIMIT_S = 20
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TAGS = ("Providers",)
_CHANNELS = tuple(each for each in Channel if each not in (Channel.IN_APP, Channel.STUB))

ProviderChannel = Annotated[
    str,
    msgspec.Meta(
        description="The channel of the provider.", extra_json_schema={"enum": list(_CHANNELS)}
    ),
]
ProviderName = Annotated[
    str,
    msgspec.Meta(
        description="The name of the provider, which you choose.",
        examples=["main"],
        extra_json_schema={"pattern": f"^{_NAME.pattern}$"},
    ),
]

NewProviderName = Annotated[
    str,
    msgspec.Meta(
        description="The name of the provider, which you choose; `gateway` is built in.",
        extra_json_schema={"pattern": f"^(?!{GATEWAY}$){_NAME.pattern}$"},
    ),
]


class NewProvider(Body):
    """A provider to create or replace. Secrets that are left out stay as they are."""

    kind: str
    """How it is called, like `smtp`, `twilio`, `apns`, `fcm`, `webpush`, `webhook` or `apprise`."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the kind needs, like host and port."""
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    """Passwords and keys, by name; those left out stay as they are. They are never returned."""
    order: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """Providers of a channel are tried from the lowest number on."""
    is_active: bool = True
    """Whether it is used."""
    timeout_s: Annotated[int, msgspec.Meta(ge=1, le=TIMEOUT_LIMIT_S)] = 10
    """After how many seconds an attempt is given up."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 32
    """How many messages it is given at the same time."""
    daily_cap: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] | None = None
    """How many messages it is given in a day (UTC); null: any number."""
    sandbox: bool = False
    """If true, nothing is sent: every message counts as delivered."""


class ProviderHealthView(View):
    """The recent results of a provider on this node. `circuit` is closed, open or half_open."""

    circuit: Literal["closed", "open", "half_open"]
    """`closed`: it is used; `open`: it is skipped after failures; `half_open`: it is tried again.
    """
    succeeded_at: Timestamp | None
    """When a message was sent last."""
    failed_at: Timestamp | None
    """When one failed last."""
    error_code: str | None
    """The code of the last error."""
    error_message: str | None
    """What went wrong last."""


class ProviderView(View):
    """A provider. `secrets` are the names of those that are set.

    `public` has values that a kind shows in addition to its settings, such as the `public_key` of
    Web Push. `secret` is shown once, if Clarion created it. `disabled_reason` says why Clarion
    deactivated the provider.
    """

    channel: Channel
    """The channel it delivers."""
    name: str
    """The name of the provider."""
    kind: str
    """How it is called, like `smtp`, `twilio`, `apns`, `fcm`, `webpush`, `webhook` or `apprise`."""
    settings: dict[str, Any]
    """What the kind needs, like host and port."""
    secrets: list[str]
    """The names of the secrets that are set."""
    order: int
    """Providers of a channel are tried from the lowest number on."""
    is_active: bool
    """Whether it is used."""
    disabled_reason: str | None
    """Why Clarion made it inactive; null if it did not."""
    timeout_s: int
    """After how many seconds an attempt is given up."""
    concurrency: int
    """How many messages it is given at the same time."""
    daily_cap: int | None
    """How many messages it is given in a day (UTC); null: any number."""
    sandbox: bool
    """If true, nothing is sent: every message counts as delivered."""
    created_at: Timestamp | None
    """When it was created; null if it is built in."""
    updated_at: Timestamp | None
    """When it changed last."""
    health: ProviderHealthView | None
    """How it fared on this node; null if it was not used."""
    public_key: str | None = None
    """The public key of a Web Push provider, which browsers subscribe with."""
    secret: str | None = None
    """The secret of a webhook that Clarion made, shown this once."""


class ProviderTestBody(Body):
    """Where a test message goes: an email address, a phone number or a token.

    For Web Push it is a subscription; for a webhook leave it out. For email, SMS, APNs and FCM it
    can be left out: then only the credentials are tested, and nothing is sent.
    """

    to: str | dict[str, Any] | None = None
    """An email address, a phone number, a device token, or a Web Push subscription."""


class ProviderTestResult(View):
    """The result of a test message; `verified` if only the credentials were tested."""

    outcome: str
    """The result: `delivered` or `sent`; `verified` if only the credentials were tried; `failed`,
    `unknown` if the message may have arrived, `rejected`, `gone` or `misconfigured`.
    """
    provider_response: str | None
    """What the provider answered, shortened."""
    error_code: str | None
    """The code of the error, as the provider gives it."""
    error_message: str | None
    """What went wrong, in words."""
    duration_ms: int
    """How long it took, in milliseconds."""


class ProvidersController(Controller):
    """The providers of the calling app."""

    path = "/v1/providers"
    tags = _TAGS

    @get(summary="List providers")
    async def list_providers(
        self, request: ApiRequest, channels: Injected[Routing]
    ) -> Items[ProviderView]:
        """Return the providers of all channels, each channel in the order of use."""
        app_id = app_of(request, Scope.PROVIDERS_READ).app_id
        found = await channels.providers.list(app_id)
        views = [await _view(each, channels) for each in found]
        return Items([_view_gateway(), *views], None)

    @get("/{channel:str}/{name:str}", summary="Get a provider")
    async def get_provider(
        self,
        request: ApiRequest,
        channel: ProviderChannel,
        name: ProviderName,
        channels: Injected[Routing],
    ) -> ProviderView:
        """Return a provider, with the state of its circuit breaker on this node."""
        app_id = app_of(request, Scope.PROVIDERS_READ).app_id
        if (channel, name) == (Channel.PUSH, GATEWAY):
            return _view_gateway()
        return await _view(await _find(channels.providers, app_id, channel, name), channels)

    @put(
        "/{channel:str}/{name:str}",
        summary="Create or replace a provider",
        status_code=200,
        responses={201: describe_response(ProviderView, "It is new.")},
        errors=(Conflict,),
    )
    async def put_provider(
        self,
        request: ApiRequest,
        channel: ProviderChannel,
        name: NewProviderName,
        data: NewProvider,
        channels: Injected[Routing],
        clock: Injected[Clock],
        on_provider_changed: Injected[OnProviderChanged],
    ) -> Response[ProviderView]:
        """Create a provider (201) or replace it (200). It is used from the next message on.

        Secrets that are not given stay, unless the server or the account changes: then they must be
        given again. After a change, messages of the channel that wait for a retry are retried
        within seconds.
        """
        app_id = app_of(request, Scope.PROVIDERS_WRITE).app_id
        at = check_value("channel", _check_channel, channel)
        check_value("name", _check_name, name)
        kind = _find_kind(channels.kinds, data.kind, at)
        known = {(each.channel, each.name): each for each in await channels.providers.list(app_id)}
        old = known.get((at, name))
        if old is None and len(known) >= PROVIDERS_LIMIT:
            raise Conflict(f"An app may have {PROVIDERS_LIMIT} providers.")
        kept = _keep_secrets(kind, old, data)
        merged = kind.rotate(kept, data.secrets, clock.now()) if kept else data.secrets
        secrets = kind.complete(merged)
        _check(kind, data.settings, secrets, channels.targets)
        now = max(clock.now(), old.updated_at + 1 if old else 0)
        given = _make(app_id, at, name, data, secrets, now)
        stored, is_new = await channels.providers.put(given)
        channels.forget(app_id)
        if stored.is_active and (old is None or _is_changed(old, stored)):
            # If the store fails now, they are tried at their time.
            with contextlib.suppress(ClarionError):
                await on_provider_changed(app_id, at)
        made = [n for n in kind.shown_once if n not in data.secrets and n not in kept]
        view = await _view(stored, channels, secret=secrets[made[0]] if made else None)
        return Response(view, status_code=201 if is_new else 200)

    @delete("/{channel:str}/{name:str}", summary="Delete a provider", status_code=204)
    async def delete_provider(
        self,
        request: ApiRequest,
        channel: ProviderChannel,
        name: ProviderName,
        channels: Injected[Routing],
    ) -> None:
        """Delete a provider; another one, if there is one, sends the waiting messages."""
        app_id = app_of(request, Scope.PROVIDERS_WRITE).app_id
        found = await _find(channels.providers, app_id, channel, name)
        await channels.providers.delete(app_id, found.channel, name)
        channels.forget(app_id)

    @post("/{channel:str}/{name:str}/test", summary="Test a provider", status_code=200)
    async def test_provider(
        self,
        request: ApiRequest,
        channel: ProviderChannel,
        name: ProviderName,
        data: ProviderTestBody,
        channels: Injected[Routing],
        clock: Injected[Clock],
    ) -> ProviderTestResult:
        """Send a test message at once, with no retry, and return what the provider answered.

        Without `to`, only the credentials are tested, if the kind of provider allows it.
        """
        app_id = app_of(request, Scope.PROVIDERS_WRITE).app_id
        provider = await _find(channels.providers, app_id, channel, name)
        route, began = channels.open_route(provider), clock.monotonic()
        try:
            outcome = await channels.verify(provider) if data.to is None else None
            if outcome is None:
                message = _make_test_message(provider, route.kind, data.to, clock)
                outcome = await route.test(message)
        finally:
            await route.close()
        return _view_outcome(outcome, clock.monotonic() - began)


def _check_channel(text: str) -> Channel:
    channel = check_choice(Channel, text)
    if channel not in _CHANNELS:
        raise ValueError(f"must be one of {', '.join(_CHANNELS)}")
    return channel


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text) or text == GATEWAY:
        raise ValueError(
            "must have 1 to 64 lower-case letters, digits, - or _, and not be `gateway`"
        )
    return text


def _keep_secrets(kind: ProviderKind, old: Provider | None, data: NewProvider) -> dict[str, str]:
    """Return the secrets of a provider that need not be given again.

    A caller who may change a provider must not learn them by sending them elsewhere.
    """
    if old is None or old.kind != kind.name:
        return {}
    now = data.settings
    changed = sorted(n for n in kind.bound_to if old.settings.get(n) != now.get(n))
    missing = sorted(old.secrets.keys() - data.secrets.keys())
    if changed and missing:
        reason = f"must be given again, because `settings.{changed[0]}` changes"
        raise InvalidFields(*(FieldFault(f"secrets.{name}", reason) for name in missing))
    return old.secrets


def _find_kind(kinds: Mapping[str, ProviderKind], name: str, channel: Channel) -> ProviderKind:
    kind = kinds.get(name)
    if kind is None or channel not in kind.channels:
        fitting = sorted(each.name for each in kinds.values() if channel in each.channels)
        reason = f"must be one of {', '.join(fitting)} for the channel {channel}"
        raise InvalidFields(FieldFault("kind", reason))
    return kind


def _check(
    kind: ProviderKind, settings: Mapping[str, Any], secrets: Mapping[str, str], targets: Targets
) -> None:
    """Raise `InvalidFields` with all faults of the settings and secrets."""
    faults: list[FieldFault] = []
    decoded = [
        _convert(field, values, given, faults)
        for field, values, given in (
            ("settings", settings, kind.settings),
            ("secrets", secrets, kind.secrets),
        )
    ]
    if not faults:
        faults += kind.find_faults(*decoded)
        known = {each.field for each in faults}
        urls = {f: url for f, url in kind.list_urls(decoded[0]).items() if f not in known}
        faults += _find_url_faults(urls, targets)
    if faults:
        raise InvalidFields(*faults)


def _find_url_faults(urls: Mapping[str, str], targets: Targets) -> Iterator[FieldFault]:
    for field, url in urls.items():
        try:
            targets.check_url(url)
        except ValueError as error:
            yield FieldFault(field, str(error))


def _convert(
    field: str, values: Mapping[str, Any], to: type[msgspec.Struct], faults: list[FieldFault]
) -> msgspec.Struct | None:
    try:
        return msgspec.convert(values, to)
    except msgspec.ValidationError:
        faults += find_faults(dict(values), to, field)
        return None


def _make(
    app_id: str, channel: Channel, name: str, data: NewProvider, secrets: dict[str, str], now: int
) -> Provider:
    return Provider(
        app_id=app_id,
        channel=channel,
        name=name,
        kind=data.kind,
        settings=data.settings,
        secrets=secrets,
        position=data.order,
        is_active=data.is_active,
        timeout_s=data.timeout_s,
        concurrency=data.concurrency,
        daily_cap=data.daily_cap,
        is_sandbox=data.sandbox,
        created_at=now,
        updated_at=now,
    )


def _is_changed(old: Provider, new: Provider) -> bool:
    """Whether a provider is another one, not only stored again."""
    return replace(old, updated_at=new.updated_at, disabled_reason=None) != new


async def _find(providers: Providers, app_id: str, channel: str, name: str) -> Provider:
    at = Channel(channel) if channel in _CHANNELS else None
    found = await providers.get(app_id, at, name) if at else None
    if found is None:
        raise NotFound("This app has no such provider.")
    return found


async def _view(
    provider: Provider, channels: Routing, *, secret: str | None = None
) -> ProviderView:
    kind = channels.kinds.get(provider.kind)
    shown = _describe(kind, provider) if kind else {}
    return ProviderView.of(
        provider,
        secrets=sorted(provider.secrets),
        order=provider.position,
        sandbox=provider.is_sandbox,
        health=await _view_health(provider, channels),
        public_key=shown.get("public_key"),
        secret=secret,
    )


def _describe(kind: ProviderKind, provider: Provider) -> dict[str, str]:
    settings = msgspec.convert(provider.settings, kind.settings)
    return kind.describe(settings, msgspec.convert(provider.secrets, kind.secrets))


async def _view_health(provider: Provider, channels: Routing) -> ProviderHealthView | None:
    app = await channels.find(provider.app_id)
    route = app.find_route(provider.channel, provider.name)
    return ProviderHealthView.of(route.health, circuit=route.circuit.value) if route else None


def _view_gateway() -> ProviderView:
    """Return the provider that is always there: Clarion's own gateway."""
    return ProviderView(
        channel=Channel.PUSH,
        name=GATEWAY,
        kind=GATEWAY,
        settings={"platform": OWN_PLATFORM},
        secrets=[],
        order=0,
        is_active=True,
        disabled_reason=None,
        timeout_s=TIMEOUT_LIMIT_S,
        concurrency=1000,
        daily_cap=None,
        sandbox=False,
        created_at=None,
        updated_at=None,
        health=None,
    )


def _make_test_message(
    provider: Provider, kind: ProviderKind, to: str | Mapping[str, Any] | None, clock: Clock
) -> OutgoingMessage:
    if to is None and provider.channel is not Channel.WEBHOOK and kind.needs_address:
        raise InvalidFields(FieldFault("to", "must be an address for this channel"))
    value = to if isinstance(to, str) else msgspec.json.encode(to).decode() if to else ""
    now, id_ = clock.now(), clock.new_id()
    platform = next(iter(sorted(kind.platforms)), "")
    address_id = provider.name if provider.channel is Channel.WEBHOOK else ""
    return OutgoingMessage(
        id=f"{id_}/{provider.channel}",
        notification=_make_test_notification(provider.app_id, id_, now),
        user=User(app_id=provider.app_id, id="test", created_at=now, updated_at=now),
        address=Address(address_id, value, platform),
        subject="Test",
        body="This is a test message from Clarion.",
        count=1,
        attempt=1,
    )


def _make_test_notification(app_id: str, id_: str, now: int) -> Notification:
    return Notification(
        app_id=app_id,
        user_id="test",
        id=id_,
        event_id=id_,
        type="TEST",
        category=Category.TRANSACTIONAL,
        priority=Priority.HIGH,
        title="Test",
        body="This is a test message from Clarion.",
        content=Content(),
        is_shown=False,
        created_at=now,
    )


def _view_outcome(outcome: Verified | Outcome, duration_ms: int) -> ProviderTestResult:
    failure = outcome if isinstance(outcome, Failure) else None
    return ProviderTestResult(
        outcome="failed" if isinstance(outcome, Retry) else type(outcome).__name__.lower(),
        provider_response=None if isinstance(outcome, Failure) else outcome.response,
        error_code=failure.error_code if failure else None,
        error_message=failure.error_message if failure else None,
        duration_ms=duration_ms,
    )


ROUTES = (ProvidersController,)
