"""A collector of traces: takes what OpenTelemetry exports over HTTP, and keeps it."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.e2e.sending import wait_until


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A span, and what exported it."""

    trace_id: str
    id: str
    parent_id: str
    name: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    start_ns: int
    end_ns: int


@dataclass
class Collector:
    """What was exported so far. One that hangs takes requests and never answers."""

    port: int
    is_released: threading.Event
    spans: list[Recorded] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a server needs to export at once."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for several in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {each.key: read(each.value) for each in several.resource.attributes}
            for scope in several.scope_spans:
                self.spans += [_record(span, resource) for span in scope.spans]

    def find(self, trace_id: str) -> list[Recorded]:
        """Return the spans of a trace that are there by now."""
        return [each for each in list(self.spans) if each.trace_id == trace_id]

    def wait(self, trace_id: str, *names: str) -> dict[str, Recorded]:
        """Wait until a trace has spans with these names, and return all of it by name."""

        def look() -> dict[str, Recorded] | None:
            found = {each.name: each for each in self.find(trace_id)}
            return found if set(names) <= set(found) else None

        return wait_until(look)


def _record(span: Any, resource: dict[str, Any]) -> Recorded:
    return Recorded(
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        attributes={each.key: read(each.value) for each in span.attributes},
        resource=resource,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
    )


def read(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [read(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@contextmanager
def open_collector(*, hangs: bool = False) -> Iterator[Collector]:
    """Listen on a free port until the block ends."""
    released = threading.Event()
    if not hangs:
        released.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.paths.append(self.path)
            collector.headers.append({key.lower(): each for key, each in self.headers.items()})
            collector.take(body)
            released.wait()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_given: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector = Collector(server.server_address[1], released)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            released.set()
            server.shutdown()
            thread.join()
