"""A notification and a channel → its provider's answer, written down with the attempt."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from clarion.catalog.model import Channel
from clarion.channels.model import Delivered, Gone, OutgoingMessage, Rejected, Retry
from clarion.errors import ClarionError
from clarion.events.decide.rules import decide
from clarion.events.decide.verdicts import Send
from clarion.events.model import Attempt, Dead, DeliveryStatus, Entry, Later, ReasonCode
from clarion.events.outcomes import follow_up, remember, turn
from clarion.events.releaser import cancel
from clarion.events.waiting import by_channel
from clarion.events.wording import word
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clarion.channels.model import Outcome
    from clarion.channels.port import ChannelProvider
    from clarion.clock import Clock
    from clarion.events.cases import Brief, Gathering
    from clarion.events.model import Delivery, Job
    from clarion.events.outcome_writer import Recording
    from clarion.events.waiting import Waiting, WaitingRoom

# Shorter than the lease: who answers later has no claim any more.
PROVIDER_TIMEOUT_S = 20.0
IN_FLIGHT = 1_000
FULL_MS = 1_000
TEXT_LENGTH = 1_000


class Delivering:
    """Hands notifications to providers. A slow one keeps nobody else waiting."""

    def __init__(
        self,
        *,
        room: WaitingRoom,
        gathering: Gathering,
        recording: Recording,
        providers: Mapping[Channel, ChannelProvider],
        clock: Clock,
    ) -> None:
        self._room = room
        self._gathering = gathering
        self._recording = recording
        self._couriers = providers
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Begin to deliver jobs of one app; they go on when this returns."""
        free = max(IN_FLIGHT - len(self._tasks), 0)
        now = self._clock.now()
        full = [Entry(job=job, next=Later(due_at=now + FULL_MS)) for job in jobs[free:]]
        await self._recording.write([*full, *await self._begin(jobs[:free])])

    async def finish(self) -> None:
        """Wait for what is under way: it is soon over, one way or the other."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PROVIDER_TIMEOUT_S)

    async def _begin(self, jobs: Sequence[Job]) -> list[Entry]:
        """Start a task for each that may be sent; return the entries of those that may not."""
        if not jobs:
            return []
        pairs = [(job, job.subject.partition("/")[2]) for job in jobs]
        found, entries = await self._room.call(pairs)
        entries += [Entry(job=w.job) for w in found if not _queued(w)]
        open_ = [w for w in found if _queued(w)]
        briefs = await self._gathering.gather(
            [self._room.ask(w, _queued(w), was_collected=True) for w in open_]
        )
        for waiting, brief in zip(open_, briefs, strict=True):
            if (entry := self._decide(waiting, brief)) is not None:
                entries.append(entry)
        return entries

    def _decide(self, waiting: Waiting, brief: Brief) -> Entry | None:
        """Ask the rules once more: a try may come hours after the first. None: it is on its way."""
        (delivery,) = _queued(waiting)
        (decision,) = cancel(brief) if waiting.is_cancelled else decide(brief.case)
        if isinstance(decision.verdict, Send):
            if delivery.status is DeliveryStatus.FAILED:
                delivery = turn(delivery, brief.ask, decision)
            task = asyncio.get_running_loop().create_task(self._send(waiting, brief, delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None
        turned = turn(delivery, brief.ask, decision)
        jobs, shared = follow_up(
            brief.ask, waiting.job.event_id, waiting.notification.id, (turned,)
        )
        return Entry(job=waiting.job, deliveries=(turned,), jobs=jobs, shared_jobs=shared)

    async def _send(self, waiting: Waiting, brief: Brief, delivery: Delivery) -> None:
        try:
            await self._hand_over(waiting, brief, delivery)
        except ClarionError as error:
            # What could not be written down is tried again when the lease is over.
            get_logger().warning("delivery_not_recorded", code=error.code)

    async def _hand_over(self, waiting: Waiting, brief: Brief, delivery: Delivery) -> None:
        job, provider = waiting.job, self._couriers[delivery.channel]
        try:
            message = pack(waiting, brief, delivery)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's alone
            await self._recording.write([self._recording.fail(job, error)])
            return
        outcome = await _try(provider, message)
        now = self._clock.now()
        tried = replace(
            delivery,
            attempt_count=delivery.attempt_count + 1,
            provider=provider.name,
            last_attempt_at=now,
            sent_at=delivery.sent_at or now,
        )
        attempt = _attempt(tried, outcome, now)
        next_, turned = self._settle(job, tried, outcome, now)
        entry = Entry(job=job, next=next_, deliveries=(turned,), attempts=(attempt,))
        await self._recording.write([entry])

    def _settle(
        self, job: Job, tried: Delivery, outcome: Outcome, now: int
    ) -> tuple[Later | Dead | None, Delivery]:
        if isinstance(outcome, Delivered):
            done = replace(
                tried, status=DeliveryStatus.DELIVERED, delivered_at=now, error_code=None
            )
            return None, replace(done, error_message=None)
        failed = replace(
            tried,
            error_code=outcome.error_code,
            error_message=outcome.error_message[:TEXT_LENGTH],
        )
        if not isinstance(outcome, Retry):
            gone = isinstance(outcome, Gone)
            reason = ReasonCode.ADDRESS_GONE if gone else ReasonCode.REJECTED
            return None, _fail(failed, reason, now)
        next_ = self._recording.next_try(job, _describe(tried, outcome), outcome.after_s)
        if isinstance(next_, Dead):
            return next_, _fail(failed, ReasonCode.ATTEMPTS_EXHAUSTED, now)
        return next_, failed


def _queued(waiting: Waiting) -> tuple[Delivery, ...]:
    """Return the delivery that a job is for, if it is still to be sent.

    A dead letter that is replayed has failed before.
    """
    channel = Channel(waiting.job.subject.partition("/")[0])
    delivery = by_channel(waiting.deliveries).get(channel)
    if delivery is None:
        return ()
    is_due = delivery.status is DeliveryStatus.QUEUED
    is_replayed = delivery.reason is ReasonCode.ATTEMPTS_EXHAUSTED
    return (delivery,) if is_due or is_replayed else ()


def pack(waiting: Waiting, brief: Brief, delivery: Delivery) -> OutgoingMessage:
    """Return what the provider takes along."""
    notification, user = waiting.notification, brief.user
    assert user is not None  # noqa: S101 - the rules let nothing go to nobody
    words = word(brief.ask.kind, delivery.channel, user, notification.content, delivery.count)
    return OutgoingMessage(
        id=f"{notification.id}/{delivery.channel}",
        notification_id=notification.id,
        user=user,
        type=notification.type,
        priority=notification.priority,
        subject=words.subject,
        body=words.body,
        content=notification.content,
        count=delivery.count,
        expires_at=notification.expires_at,
        attempt=delivery.attempt_count + 1,
    )


async def _try(provider: ChannelProvider, message: OutgoingMessage) -> Outcome:
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            return await provider.deliver(message)
    except TimeoutError:
        return Retry(error_code="timeout", error_message=f"no answer in {PROVIDER_TIMEOUT_S:g} s")
    except Exception as error:  # noqa: BLE001 - a provider's fault is a failed try
        get_logger().error("provider_failed", provider=provider.name, exc_info=error)
        return Retry(error_code="provider_failed", error_message=type(error).__name__)


def _fail(delivery: Delivery, reason: ReasonCode, now: int) -> Delivery:
    return replace(remember(delivery), status=DeliveryStatus.FAILED, reason=reason, decided_at=now)


def _describe(delivery: Delivery, outcome: Retry) -> str:
    return f"{delivery.channel}: {outcome.error_code}: {outcome.error_message}"


def _attempt(delivery: Delivery, outcome: Outcome, now: int) -> Attempt:
    status, response, code, message = _record(outcome)
    return Attempt(
        notification_id=delivery.notification_id,
        channel=delivery.channel,
        number=delivery.attempt_count,
        device_id="",
        status=status,
        provider_response=response,
        error_code=code,
        error_message=message,
        attempted_at=now,
    )


def _record(outcome: Outcome) -> tuple[str, str | None, str | None, str | None]:
    """Return the word for an outcome, what the provider said, and the error."""
    if isinstance(outcome, Delivered):
        return "delivered", (outcome.response or "")[:TEXT_LENGTH] or None, None, None
    kind = {Retry: "retry", Rejected: "rejected", Gone: "gone"}[type(outcome)]
    return kind, None, outcome.error_code, outcome.error_message[:TEXT_LENGTH]
