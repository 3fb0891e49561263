"""Traces of the work on events: a span for each job, after the request that sent its event.

The contexts are read with the jobs, so any node can have accepted the events, at any time. The
handlers are wrapped only if traces are on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from clarion.events.model import DeadLetter, Event, Job, JobKind, JobOutcome
from clarion.events.port import AcceptedHandler, Decide, Events, JobHandler, Undecided
from clarion.pacing import read_in_chunks
from clarion.telemetry.traces import Attribute, Attributes, StepKind, Tracer, entered, stored


@dataclass(frozen=True, slots=True)
class JobTraces:
    """Makes a span of the work on a job."""

    tracer: Tracer

    async def __call__(self, job: Job, work: Awaitable[JobOutcome]) -> JobOutcome:
        """Await the work on a job, as a step after the request of its event."""
        parent = stored.get().get(job.event_id)
        if parent is None:
            return await work
        span = self.tracer.start(job.kind.value, parent, StepKind.CONSUMER, _describe_job(job))
        with entered(span):
            outcome = await work
            span.set(describe(outcome))
            if isinstance(outcome.next, DeadLetter):
                span.fail("dead_letter")
            return outcome


@dataclass(frozen=True, slots=True)
class TracedHandler:
    """Reads the contexts of the events of some jobs before these are handled."""

    inner: JobHandler
    events: Events

    async def handle(self, jobs: Sequence[Job]) -> None:
        with _set_stored(await self._read(jobs)):
            await self.inner.handle(jobs)

    async def _read(self, jobs: Sequence[Job]) -> Mapping[str, str]:
        found: dict[str, str] = {}

        async def read(ids: Sequence[str]) -> None:
            found.update(await self.events.find_traces(jobs[0].app_id, ids))

        await read_in_chunks(sorted({job.event_id for job in jobs}), read)
        return found


@dataclass(frozen=True, slots=True)
class TracedExpander:
    """Makes a span of each chunk of an audience."""

    inner: JobHandler
    tracer: Tracer

    async def handle(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            parent = stored.get().get(job.event_id)
            if parent is None:
                await self.inner.handle((job,))
                continue
            with entered(
                self.tracer.start(job.kind.value, parent, StepKind.CONSUMER, _describe_job(job))
            ):
                await self.inner.handle((job,))


@dataclass(frozen=True, slots=True)
class TracedDecider:
    """Takes the contexts from the events that this process has just accepted."""

    inner: AcceptedHandler

    async def handle_accepted(self, pairs: Sequence[tuple[Job, Event]]) -> None:
        with _set_stored({event.id: event.trace for _, event in pairs if event.trace}):
            await self.inner.handle_accepted(pairs)


def trace_decisions(decide: Decide) -> Decide:
    """Return what decides events with the contexts that they have."""

    async def traced(some: Sequence[Undecided]) -> tuple[list[JobOutcome], list[Job]]:
        with _set_stored({event.id: event.trace for _, event, _ in some if event.trace}):
            return await decide(some)

    return traced


def trace_handlers(
    handlers: Mapping[JobKind, JobHandler], events: Events, tracer: Tracer
) -> dict[JobKind, JobHandler]:
    """Return the handlers with spans around their work; unchanged if traces are off."""
    if not tracer.is_on:
        return dict(handlers)
    expander = TracedExpander(handlers[JobKind.EXPAND], tracer)
    return {
        kind: TracedHandler(expander if kind is JobKind.EXPAND else inner, events)
        for kind, inner in handlers.items()
    }


@contextmanager
def _set_stored(contexts: Mapping[str, str]) -> Iterator[None]:
    token = stored.set(contexts)
    try:
        yield
    finally:
        stored.reset(token)


def _describe_job(job: Job) -> Attributes:
    return {
        "clarion.app.id": job.app_id,
        "clarion.event.id": job.event_id,
        "clarion.job.tries": job.tries,
    }


def describe(outcome: JobOutcome) -> Attributes:
    """Return the span attributes of an outcome: ids, the type, and the status of each channel."""
    found: dict[str, Attribute] = {}
    if outcome.notification is not None:
        found["clarion.notification.id"] = outcome.notification.id
        found["clarion.event.type"] = outcome.notification.type
    elif outcome.deliveries:
        found["clarion.notification.id"] = outcome.deliveries[0].notification_id
    for each in outcome.deliveries:
        found[f"clarion.{each.channel.value}.status"] = each.status.value
        found[f"clarion.{each.channel.value}.reason"] = each.reason.value
        if each.error_code:
            found[f"clarion.{each.channel.value}.error"] = each.error_code
    if outcome.final_status is not None:
        found["clarion.event.status"] = outcome.final_status.value
    return found
