"""One attempt at a delivery: its addresses, the providers tried for each, and what follows."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from clarion.catalog.model import Channel
from clarion.channels.model import (
    WAITING_CODES,
    Address,
    Delivered,
    Failure,
    Gone,
    Misconfigured,
    NotTried,
    Outcome,
    OutgoingMessage,
    Retry,
    Sent,
    Try,
    Unknown,
)
from clarion.channels.port import AppChannels
from clarion.events.decide.rules import choose_push_devices
from clarion.events.model import DeadLetter, JobOutcome, Reschedule
from clarion.events.outcomes import archive_decision
from clarion.events.port import PipelinePorts
from clarion.events.rendering import render
from clarion.events.schedules import add_jitter, find_wait_s, find_wait_untried_s
from clarion.events.waiting import WaitingNotification
from clarion.history.model import Attempt, Delivery, DeliveryStatus, ReasonCode
from clarion.push.model import GATEWAY, Device, InvalidationReason
from clarion.telemetry.traces import StepKind, current, entered

# Shorter than the lease: an outcome that comes after it would be refused.
LONGEST_ATTEMPT_S = 40.0
TEXT_LENGTH = 1_000
# How often a provider that may have taken a message is tried again with the same id. Then another
# one is tried: a message that may arrive twice is better than one that may not arrive.
UNKNOWN_LIMIT = 3
# An address whose last attempt ended so needs no other.
_SETTLED = frozenset({"delivered", "sent", "rejected", "gone"})
_ARRIVED = frozenset({"delivered", "sent"})


class AddressProgress(msgspec.Struct, frozen=True):
    """An address, and what became of the attempts so far."""

    address: Address
    number: int = 0  # of the last attempt
    status: str = ""
    provider: str | None = None
    unknowns: int = 0  # in a row

    @property
    def only(self) -> str | None:
        """The provider that must be tried, because it may have taken the message."""
        return self.provider if 0 < self.unknowns < UNKNOWN_LIMIT else None


class Result(NamedTuple):
    """The tries for one address."""

    progress: AddressProgress
    tries: tuple[Try, ...]

    @property
    def outcome(self) -> Outcome:
        """The decisive outcome: of the provider that accepted or refused it, or the first one.

        An outcome without an attempt counts only if there is no other.
        """
        last = self.tries[-1].outcome
        if not is_open(last):
            return last
        made = (each.outcome for each in self.tries if not isinstance(each.outcome, NotTried))
        return next(made, self.tries[0].outcome)


def is_open(outcome: Outcome) -> bool:
    """Whether another attempt follows."""
    return isinstance(outcome, Retry | Unknown | Misconfigured)


class Plan(NamedTuple):
    """The addresses of a delivery: those to send to now, and those that are done with.

    `devices` are those of our own gateway among the open ones, by id; `next_at` is when others can
    be sent to, whose hours are quiet now.
    """

    open: list[AddressProgress]
    settled: list[AddressProgress]
    devices: Mapping[str, Device] = {}
    next_at: int | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """Sends deliveries, and returns the outcomes to be stored."""

    ports: PipelinePorts

    async def attempt(self, waiting: WaitingNotification, delivery: Delivery) -> JobOutcome:
        """Make an attempt for every address that needs one."""
        channels = await self.ports.channels.find(delivery.app_id)
        past = await self._list_past(delivery)
        if delivery.attempt_count and not past:
            # The notification was deleted since it was read: who has its message is not known.
            return JobOutcome(job=waiting.job)
        plan = self._make_plan(waiting, delivery, channels, past)
        make = await self._compose(waiting, delivery)
        own = [each for each in plan.open if _is_own(each, plan)]
        stored = [
            self.ports.push_devices.make_message(plan.devices[each.address.id], make(each))
            for each in own
        ]
        results = [Result(each, (Try(GATEWAY, Sent()),)) for each in own]
        results += await asyncio.gather(
            *(
                self._send(channels, delivery.channel, each, make(each))
                for each in plan.open
                if not _is_own(each, plan)
            )
        )
        outcome = self._conclude(waiting, delivery, plan, results)
        await self._report_gone(delivery, plan, results, outcome)
        return replace(outcome, messages=tuple(stored))

    async def _list_past(self, delivery: Delivery) -> Sequence[Attempt]:
        if not delivery.attempt_count:
            return ()
        return await self.ports.deliveries.list_attempts_of_channel(
            delivery.notification_id, delivery.channel
        )

    def _make_plan(
        self,
        waiting: WaitingNotification,
        delivery: Delivery,
        channels: AppChannels,
        past: Sequence[Attempt],
    ) -> Plan:
        if delivery.channel is Channel.PUSH:
            return self._plan_push(waiting, past)
        user, type_name = waiting.prepared.case.recipient, waiting.notification.type
        addresses = channels.find_addresses(delivery.channel, type_name, user)
        return Plan(*_split(find_progress(each, past) for each in addresses))

    def _plan_push(self, waiting: WaitingNotification, past: Sequence[Attempt]) -> Plan:
        chosen = choose_push_devices(waiting.prepared.case)
        progress = [
            find_progress(self.ports.push_devices.find_address(each), past) for each in chosen.now
        ]
        done = {each.device_id for each in past if each.status in _SETTLED}
        later = [until for device, until in chosen.later if until and device.id not in done]
        by_id = {each.id: each for each in chosen.now}
        return Plan(*_split(progress), by_id, min(later, default=None))

    async def _compose(self, waiting: WaitingNotification, delivery: Delivery) -> MakeMessage:
        """Render the text once, and return the function that addresses it."""
        notification, user = waiting.notification, waiting.prepared.case.recipient
        entry = waiting.prepared.request.entry
        text = await render(entry, delivery.channel, user, notification.content, delivery.count)
        message = OutgoingMessage(
            id=f"{notification.id}/{delivery.channel}",
            notification=notification,
            user=user,
            address=Address("", ""),
            subject=text.subject,
            body=text.body,
            count=delivery.count,
            attempt=1,
            is_html=text.is_html,
            language=text.language,
            user_can_disable=entry.type.user_can_disable,
        )
        return MakeMessage(message)

    async def _send(
        self,
        channels: AppChannels,
        channel: Channel,
        progress: AddressProgress,
        message: OutgoingMessage,
    ) -> Result:
        sending, span = channels.send(channel, message, progress.only), current.get()
        if span is None:
            return Result(progress, await sending)
        about = {"clarion.channel": channel.value, "clarion.attempt": message.attempt}
        with entered(span.start("send", StepKind.CLIENT, about)) as step:
            result = Result(progress, await sending)
            provider, outcome = result.tries[-1]
            step.set({"clarion.provider": provider, "clarion.outcome": _name(outcome)})
            return result

    def _conclude(
        self,
        waiting: WaitingNotification,
        delivery: Delivery,
        plan: Plan,
        results: Sequence[Result],
    ) -> JobOutcome:
        now = self.ports.clock.now()
        made = (_make_attempts(result, delivery, now) for result in results)
        attempts = tuple(each for some in made for each in some)
        tried = _note_tries(delivery, results, attempts, now)
        failed = [each.outcome for each in results if is_open(each.outcome)]
        statuses = {each.status for each in plan.settled}
        statuses |= {_name(each.outcome) for each in results if not is_open(each.outcome)}
        next_ = self._plan_next(waiting, delivery, failed)
        if isinstance(next_, DeadLetter) and statuses & _ARRIVED:
            next_ = None  # it arrived somewhere; the attempts show where it did not
        is_over = not isinstance(next_, Reschedule)
        if is_over and plan.next_at is not None:
            next_, is_over = Reschedule(due_at=plan.next_at), bool(statuses & _ARRIVED)
        if is_over:
            tried = _settle(tried, statuses, next_, now)
        return JobOutcome(job=waiting.job, next=next_, deliveries=(tried,), attempts=attempts)

    def _plan_next(
        self, waiting: WaitingNotification, delivery: Delivery, failed: Sequence[Outcome]
    ) -> Reschedule | DeadLetter | None:
        """Return when the job is done again; a dead letter after the last try."""
        failures = [each for each in failed if isinstance(each, Failure)]
        if not failures:
            return None
        now, first = self.ports.clock.now(), failures[0]
        error = f"{delivery.channel}: {first.error_code}: {first.error_message}"
        elapsed_s = max(0, now - delivery.decided_at) / 1000
        wait_s = find_next_wait_s(delivery.channel, waiting.job.tries + 1, elapsed_s, failures)
        if wait_s is None:
            return DeadLetter(error=error)
        is_tried = not all(isinstance(each, NotTried) for each in failures)
        return Reschedule(due_at=now + int(wait_s * 1000), error=error, is_failure=is_tried)

    async def _report_gone(
        self, delivery: Delivery, plan: Plan, results: Sequence[Result], outcome: JobOutcome
    ) -> None:
        """Invalidate the devices that are gone, and disable webhooks that are, or never answer."""
        if delivery.channel is Channel.PUSH:
            await self._invalidate(delivery.app_id, plan, results)
        elif delivery.channel is Channel.WEBHOOK:
            await self._disable(delivery, results, outcome)

    async def _invalidate(self, app_id: str, plan: Plan, results: Sequence[Result]) -> None:
        for each in results:
            if isinstance(each.outcome, Gone):
                device = plan.devices[each.progress.address.id]
                reason = InvalidationReason.UNINSTALLED
                await self.ports.registry.invalidate(app_id, device.id, reason, device.address)

    async def _disable(
        self, delivery: Delivery, results: Sequence[Result], outcome: JobOutcome
    ) -> None:
        is_dead = outcome.next is None and any(is_open(each.outcome) for each in results)
        is_dead = is_dead or isinstance(outcome.next, DeadLetter)
        for each in results:
            if isinstance(each.outcome, Gone):
                code, since = each.outcome.error_code, None
                reason = f"The endpoint answered that it is gone ({code})."
            elif is_dead and is_open(each.outcome):
                reason = "The endpoint accepted nothing over the whole schedule of retries."
                since = delivery.decided_at
            else:
                continue
            name = each.progress.address.id
            await self.ports.channels.disable(delivery.app_id, Channel.WEBHOOK, name, reason, since)


@dataclass(frozen=True, slots=True)
class MakeMessage:
    """Addresses a message."""

    message: OutgoingMessage

    def __call__(self, progress: AddressProgress) -> OutgoingMessage:
        """Return the message for one address, with an id of its own."""
        address = progress.address
        id_ = f"{self.message.id}/{address.id}" if address.id else self.message.id
        return dataclasses.replace(
            self.message, id=id_, address=address, attempt=progress.number + 1
        )


def _is_own(progress: AddressProgress, plan: Plan) -> bool:
    """Whether our own gateway reaches it: a device without an address elsewhere."""
    device = plan.devices.get(progress.address.id)
    return device is not None and device.address is None


def find_next_wait_s(
    channel: Channel, tries: int, elapsed_s: float, failures: Sequence[Failure]
) -> float | None:
    """Return after how many seconds an attempt that failed is followed by another; None: by none.

    A message that waits for its turn is not given up, however long that takes. A time that was
    asked for one address does not count for the others: who asked is not tried before it.
    """
    waits = [each.after_s if isinstance(each, Retry) else None for each in failures]
    known = [each for each in waits if each is not None]
    retry_after_s = min(known) if len(known) == len(waits) else None
    if not all(isinstance(each, NotTried) for each in failures):
        return find_wait_s(channel, tries, elapsed_s, retry_after_s)
    if any(each.error_code in WAITING_CODES for each in failures):
        return add_jitter(retry_after_s or 0.0)
    return find_wait_untried_s(channel, elapsed_s, retry_after_s or 0.0)


def _split(
    progress: Iterable[AddressProgress],
) -> tuple[list[AddressProgress], list[AddressProgress]]:
    every = list(progress)
    open_ = [each for each in every if each.status not in _SETTLED]
    return open_, [each for each in every if each.status in _SETTLED]


def find_progress(address: Address, attempts: Iterable[Attempt]) -> AddressProgress:
    """Return what became of an address, from the attempts at a delivery in their order."""
    progress = AddressProgress(address)
    for each in attempts:
        if each.device_id == address.id:
            unknowns = progress.unknowns + 1 if each.status == "unknown" else 0
            progress = AddressProgress(address, each.number, each.status, each.provider, unknowns)
    return progress


def _make_attempts(result: Result, delivery: Delivery, now: int) -> Iterable[Attempt]:
    made = [each for each in result.tries if not isinstance(each.outcome, NotTried)]
    for number, (provider, outcome) in enumerate(made, result.progress.number + 1):
        is_failure = isinstance(outcome, Failure)
        response = outcome.response if isinstance(outcome, Delivered | Sent) else None
        yield Attempt(
            notification_id=delivery.notification_id,
            channel=delivery.channel,
            number=number,
            device_id=result.progress.address.id,
            provider=provider or None,
            status=_name(outcome),
            provider_response=(response or "")[:TEXT_LENGTH] or None,
            error_code=outcome.error_code if is_failure else None,  # type: ignore[union-attr]
            error_message=outcome.error_message[:TEXT_LENGTH] if is_failure else None,  # type: ignore[union-attr]
            attempted_at=now,
        )


def _note_tries(
    delivery: Delivery, results: Sequence[Result], attempts: Sequence[Attempt], now: int
) -> Delivery:
    """Return the delivery with what the tries say: how many, which provider, the last error."""
    numbers = [each.number for each in attempts]
    failure = next((each.outcome for each in results if isinstance(each.outcome, Failure)), None)
    provider = next((each.provider for each in reversed(attempts) if each.provider), None)
    return replace(
        delivery,
        attempt_count=max(numbers, default=delivery.attempt_count),
        provider=provider or delivery.provider,
        last_attempt_at=now if attempts else delivery.last_attempt_at,
        sent_at=delivery.sent_at or (now if attempts else None),
        error_code=failure.error_code if failure else None,
        error_message=failure.error_message[:TEXT_LENGTH] if failure else None,
    )


def _settle(
    tried: Delivery, statuses: set[str], next_: Reschedule | DeadLetter | None, now: int
) -> Delivery:
    """Return a delivery for which nothing more is sent, or nothing but to devices that wait."""
    if "delivered" in statuses:
        return replace(tried, status=DeliveryStatus.DELIVERED, delivered_at=now)
    if "sent" in statuses:
        return replace(tried, status=DeliveryStatus.SENT)
    reason = ReasonCode.REJECTED if statuses != {"gone"} else ReasonCode.ADDRESS_GONE
    return fail(tried, reason if next_ is None else ReasonCode.ATTEMPTS_EXHAUSTED, now)


def fail(tried: Delivery, reason: ReasonCode, now: int) -> Delivery:
    """Return a delivery that has failed."""
    return replace(
        archive_decision(tried), status=DeliveryStatus.FAILED, reason=reason, decided_at=now
    )


def _name(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()
