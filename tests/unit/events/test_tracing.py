"""Spans of jobs: after the request of their event, with what became of it."""

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from clarion.catalog.model import Channel
from clarion.events.model import DeadLetter, Event, Job, JobKind, JobOutcome
from clarion.events.tracing import JobTraces, TracedDecider, TracedExpander, describe
from clarion.telemetry.otel import OtelTracer
from clarion.telemetry.traces import StepKind, find_context, stored
from tests.pipeline import make_delivery, make_event, make_job, make_notification
from tests.replacing import replace

TRACE, SPAN = "a" * 32, "1" * 16
PARENT = f"00-{TRACE}-{SPAN}-01 vendor=1"


class Recording:
    """A tracer, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OtelTracer(provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def recording() -> Recording:
    return Recording()


def check_parent(span: ReadableSpan) -> None:
    assert span.parent is not None
    assert (f"{span.parent.trace_id:x}", f"{span.parent.span_id:x}") == (TRACE, SPAN)
    assert span.context.trace_state.to_header() == "vendor=1"


async def test_the_work_on_a_job_is_a_span_after_the_request_of_its_event(
    recording: Recording,
) -> None:
    event = make_event()
    job = make_job(event)
    contexts: list[str | None] = []

    async def work() -> JobOutcome:
        contexts.append(find_context())
        return JobOutcome(job=job, notification=make_notification(event))

    token = stored.set({event.id: PARENT})
    try:
        await JobTraces(recording.tracer)(job, work())
    finally:
        stored.reset(token)
    (span,) = recording.spans
    check_parent(span)
    assert contexts == [f"00-{TRACE}-{span.context.span_id:016x}-01 vendor=1"]
    assert span.name == "decide"
    assert span.attributes is not None
    assert span.attributes["clarion.event.id"] == event.id
    assert find_context() is None


async def test_a_job_whose_event_is_not_traced_has_no_span(recording: Recording) -> None:
    job = make_job(make_event())

    async def work() -> JobOutcome:
        assert find_context() is None
        return JobOutcome(job=job)

    assert await JobTraces(recording.tracer)(job, work()) == JobOutcome(job=job)
    assert recording.spans == ()


def test_a_context_that_is_not_understood_does_no_harm(recording: Recording) -> None:
    for context in ("of a later release", "00-zz-yy-01", "a-b-c-d-e"):
        recording.tracer.start("step", context, StepKind.CONSUMER).end()
    assert [span.parent for span in recording.spans] == [None] * 3


async def test_a_dead_letter_is_a_failed_span(recording: Recording) -> None:
    event = make_event()
    job = make_job(event)

    async def work() -> JobOutcome:
        return JobOutcome(job=job, next=DeadLetter(error="a text of the provider"))

    token = stored.set({event.id: PARENT})
    try:
        await JobTraces(recording.tracer)(job, work())
    finally:
        stored.reset(token)
    (span,) = recording.spans
    assert span.status.status_code is StatusCode.ERROR
    assert "a text of the provider" not in span.to_json()


class Seen:
    """A handler that notes what it is given, and the contexts that it finds."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str | None]] = []

    async def handle(self, jobs: Sequence[Job]) -> None:
        self.notes += [(job.id, find_context()) for job in jobs]

    async def handle_accepted(self, pairs: Sequence[tuple[Job, Event]]) -> None:
        self.notes += [(job.id, stored.get().get(event.id)) for job, event in pairs]


async def test_events_that_were_just_accepted_have_their_contexts_with_them() -> None:
    traced, plain, seen = make_event(trace=PARENT), make_event(), Seen()
    pairs = [(make_job(each), each) for each in (traced, plain)]
    await TracedDecider(seen).handle_accepted(pairs)
    assert [context for _, context in seen.notes] == [PARENT, None]
    assert dict(stored.get()) == {}


async def test_each_chunk_of_an_audience_is_a_span(recording: Recording) -> None:
    traced, plain, seen = make_event(), make_event(), Seen()
    jobs = [replace(make_job(each), kind=JobKind.EXPAND) for each in (traced, plain)]
    token = stored.set({traced.id: PARENT})
    try:
        await TracedExpander(seen, recording.tracer).handle(jobs)
    finally:
        stored.reset(token)
    (span,) = recording.spans
    check_parent(span)
    assert span.name == "expand"
    assert [job_id for job_id, _ in seen.notes] == [job.id for job in jobs]


def test_a_span_says_what_became_of_each_channel_and_no_text() -> None:
    event = make_event()
    notification = make_notification(event)
    delivery = make_delivery(
        notification,
        channel=Channel.PUSH,
        error_code="timeout",
        error_message="what the provider wrote",
    )
    outcome = JobOutcome(job=make_job(event), notification=notification, deliveries=(delivery,))
    about = describe(outcome)
    assert about["clarion.push.status"] == delivery.status.value
    assert about["clarion.push.reason"] == delivery.reason.value
    assert about["clarion.push.error"] == "timeout"
    assert about["clarion.event.type"] == event.type
    assert {"what the provider wrote", notification.body, notification.user_id} & set(
        map(str, about.values())
    ) == set()
