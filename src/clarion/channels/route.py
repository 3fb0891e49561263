"""One provider at work: its sender, its slots, its circuit breaker, and its recent results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from clarion.channels.breaker import MISCONFIGURED_MS, Breaker, BreakerState, find_worst
from clarion.channels.connection_words import explain_refusal, name_cause
from clarion.channels.kinds import ProviderKind
from clarion.channels.metrics import ChannelMetrics
from clarion.channels.model import (
    ASKED_TO_WAIT,
    BUSY,
    DAILY_CAP,
    Configuration,
    Delivered,
    Failure,
    Misconfigured,
    NotTried,
    Outcome,
    OutgoingMessage,
    Provider,
    Retry,
    Unknown,
    Verified,
)
from clarion.channels.port import Providers, Sender, SenderContext
from clarion.channels.repeated_secrets import conceal
from clarion.channels.sql import DAY_MS
from clarion.channels.targets import sending_app
from clarion.telemetry.logs import get_logger
from clarion.telemetry.outages import Outage

T = TypeVar("T", bound=Outcome | Verified)
# How long an attempt waits for a slot. Beyond it, another provider is tried.
SLOT_WAIT_S = 5.0
SANDBOX = "sandbox: not sent"
CIRCUITS_LIMIT = 1_000
WAITING_LIMIT = 1_000


@dataclass(slots=True)
class RouteHealth:
    """The last results of a provider on this node, since it was opened."""

    succeeded_at: int | None = None
    failed_at: int | None = None
    error_code: str | None = None
    error_message: str | None = None


@dataclass(slots=True, eq=False)
class Route:
    """Sends through one provider of an app."""

    provider: Provider
    kind: ProviderKind
    context: SenderContext
    providers: Providers
    metrics: ChannelMetrics
    # By circuit: most providers have one. The one opened last is last.
    breakers: dict[str, Breaker] = field(default_factory=dict)
    health: RouteHealth = field(default_factory=RouteHealth)
    # By the id of a message: until when the provider asked not to be tried with it. A message to
    # several addresses is due when the first of them is. The one asked for last is last.
    waits: dict[str, int] = field(default_factory=dict)
    settings: Any = field(init=False)
    _sender: Sender | None = None
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.settings = msgspec.convert(self.provider.settings, self.kind.settings)
        self._slots = asyncio.Semaphore(self.provider.concurrency)

    async def try_(self, message: OutgoingMessage) -> Outcome:
        """Make one attempt, unless the breaker, the cap or the slots refuse it."""
        clock, breaker = self.context.clock, self._find_breaker(message)
        if (left_ms := self.waits.pop(message.id, 0) - clock.monotonic()) > 0:
            self._remember_wait(message, left_ms)
            return _skip(ASKED_TO_WAIT, "the provider asked to wait longer", left_ms / 1000)
        if not breaker.allows(clock.monotonic()):
            breaker.waited += 1
            wait_s = breaker.wait_s(clock.monotonic())
            return _skip("circuit_open", "the provider failed often; it is paused", wait_s)
        if not await self._take_slot():
            breaker.cancel()
            return _skip(BUSY, f"{self.provider.concurrency} attempts are running", 1.0)
        try:
            return await self._take_daily() or await self._send(message, breaker)
        finally:
            breaker.cancel()
            self._slots.release()

    async def test(self, message: OutgoingMessage) -> Outcome:
        """Make one attempt, even if the breaker is open, without counting it."""
        return await self._attempt(message)

    @property
    def circuit(self) -> BreakerState:
        """The state of the circuit that is worst off."""
        return find_worst({each.state for each in self.breakers.values()})

    def _find_breaker(self, message: OutgoingMessage) -> Breaker:
        circuit = self.kind.find_circuit(message.address)
        breaker = self.breakers.get(circuit)
        if breaker is None:
            if len(self.breakers) >= CIRCUITS_LIMIT:
                del self.breakers[next(iter(self.breakers))]
            breaker = self.breakers[circuit] = Breaker(self._make_outage())
        return breaker

    def _make_outage(self) -> Outage:
        each = self.provider
        return Outage(
            "provider_circuit_open",
            "provider_circuit_closed",
            now=lambda: self.context.clock.monotonic() / 1000,
            app_id=each.app_id,
            channel=each.channel.value,
            provider=each.name,
            kind=each.kind,
        )

    def _remember_wait(self, message: OutgoingMessage, wait_ms: int) -> None:
        if len(self.waits) >= WAITING_LIMIT:
            del self.waits[next(iter(self.waits))]
        self.waits[message.id] = self.context.clock.monotonic() + wait_ms

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()

    async def _take_slot(self) -> bool:
        if not self._slots.locked():
            return await self._slots.acquire()
        try:
            async with asyncio.timeout(SLOT_WAIT_S):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    async def _take_daily(self) -> NotTried | None:
        each, now = self.provider, self.context.clock.now()
        if each.daily_cap is None or each.is_sandbox:
            return None
        cap = each.daily_cap
        if await self.providers.take_daily(each.app_id, each.channel, each.name, cap=cap, now=now):
            return None
        left_s = (DAY_MS - now % DAY_MS) / 1000
        return _skip(DAILY_CAP, f"the daily cap of {cap:,} messages is reached", left_s)

    async def _send(self, message: OutgoingMessage, breaker: Breaker) -> Outcome:
        began = self.context.clock.monotonic()
        outcome: Outcome = Unknown(error_code="cancelled", error_message="the server stopped")
        try:
            # Asked here, because the message may have waited for its slot.
            if self.context.is_gone(self.provider.app_id, message.user.id):
                outcome = _skip("user_gone", "the user was deleted", 1.0)
                return outcome
            outcome = await self._attempt(message)
            if isinstance(outcome, Retry) and outcome.after_s:
                self._remember_wait(message, int(outcome.after_s * 1000))
            return outcome
        finally:
            self._record(outcome, began, breaker)

    async def _attempt(self, message: OutgoingMessage) -> Outcome:
        """Send, and turn errors and time-outs into outcomes."""
        if self.provider.is_sandbox:
            return Delivered(response=SANDBOX)
        sending_app.set(self.provider.app_id)
        outcome = await _limit(self.provider, lambda: self._open().send(message))
        return explain_refusal(outcome, self.kind.answers)

    def _open(self) -> Sender:
        if self._sender is None:
            self._sender = self.kind.open(configure(self.provider, self.kind), self.context)
        return self._sender

    def _record(self, outcome: Outcome, began: int, breaker: Breaker) -> None:
        clock, provider = self.context.clock, self.provider
        now, took_s = clock.monotonic(), (clock.monotonic() - began) / 1000
        self.metrics.observe(provider.channel, self.kind.name, outcome, took_s)
        if isinstance(outcome, NotTried):
            return  # the sender had no room: that says nothing of the provider
        if isinstance(outcome, Failure):
            self.health.failed_at = clock.now()
            self.health.error_code = outcome.error_code
            self.health.error_message = outcome.error_message
        if not isinstance(outcome, Retry | Unknown | Misconfigured):
            self.health.succeeded_at = clock.now()
            breaker.succeed(now)
        elif self._opens(breaker, outcome, now):
            cause = name_cause(outcome, self.kind.answers)
            breaker.outage.begin(cause, code=outcome.error_code)

    def _opens(self, breaker: Breaker, outcome: Failure, now: int) -> bool:
        if not self.kind.is_watched:
            return False
        if isinstance(outcome, Misconfigured):
            was_open = breaker.state is BreakerState.OPEN
            breaker.open(now, MISCONFIGURED_MS)
            return not was_open
        return breaker.fail(now, outcome.after_s if isinstance(outcome, Retry) else None)


async def _limit(provider: Provider, attempt: Callable[[], Awaitable[T]]) -> T | Unknown:
    """Make an attempt, and turn an error or a time-out into an outcome."""
    limit_s = provider.timeout_s
    try:
        async with asyncio.timeout(limit_s):
            return conceal(await attempt(), provider.secrets.values())
    except TimeoutError:
        return Unknown(error_code="timeout", error_message=f"No answer within {limit_s} s.")
    except Exception as error:  # noqa: BLE001 - an error of a provider is a failed attempt
        get_logger().error("provider_failed", kind=provider.kind, exc_info=error)
        return Unknown(error_code="provider_failed", error_message=type(error).__name__)


async def verify(
    provider: Provider, kind: ProviderKind, context: SenderContext
) -> Verified | Outcome | None:
    """Try the credentials of a provider without sending; None if its kind has no way to."""
    try_credentials = kind.verify
    if try_credentials is None or provider.is_sandbox:
        return None

    async def attempt() -> Verified | Outcome:
        sender = kind.open(configure(provider, kind), context)
        try:
            return await try_credentials(sender)
        finally:
            await sender.close()

    return explain_refusal(await _limit(provider, attempt), kind.answers)


def configure(provider: Provider, kind: ProviderKind) -> Configuration[Any, Any]:
    """Return the provider's settings and secrets, decoded."""
    return Configuration(
        app_id=provider.app_id,
        channel=provider.channel,
        name=provider.name,
        settings=msgspec.convert(provider.settings, kind.settings),
        secrets=msgspec.convert(provider.secrets, kind.secrets),
        timeout_s=provider.timeout_s,
        concurrency=provider.concurrency,
    )


def _skip(code: str, message: str, after_s: float) -> NotTried:
    return NotTried(error_code=code, error_message=message, after_s=after_s)


async def close_all(routes: list[Route]) -> None:
    """Close routes; if closing one fails, the others are still closed."""
    for each in routes:
        with contextlib.suppress(Exception):
            await each.close()
