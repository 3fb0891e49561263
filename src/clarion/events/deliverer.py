"""Hands notifications to the provider of a channel, and writes down each attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from clarion.catalog.model import Channel
from clarion.channels.model import (
    Address,
    Delivered,
    Failure,
    Gone,
    Outcome,
    OutgoingMessage,
    Rejected,
    Retry,
    Sent,
)
from clarion.channels.port import ChannelProvider
from clarion.errors import ClarionError
from clarion.events.decide.verdicts import Send
from clarion.events.leases import Leases
from clarion.events.model import (
    Attempt,
    DeadLetter,
    Delivery,
    DeliveryStatus,
    Job,
    JobOutcome,
    ReasonCode,
    Reschedule,
)
from clarion.events.outcome_writer import OutcomeWriter
from clarion.events.outcomes import archive_decision, make_jobs
from clarion.events.port import PipelinePorts
from clarion.events.rendering import render
from clarion.events.waiting import WaitingNotification, WaitingReader
from clarion.pacing import WORK_SLICE_S, Slices
from clarion.telemetry.logs import get_logger

# Shorter than the lease: an outcome that comes after it would be refused.
PROVIDER_TIMEOUT_S = 20.0
# Attempts under way of one provider. An app may have as many as there is room left for others:
# alone it has half of them.
IN_FLIGHT = 2_000
# Fewer are started only if the app has nothing under way: each lane should have its share.
LEAST_ROOM = 32
# For jobs of an earlier release, which are in no pool.
FULL_MS = 1_000
TEXT_LENGTH = 1_000


class Attempts:
    """The attempts under way of one provider, and the apps that wait for room."""

    def __init__(self, on_room: Callable[[str], None]) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._on_room = on_room
        self._counts: Counter[str] = Counter()
        self._without_room: set[str] = set()

    def find_room(self, app_id: str) -> int:
        """Return how many attempts of an app can be started. If none, it is resumed later."""
        own = self._counts[app_id]
        room = max((IN_FLIGHT - len(self.tasks) - own) // 2, 0)
        if room < LEAST_ROOM and own:
            room = 0
        if room == 0:
            self._without_room.add(app_id)
        return room

    def start(self, app_id: str, attempt: Coroutine[None, None, None]) -> None:
        """Run an attempt of an app in a task of its own."""
        task = asyncio.get_running_loop().create_task(attempt)
        self.tasks.add(task)
        self._counts[app_id] += 1
        task.add_done_callback(partial(self._end, app_id))

    def _end(self, app_id: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._counts[app_id] -= 1
        if not self._counts[app_id]:
            del self._counts[app_id]
        waiting, self._without_room = self._without_room, set()
        for each in waiting:
            if self.find_room(each):
                self._on_room(each)


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Handles the jobs that send; each in a task of its own, so a slow one delays no other."""

    ports: PipelinePorts
    waiting: WaitingReader
    writer: OutcomeWriter
    attempts: Mapping[Channel, Attempts]
    leases: Leases

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Start to deliver jobs of one app; the attempts go on after this returns."""
        by_channel: dict[str, list[Job]] = {}
        for job in jobs:
            by_channel.setdefault(job.subject.partition("/")[0], []).append(job)
        for channel, some in by_channel.items():
            free = self.attempts[Channel(channel)].find_room(some[0].app_id)
            later = Reschedule(due_at=self.ports.clock.now() + FULL_MS)
            delayed = [JobOutcome(job=job, next=later) for job in some[free:]]
            await self.writer.write([*delayed, *await self._start(some[:free])])

    async def finish(self) -> None:
        """Wait for the attempts under way, at most as long as a provider may take."""
        if tasks := [task for each in self.attempts.values() for task in each.tasks]:
            await asyncio.wait(tasks, timeout=PROVIDER_TIMEOUT_S)

    async def _start(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        """Start a task for each that may be sent; return the outcomes of the others."""
        if not jobs:
            return []
        pairs = [(job, job.subject.partition("/")[2]) for job in jobs]
        waiting, outcomes = await self.waiting.read(pairs, _is_to_send)
        slices = Slices(WORK_SLICE_S)
        for each in waiting:
            if (outcome := self._decide(each)) is not None:
                outcomes.append(outcome)
            await slices.pause()
        return outcomes

    def _decide(self, waiting: WaitingNotification) -> JobOutcome | None:
        """Run the rules again, as a retry may come hours later. None: the task has started."""
        (delivery,), (decision,) = waiting.deliveries, waiting.decide()
        is_sent = isinstance(decision.verdict, Send)
        if not is_sent or delivery.status is DeliveryStatus.FAILED:
            (delivery,) = waiting.apply((decision,))
        if is_sent:
            self.leases.hold(waiting.job)
            attempts = self.attempts[delivery.channel]
            attempts.start(waiting.job.app_id, self._send(waiting, delivery))
            return None
        jobs, shared = make_jobs(waiting.prepared.request, waiting.job.event_id, (delivery,))
        return JobOutcome(job=waiting.job, deliveries=(delivery,), jobs=jobs, shared_jobs=shared)

    async def _send(self, waiting: WaitingNotification, delivery: Delivery) -> None:
        try:
            await self.writer.write([await self._attempt(waiting, delivery)])
        except ClarionError as error:
            # The job is due again when its lease expires.
            get_logger().warning("delivery_not_recorded", code=error.code)
        finally:
            self.leases.release((waiting.job,))

    async def _attempt(self, waiting: WaitingNotification, delivery: Delivery) -> JobOutcome:
        job, provider = waiting.job, self.ports.providers[delivery.channel]
        try:
            message = await make_message(waiting, delivery)
        except Exception as error:  # noqa: BLE001 - a template may fail in any way
            return self.writer.fail(job, error)
        outcome = await _try(provider, message)
        now = self.ports.clock.now()
        attempt = _make_attempt(delivery, outcome, now)
        tried = replace(
            delivery,
            attempt_count=attempt.number,
            provider=provider.name,
            last_attempt_at=now,
            sent_at=delivery.sent_at or now,
            error_code=attempt.error_code,
            error_message=attempt.error_message,
        )
        next_, settled = self._settle(job, tried, outcome, now)
        return JobOutcome(job=job, next=next_, deliveries=(settled,), attempts=(attempt,))

    def _settle(
        self, job: Job, tried: Delivery, outcome: Outcome, now: int
    ) -> tuple[Reschedule | DeadLetter | None, Delivery]:
        """Return what becomes of the job and of the delivery after an attempt."""
        match outcome:
            case Delivered() | Sent():
                return None, replace(tried, status=DeliveryStatus.DELIVERED, delivered_at=now)
            case Rejected():
                return None, _fail(tried, ReasonCode.REJECTED, now)
            case Gone():
                return None, _fail(tried, ReasonCode.ADDRESS_GONE, now)
            case Failure(error_code=code, error_message=message):
                after_s = outcome.after_s if isinstance(outcome, Retry) else None
                next_ = self.writer.retry(job, f"{tried.channel}: {code}: {message}", after_s)
                if isinstance(next_, DeadLetter):
                    return next_, _fail(tried, ReasonCode.ATTEMPTS_EXHAUSTED, now)
                return next_, tried


def _is_to_send(job: Job, delivery: Delivery) -> bool:
    """Whether it is the delivery of a job, and still to be sent; a failed one is replayed."""
    is_queued = delivery.status is DeliveryStatus.QUEUED
    is_replayed = delivery.reason is ReasonCode.ATTEMPTS_EXHAUSTED
    return delivery.channel == job.subject.partition("/")[0] and (is_queued or is_replayed)


async def make_message(waiting: WaitingNotification, delivery: Delivery) -> OutgoingMessage:
    """Return the message for the provider."""
    notification, user = waiting.notification, waiting.prepared.case.recipient
    entry = waiting.prepared.request.entry
    text = await render(entry, delivery.channel, user, notification.content, delivery.count)
    return OutgoingMessage(
        id=f"{notification.id}/{delivery.channel}",
        notification=notification,
        user=user,
        address=Address("", ""),
        subject=text.subject,
        body=text.body,
        count=delivery.count,
        attempt=delivery.attempt_count + 1,
        is_html=text.is_html,
        language=text.language,
        user_can_disable=entry.type.user_can_disable,
    )


async def _try(provider: ChannelProvider, message: OutgoingMessage) -> Outcome:
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            return await provider.deliver(message)
    except TimeoutError:
        return Retry(error_code="timeout", error_message=f"no answer in {PROVIDER_TIMEOUT_S:g} s")
    except Exception as error:  # noqa: BLE001 - an error of a provider is a failed attempt
        get_logger().error("provider_failed", provider=provider.name, exc_info=error)
        return Retry(error_code="provider_failed", error_message=type(error).__name__)


def _fail(delivery: Delivery, reason: ReasonCode, now: int) -> Delivery:
    return replace(
        archive_decision(delivery), status=DeliveryStatus.FAILED, reason=reason, decided_at=now
    )


def _make_attempt(delivery: Delivery, outcome: Outcome, now: int) -> Attempt:
    attempt = Attempt(
        notification_id=delivery.notification_id,
        channel=delivery.channel,
        number=delivery.attempt_count + 1,
        status=type(outcome).__name__.lower(),
        attempted_at=now,
    )
    if isinstance(outcome, Delivered | Sent):
        return replace(attempt, provider_response=(outcome.response or "")[:TEXT_LENGTH] or None)
    message = outcome.error_message[:TEXT_LENGTH]
    return replace(attempt, error_code=outcome.error_code, error_message=message)
