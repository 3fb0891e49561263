"""The metrics of the server. Every label has a fixed set of values: no apps, users or devices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from clarion import __version__
from clarion.nodes.bus import BusCounts
from clarion.pacing import WorkSlices
from clarion.telemetry.tallies import BUCKETS_S, Scraped, Tally, counter, gauge

if TYPE_CHECKING:
    from clarion.http.connections import HttpConnections
    from clarion.http.plain.limits import OpenConnections

_REQUEST_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# The routes of the push gateway: pushes, broadcast channels, Web Push, devices.
_GATEWAY = ("/1/", "/3/", "/4/", "/push/", "/v1/devices", "/v1/feedback")


class Writer(Protocol):
    """The group-commit writer, with what it has done since it started."""

    units: int
    batches: int
    refused: int
    sizes: Tally
    times: Tally

    @property
    def waiting(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...


class SandboxCounts(Protocol):
    """The processes for schemas and templates, with what they have done since the start."""

    @property
    def jobs(self) -> Mapping[tuple[str, str], int]: ...

    @property
    def cpu_s(self) -> Mapping[str, float]: ...

    @property
    def restarts(self) -> Mapping[str, int]: ...

    @property
    def waiting(self) -> int: ...


class WatchedBus(Protocol):
    """A bus that counts its messages."""

    @property
    def counts(self) -> BusCounts: ...

    @property
    def is_connected(self) -> bool: ...


class Metrics:
    """The metrics of the server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rendering = asyncio.Lock()
        # The numbers of the text that was begun last, and of the one that was completed last.
        self._begun = self._completed = 0
        self._text = b""
        # By method, route and status.
        self._request_times = Tally()
        self.registry.register(Scraped(self._read_requests))
        ProcessCollector(registry=self.registry)
        doc = "The version of the server, as a label."
        build = Gauge("clarion_build_info", doc, ("version",), registry=self.registry)
        build.labels(__version__).set(1)
        self.dependency_health = Gauge(
            "apns_dependency_health",
            "1 if the dependency answered the last check, otherwise 0.",
            ("dependency",),
            registry=self.registry,
        )
        self.loop_lag = Histogram(
            "clarion_loop_lag_seconds",
            "How late the event loop runs its timers.",
            registry=self.registry,
            buckets=BUCKETS_S,
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request, with the time it took."""
        self._request_times.add(seconds, (method, route, status))

    def _read_requests(self) -> Iterable[Metric]:
        times = self._request_times
        labels, doc = ("method", "route", "status"), "HTTP requests by method, route and status."
        yield counter("clarion_http_requests", doc, labels, times.count())
        doc = "Time from the request headers to the response."
        by_route = times.group(lambda each: each[1:2])
        yield by_route.read("clarion_http_request_seconds", doc, ("route",))
        doc = "Time of a request to the push gateway: pushes, broadcast channels, devices."
        pushes = times.group(lambda each: each if each[1].startswith(_GATEWAY) else None)
        yield pushes.read("apns_http_request_duration_seconds", doc, labels, _REQUEST_BUCKETS_S)

    def watch_writer(self, writer: Writer) -> None:
        """Export the counts of the group-commit writer."""

        def read() -> Iterable[Metric]:
            for name, doc, count in (
                ("units", "Units committed by the writer.", writer.units),
                ("batches", "Batches committed by the writer.", writer.batches),
                ("refused", "Units refused because too many were waiting.", writer.refused),
            ):
                yield CounterMetricFamily(f"clarion_store_{name}", doc, count)
            yield writer.sizes.read("clarion_store_batch_units", "Units in one commit.")
            yield writer.times.read("clarion_store_commit_seconds", "Time of a commit.")

        self.registry.register(Scraped(read))
        self._watch("clarion_store_waiting", "Units waiting for a commit.", lambda: writer.waiting)
        doc = "Size of the units waiting for a commit, about."
        self._watch("clarion_store_waiting_bytes", doc, lambda: writer.waiting_bytes)

    def watch_clock(self, read_skew_ms: Callable[[], int]) -> None:
        """Export how far the clock of this machine is ahead of the time that nodes share."""
        doc = "How far the clock of this machine is ahead of the database's."
        self._watch("clarion_clock_skew_seconds", doc, lambda: read_skew_ms() / 1000)

    def watch_sockets(self, sockets: Sized) -> None:
        """Export the number of WebSocket connections of devices."""
        doc = "Open WebSocket connections."
        self._watch("clarion_gateway_connections", doc, sockets.__len__)

    def watch_rendering(self, times: Tally) -> None:
        """Export how long texts take to render."""
        doc = "Time to render the text of a notification for a channel."
        self.registry.register(Scraped(lambda: [times.read("clarion_render_seconds", doc)]))

    def watch_certificate(self, ends_at: float) -> None:
        """Export when the certificate of the listeners ends, in seconds since 1970."""
        doc = "When the TLS certificate expires, as a Unix time."
        self._watch("clarion_certificate_expiry_timestamp_seconds", doc, lambda: ends_at)

    def watch_disk(self, read: Callable[[], tuple[int, int]]) -> None:
        """Export the free space and the size of the file system with the data."""
        doc = "Free space of the file system with the data directory."
        self._watch("clarion_data_free_bytes", doc, lambda: read()[0])
        doc = "Size of the file system with the data directory."
        self._watch("clarion_data_size_bytes", doc, lambda: read()[1])

    def watch_inbox(self, live: Sized) -> None:
        """Export the number of live clients."""
        doc = "Open live streams and sockets of users."
        self._watch("clarion_inbox_streams", doc, live.__len__)

    def watch_connections(self, *listeners: OpenConnections | HttpConnections) -> None:
        """Export the open connections to the HTTP listeners, and why others were closed."""

        def read() -> Iterable[Metric]:
            doc = "Connections that the server closed, by reason."
            closed = sum((each.closed for each in listeners), Counter[str]())
            counts = {(str(reason),): count for reason, count in closed.items()}
            yield counter("clarion_http_connections_closed", doc, ("reason",), counts)

        self.registry.register(Scraped(read))
        doc = "Open connections to the HTTP listeners."
        self._watch("clarion_http_connections", doc, lambda: sum(map(len, listeners)))

    def watch_sandbox(self, sandbox: SandboxCounts) -> None:
        """Export the counts of sandbox jobs for the schemas and templates of apps."""

        def read() -> Iterable[Metric]:
            jobs = "Schemas and templates run in the sandbox, by kind and result."
            seconds = "Processor time of the sandbox, by kind of job."
            restarts = "Processes of the sandbox that ended during a job, by reason."
            yield counter("clarion_sandbox_jobs", jobs, ("kind", "result"), sandbox.jobs)
            taken = {(kind,): count for kind, count in sandbox.cpu_s.items()}
            yield counter("clarion_sandbox_cpu_seconds", seconds, ("kind",), taken)
            ended = {(reason,): count for reason, count in sandbox.restarts.items()}
            yield counter("clarion_sandbox_restarts", restarts, ("reason",), ended)

        self.registry.register(Scraped(read))
        doc = "Schemas and templates that wait for the sandbox."
        self._watch("clarion_sandbox_waiting", doc, lambda: sandbox.waiting)

    def watch_bus(self, bus: WatchedBus) -> None:
        """Export the counts of messages to other nodes, and whether the bus is connected."""

        def read() -> Iterable[Metric]:
            counts = bus.counts
            for name, what, sent, received in (
                ("messages", "Messages", counts.messages_sent, counts.messages_received),
                ("frames", "Frames of messages", counts.frames_sent, counts.frames_received),
                ("bytes", "Bytes of frames", counts.bytes_sent, counts.bytes_received),
            ):
                doc = f"{what} sent to other nodes, or received from them."
                by_direction = {("sent",): sent, ("received",): received}
                yield counter(f"clarion_bus_{name}", doc, ("direction",), by_direction)
            doc = "Messages to or from other nodes that were dropped, by reason."
            dropped = {(str(reason),): count for reason, count in counts.dropped.items()}
            yield counter("clarion_bus_dropped", doc, ("reason",), dropped)
            doc = "Times the node subscribed to other nodes."
            yield CounterMetricFamily("clarion_bus_rebuilds", doc, counts.rebuilds)

        self.registry.register(Scraped(read))
        doc = "1 if the node receives from all other nodes, otherwise 0."
        self._watch("clarion_bus_hearing", doc, lambda: int(bus.is_connected))

    def watch_loops(self, count_restarts: Callable[[], Mapping[str, int]]) -> None:
        """Export how often each background loop was restarted."""

        def read() -> Iterable[Metric]:
            doc = "Restarts of background loops after a failure."
            counts = {(name,): count for name, count in count_restarts().items()}
            yield counter("clarion_loop_restarts", doc, ("loop",), counts)

        self.registry.register(Scraped(read))

    def watch_stalls(self, read: Callable[[], int]) -> None:
        """Export how often the event loop was blocked."""
        doc = "Times the event loop was blocked for 50 ms or longer."
        collect = lambda: [CounterMetricFamily("clarion_loop_stalls", doc, read())]  # noqa: E731
        self.registry.register(Scraped(collect))

    def _watch(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Export a number that is read at each scrape."""
        Gauge(name, doc, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    async def render_in_turns(self) -> bytes:
        """Return the same, and let others have the event loop between two metrics.

        With all routes in use it takes 20 ms, most of them for the times of requests. Callers that
        wait share the next text: a thousand at a time held 60 MiB of unfinished ones.
        """
        begun = self._begun
        async with self._rendering:
            if self._completed <= begun:
                self._begun += 1
                self._text = await self._render_in_turns()
                self._completed = self._begun
            return self._text

    async def _render_in_turns(self) -> bytes:
        slices, parts = WorkSlices(), []
        for metric in self.registry.collect():
            parts.append(generate_latest(Scraped(partial(iter, [metric]))))
            await slices.pause()
        return b"".join(parts)


class CircuitMetrics:
    """The state of every circuit breaker of this node; of several of a kind, the worst."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._readers: list[Callable[[], Mapping[str, str]]] = []
        registry.register(Scraped(self._read))

    def watch(self, read: Callable[[], Mapping[str, str]]) -> None:
        """Export circuits, given by their names: `closed`, `open` or `half_open`."""
        self._readers.append(read)

    def _read(self) -> Iterable[Metric]:
        states = {
            (name,): _STATES[state] for read in self._readers for name, state in read().items()
        }
        doc = "State of a circuit breaker: 0 closed, 1 open, 2 half open."
        yield gauge("apns_circuit_breaker_state", doc, ("circuit",), states)


_STATES = {"closed": 0, "open": 1, "half_open": 2}
