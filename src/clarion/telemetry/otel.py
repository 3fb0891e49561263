"""Traces by OpenTelemetry. Only `trace_settings.py` imports it, if the environment asks for traces.

The SDK reads the other environment variables itself: endpoint, headers, sampler, the name of the
service, the size of the queue. A collector that hangs or is away fills the queue, and then spans
are dropped; nothing waits for it but a thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from functools import cached_property

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
)

from clarion import __version__
from clarion.telemetry.traces import NONE, Attributes, Span, StepKind

# A stop does not wait longer for a collector.
_CLOSE_LIMIT_S = 3.0
_HEXADECIMAL = 16
_KINDS = {
    StepKind.SERVER: SpanKind.SERVER,
    StepKind.CLIENT: SpanKind.CLIENT,
    StepKind.CONSUMER: SpanKind.CONSUMER,
    StepKind.INTERNAL: SpanKind.INTERNAL,
}


def make_tracer(exporter: str, server_id: str) -> OtelTracer:
    """Return a tracer with an exporter: `otlp` or `console`."""
    provider = TracerProvider(resource=_describe(server_id), shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter())
        if exporter == "otlp"
        else SimpleSpanProcessor(ConsoleSpanExporter())
    )
    return OtelTracer(provider)


def _describe(server_id: str) -> Resource:
    own = Resource.create(
        {
            "service.name": "clarion",
            "service.version": __version__,
            "service.instance.id": server_id,
        }
    )
    return own.merge(OTELResourceDetector().detect())


class OtelTracer:
    """The `Tracer` port."""

    is_on = True

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("clarion", __version__)
        self.sampler = provider.sampler.get_description()

    def start(
        self,
        name: str,
        parent: str | None,
        kind: StepKind,
        attributes: Attributes = NONE,
        *,
        age_ms: int = 0,
    ) -> Span:
        began = time.time_ns() - max(0, age_ms) * 1_000_000 if age_ms else None
        before = Context() if parent is None else _read_parent(parent)
        return OtelSpan(
            self._tracer,
            self._tracer.start_span(name, before, _KINDS[kind], attributes, start_time=began),
        )

    async def close(self) -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut_down() -> None:
            self._provider.shutdown()
            loop.call_soon_threadsafe(done.set)

        # A thread of the loop's executor would be waited for when the loop ends.
        threading.Thread(target=shut_down, name="traces", daemon=True).start()
        await asyncio.wait([asyncio.ensure_future(done.wait())], timeout=_CLOSE_LIMIT_S)


class OtelSpan:
    """The `Span` port."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    @cached_property
    def context(self) -> str:
        own = self._span.get_span_context()
        parent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags & 1:02x}"
        return f"{parent} {own.trace_state.to_header()}" if own.trace_state else parent

    def start(
        self, name: str, kind: StepKind = StepKind.INTERNAL, attributes: Attributes = NONE
    ) -> Span:
        before = trace.set_span_in_context(self._span, Context())
        return OtelSpan(
            self._tracer, self._tracer.start_span(name, before, _KINDS[kind], attributes)
        )

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, attributes: Attributes) -> None:
        if self._span.is_recording():
            self._span.set_attributes(attributes)

    def fail(self, error: str) -> None:
        if self._span.is_recording():
            self._span.set_status(StatusCode.ERROR)
            self._span.set_attribute("error.type", error)

    def end(self) -> None:
        if self._span.is_recording():  # it was not ended yet
            self._span.end()


def _read_parent(context: str) -> Context:
    """Return the parent that a context names; none if a later release has stored it otherwise."""
    parent, _, state = context.partition(" ")
    try:
        _, trace_id, span_id, flags = parent.split("-")
        return _make_parent(trace_id, span_id, flags, state)
    except ValueError:
        return Context()


def _make_parent(trace_id: str, span_id: str, flags: str, state: str) -> Context:
    remote = SpanContext(
        int(trace_id, _HEXADECIMAL),
        int(span_id, _HEXADECIMAL),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, _HEXADECIMAL)),
        trace_state=TraceState.from_header([state]) if state else None,
    )
    return trace.set_span_in_context(NonRecordingSpan(remote), Context())
