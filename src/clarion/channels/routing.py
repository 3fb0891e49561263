"""The channels of each app: its providers, in their order, and which is tried when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clarion.catalog.model import Channel
from clarion.channels.breaker import BreakerState, find_worst
from clarion.channels.kinds import ProviderKind, find_address
from clarion.channels.metrics import ChannelMetrics
from clarion.channels.model import (
    Address,
    Misconfigured,
    Outcome,
    OutgoingMessage,
    Provider,
    Rejected,
    Retry,
    Try,
    Verified,
)
from clarion.channels.port import Providers, SenderContext
from clarion.channels.route import Route, close_all, verify
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from clarion.people.model import User
from clarion.telemetry.logs import get_logger

# Other nodes may change a provider; this one sees it when the bus brings the change, and after this
# time at the latest.
FRESH_MS = 5_000
FRESH_LIMIT = 10_000
# Every node has seen a change after this time; their clocks may differ a little.
SEEN_MS = FRESH_MS + 1_000
# Devices of our own gateway need no provider; neither does the inbox.
OWN_PLATFORM = "clarion"
_ALWAYS = frozenset({Channel.IN_APP, Channel.PUSH})


@dataclass(frozen=True, slots=True)
class RoutedChannels:
    """The `AppChannels` port."""

    available: frozenset[Channel]
    platforms: frozenset[str]
    routes: Mapping[Channel, Sequence[Route]]

    def find_addresses(self, channel: Channel, type_name: str, user: User) -> tuple[Address, ...]:
        if channel is Channel.WEBHOOK:
            return tuple(self._list_webhooks(type_name))
        value = find_address(channel, user)
        return () if value is None else (Address("", value),)

    def _list_webhooks(self, type_name: str) -> Iterator[Address]:
        """Yield an address for each webhook that wants the type: all of them get it."""
        for each in self.routes.get(Channel.WEBHOOK, ()):
            if each.kind.takes(each.settings, type_name):
                yield Address(each.provider.name, "")

    def find_route(self, channel: Channel, name: str) -> Route | None:
        """Return the route of an active provider."""
        routes = self.routes.get(channel, ())
        return next((each for each in routes if each.provider.name == name), None)

    async def send(
        self, channel: Channel, message: OutgoingMessage, only: str | None = None
    ) -> tuple[Try, ...]:
        tries: list[Try] = []
        for route in self._choose(channel, message.address, only):
            outcome = await route.try_(message)
            tries.append(Try(route.provider.name, outcome))
            if not isinstance(outcome, Retry | Misconfigured):
                break
        if not tries:
            refusal = Rejected(error_code="no_provider", error_message="no provider is active")
            tries.append(Try("", refusal))
        return tuple(tries)

    def _choose(self, channel: Channel, address: Address, only: str | None) -> Sequence[Route]:
        routes = self.routes.get(channel, ())
        if channel is Channel.WEBHOOK:
            return [each for each in routes if each.provider.name == address.id]
        fitting = [each for each in routes if _fits(each.kind, address)]
        same = [each for each in fitting if each.provider.name == only]
        return same or fitting


def _fits(kind: ProviderKind, address: Address) -> bool:
    return not kind.platforms or address.platform in kind.platforms


class Routing:
    """The `Channels` port. Routes are kept while their provider does not change."""

    def __init__(
        self,
        providers: Providers,
        kinds: Mapping[str, ProviderKind],
        context: SenderContext,
        metrics: ChannelMetrics,
    ) -> None:
        self.providers = providers
        self.kinds = kinds
        self.targets = context.http.targets
        self._context = context
        self._metrics = metrics
        # Has the providers of an app read again when they are next needed, on every node.
        self._fresh = NodeCache[str, RoutedChannels](FRESH_MS, FRESH_LIMIT)
        self.forget = Invalidation("channels.provider", self._fresh.forget, self._fresh.forget_all)
        # The latest channels of each app, fresh or not: the next ones take over their routes.
        self._apps: dict[str, RoutedChannels] = {}
        self._loading: dict[str, asyncio.Lock] = {}
        metrics.count_open = self.count_open

    async def find(self, app_id: str) -> RoutedChannels:
        if found := self._fresh.get(app_id, self._context.clock.monotonic()):
            return found[1]
        async with self._loading.setdefault(app_id, asyncio.Lock()):
            if found := self._fresh.get(app_id, self._context.clock.monotonic()):
                return found[1]
            return await self._load(app_id)

    async def drop_app(self, app_id: str) -> None:
        """Close the connections to the providers of an app that was deleted, and forget them."""
        self._loading.pop(app_id, None)
        self._fresh.forget(app_id)
        dropped = self._apps.pop(app_id, None)
        if dropped is not None:
            await close_all(_all(dropped))

    async def disable(
        self, app_id: str, channel: Channel, name: str, reason: str, since: int | None = None
    ) -> None:
        now = self._context.clock.now()
        route = (await self.find(app_id)).find_route(channel, name)
        if since is not None and route and (route.health.succeeded_at or 0) >= since:
            return
        if await self.providers.disable(app_id, channel, name, reason, now):
            self.forget(app_id)
            about = {"app_id": app_id, "channel": channel.value, "provider": name}
            get_logger().warning("provider_disabled", **about, reason=reason)
            self._metrics.disabled[channel] += 1

    def open_route(self, provider: Provider) -> Route:
        """Return a route of its own for a provider, to be closed by the caller."""
        kind = self.kinds[provider.kind]
        return Route(provider, kind, self._context, self.providers, self._metrics)

    async def verify(self, provider: Provider) -> Verified | Outcome | None:
        """Try the credentials of a provider without sending; None if its kind has no way to."""
        return await verify(provider, self.kinds[provider.kind], self._context)

    async def close(self) -> None:
        """Close all connections to providers."""
        self._fresh.forget_all()
        apps, self._apps = self._apps, {}
        await close_all([route for each in apps.values() for route in _all(each)])

    def count_open(self) -> dict[tuple[str, str], int]:
        """Return how many circuit breakers are not closed, by channel and kind."""
        counts: dict[tuple[str, str], int] = {}
        for app in self._apps.values():
            for route in _all(app):
                key = route.provider.channel.value, route.kind.name
                is_open = route.circuit is not BreakerState.CLOSED
                counts[key] = counts.get(key, 0) + is_open
        return counts

    def list_circuits(self) -> dict[str, str]:
        """Return the state of the worst circuit breaker of each channel and kind."""
        states: dict[str, set[BreakerState]] = {}
        for app in self._apps.values():
            for route in _all(app):
                name = f"{route.provider.channel.value}/{route.kind.name}"
                states.setdefault(name, set()).add(route.circuit)
        return {name: find_worst(some).value for name, some in states.items()}

    async def _load(self, app_id: str) -> RoutedChannels:
        since, began = self._fresh.changes.count, self._context.clock.monotonic()
        old = self._apps.get(app_id)
        known = {_key(route.provider): route for route in _all(old)} if old else {}
        by_channel: dict[Channel, list[Route]] = {}
        listed = await self.providers.list(app_id)
        for provider in (*listed, _make_stub(app_id)):
            if not provider.is_active or provider.kind not in self.kinds:
                continue
            same = known.pop(_key(provider), None)
            route = same or self.open_route(provider)
            by_channel.setdefault(provider.channel, []).append(route)
        made = self._apps[app_id] = _make(by_channel)
        self._fresh.put(app_id, made, began, since)
        if known:
            await close_all(list(known.values()))
        return made


def _make(routes: dict[Channel, list[Route]]) -> RoutedChannels:
    push = routes.get(Channel.PUSH, ())
    platforms = frozenset({OWN_PLATFORM}).union(*(each.kind.platforms for each in push))
    return RoutedChannels(_ALWAYS | routes.keys(), platforms, routes)


def _make_stub(app_id: str) -> Provider:
    """Return the provider of the channel for tests, which every app has."""
    return Provider(
        app_id=app_id,
        channel=Channel.STUB,
        name="stub",
        kind="stub",
        concurrency=2_000,
        created_at=0,
        updated_at=0,
    )


def _all(app: RoutedChannels) -> list[Route]:
    return [route for routes in app.routes.values() for route in routes]


def _key(provider: Provider) -> tuple[str, str, int]:
    """Return the values that a route depends on: a changed provider gets a new route."""
    return provider.channel.value, provider.name, provider.updated_at
