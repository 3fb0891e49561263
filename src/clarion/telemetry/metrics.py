"""The metrics of the server. Every label has a fixed set of values: no apps, users or devices."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sized
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class CacheCounts(Protocol):
    """A cache that counts its hits and misses."""

    hits: int
    misses: int


class Writer(Protocol):
    """The group-commit writer, with what it has done since it started."""

    units: int
    batches: int
    refused: int

    @property
    def waiting(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...


class ClosedConnections(Sized, Protocol):
    """The open connections, and how many were closed for which reason."""

    @property
    def closed(self) -> Mapping[Any, int]: ...


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


class BusCounts(Protocol):
    """What a bus has done since its start."""

    messages_sent: int
    messages_received: int
    frames_sent: int
    frames_received: int
    bytes_sent: int
    bytes_received: int
    rebuilds: int

    @property
    def dropped(self) -> Mapping[Any, int]: ...


class WatchedBus(Protocol):
    """A bus that counts what it does."""

    @property
    def counts(self) -> BusCounts: ...

    @property
    def is_hearing(self) -> bool: ...


class Metrics:
    """The metrics of the server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tally = _RequestTally()
        self.registry.register(self._tally)
        self.dependency_health = Gauge(
            "clarion_dependency_health",
            "1 if the dependency answered the last check, otherwise 0.",
            ("dependency",),
            registry=self.registry,
        )
        self.loop_lag = Histogram(
            "clarion_loop_lag_seconds",
            "How late the event loop runs its timers.",
            registry=self.registry,
            buckets=_BUCKETS_S,
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request, with the time it took."""
        self._tally.add(method, route, status, seconds)

    def watch_writer(self, writer: Writer) -> None:
        """Export the counts of the group-commit writer."""

        def read() -> Iterable[Metric]:
            for name, doc, count in (
                ("units", "Units committed by the writer.", writer.units),
                ("batches", "Batches committed by the writer.", writer.batches),
                ("refused", "Units refused because too many were waiting.", writer.refused),
            ):
                yield CounterMetricFamily(f"clarion_store_{name}", doc, count)

        self.registry.register(_Collector(read))
        self._watch("clarion_store_waiting", "Units waiting for a commit.", lambda: writer.waiting)
        doc = "Size of the units waiting for a commit, about."
        self._watch("clarion_store_waiting_bytes", doc, lambda: writer.waiting_bytes)

    def watch_clock(self, read_skew_ms: Callable[[], int]) -> None:
        """Export how far the clock of this machine is ahead of the time that nodes share."""
        doc = "How far the clock of this machine is ahead of the database's."
        self._watch("clarion_clock_skew_seconds", doc, lambda: read_skew_ms() / 1000)

    def watch_gateway(self, *, sockets: Sized, connections: Sized, registry: CacheCounts) -> None:
        """Export connections and cache counts of the gateway."""
        hits, misses = "Token look-ups answered from memory.", "Token look-ups read from the store."
        self._watch("clarion_gateway_connections", "Open WebSocket connections.", sockets.__len__)
        self._watch("apns_active_device_connections", "Connected devices.", connections.__len__)
        self._watch("apns_cache_hits", hits, lambda: registry.hits)
        self._watch("apns_cache_misses", misses, lambda: registry.misses)

    def watch_inbox(self, live: Sized) -> None:
        """Export the number of live clients."""
        doc = "Open live streams and sockets of users."
        self._watch("clarion_inbox_streams", doc, live.__len__)

    def watch_connections(self, connections: ClosedConnections) -> None:
        """Export the open connections to the HTTP listeners, and why others were closed."""

        def read() -> Iterable[Metric]:
            doc = "Connections that the server closed, by reason."
            counts = {(str(reason),): count for reason, count in connections.closed.items()}
            yield _counter("clarion_http_connections_closed", doc, ("reason",), counts)

        self.registry.register(_Collector(read))
        doc = "Open connections to the HTTP listeners."
        self._watch("clarion_http_connections", doc, connections.__len__)

    def watch_sandbox(self, sandbox: SandboxCounts) -> None:
        """Export what was run for the schemas and templates of apps."""

        def read() -> Iterable[Metric]:
            jobs = "Schemas and templates run in the sandbox, by kind and result."
            seconds = "Processor time of the sandbox, by kind of job."
            restarts = "Processes of the sandbox that ended during a job, by reason."
            yield _counter("clarion_sandbox_jobs", jobs, ("kind", "result"), sandbox.jobs)
            taken = {(kind,): count for kind, count in sandbox.cpu_s.items()}
            yield _counter("clarion_sandbox_cpu_seconds", seconds, ("kind",), taken)
            ended = {(reason,): count for reason, count in sandbox.restarts.items()}
            yield _counter("clarion_sandbox_restarts", restarts, ("reason",), ended)

        self.registry.register(_Collector(read))
        doc = "Schemas and templates that wait for the sandbox."
        self._watch("clarion_sandbox_waiting", doc, lambda: sandbox.waiting)

    def watch_bus(self, bus: WatchedBus) -> None:
        """Export what is said to other nodes, and whether they are heard."""

        def read() -> Iterable[Metric]:
            counts = bus.counts
            for name, what, sent, received in (
                ("messages", "Messages", counts.messages_sent, counts.messages_received),
                ("frames", "Frames of messages", counts.frames_sent, counts.frames_received),
                ("bytes", "Bytes of frames", counts.bytes_sent, counts.bytes_received),
            ):
                doc = f"{what} sent to other nodes, or received from them."
                by_direction = {("sent",): sent, ("received",): received}
                yield _counter(f"clarion_bus_{name}", doc, ("direction",), by_direction)
            doc = "Messages to or from other nodes that were dropped, by reason."
            dropped = {(str(reason),): count for reason, count in counts.dropped.items()}
            yield _counter("clarion_bus_dropped", doc, ("reason",), dropped)
            doc = "Times the node began to hear other nodes."
            yield CounterMetricFamily("clarion_bus_rebuilds", doc, counts.rebuilds)

        self.registry.register(_Collector(read))
        doc = "1 if the node hears all other nodes, otherwise 0."
        self._watch("clarion_bus_hearing", doc, lambda: int(bus.is_hearing))

    def watch_loops(self, count_restarts: Callable[[], Mapping[str, int]]) -> None:
        """Export how often each background loop was restarted."""

        def read() -> Iterable[Metric]:
            doc = "Restarts of background loops after a failure."
            counts = {(name,): count for name, count in count_restarts().items()}
            yield _counter("clarion_loop_restarts", doc, ("loop",), counts)

        self.registry.register(_Collector(read))

    def watch_stalls(self, read: Callable[[], int]) -> None:
        """Export how often the event loop was blocked."""
        doc = "Times the event loop was blocked for 50 ms or longer."
        collect = lambda: [CounterMetricFamily("clarion_loop_stalls", doc, read())]  # noqa: E731
        self.registry.register(_Collector(collect))

    def _watch(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Export a number that is read at each scrape."""
        Gauge(name, doc, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _RequestTally(Collector):
    """Counts and times of requests: plain numbers, because every request is counted."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = defaultdict(int)
        # By route: how many took no longer than each limit, and longer than the one before.
        self._times: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_BUCKETS_S) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        self._counts[method, route, status] += 1
        self._times[route][bisect_left(_BUCKETS_S, seconds)] += 1
        self._seconds[route] += seconds

    def collect(self) -> Iterable[Metric]:
        labels, doc = ("method", "route", "status"), "HTTP requests by method, route and status."
        yield _counter("clarion_http_requests", doc, labels, self._counts)
        doc = "Time from the request headers to the response."
        family = HistogramMetricFamily("clarion_http_request_seconds", doc, labels=("route",))
        for route, counts in self._times.items():
            limits = (*map(floatToGoString, _BUCKETS_S), "+Inf")
            buckets = list(zip(limits, accumulate(counts), strict=True))
            family.add_metric((route,), buckets, self._seconds[route])
        yield family


class GatewayMetrics:
    """Metrics of the push gateway, under the names that APNs dashboards use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Plain numbers, read at each scrape: the counters of the library take a lock for each
        # count, and every push counts twice.
        self._sent: dict[tuple[int, str], int] = defaultdict(int)
        registry.register(_Collector(self._read))
        self._delivery_seconds = Histogram(
            "apns_notification_delivery_seconds",
            "Time from acceptance to the device's acknowledgement.",
            ("priority",),
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self._histograms: dict[int, Histogram] = {}

    def count(self, priority: int, status: str) -> None:
        """Count a message that reached a status."""
        self._sent[priority, status] += 1

    def observe_delivery(self, priority: int, seconds: float) -> None:
        """Count a delivered message, with the time since it was accepted."""
        self.count(priority, "delivered")
        histogram = self._histograms.get(priority)
        if histogram is None:
            histogram = self._delivery_seconds.labels(int(priority))
            self._histograms[priority] = histogram
        histogram.observe(seconds)

    def _read(self) -> Iterable[Metric]:
        doc = "Messages to devices by priority and status."
        yield _counter("apns_notifications_sent", doc, ("priority", "status"), self._sent)


class PipelineMetrics(Collector):
    """Counts of events, deliveries and failed jobs: plain numbers, converted at each scrape."""

    def __init__(self) -> None:
        self.accepted = 0
        self.deliveries: dict[tuple[str, str, str], int] = defaultdict(int)
        self.failures: dict[tuple[str, bool], int] = defaultdict(int)
        self._ages: Callable[[], Mapping[str, float]] = dict

    def watch_ages(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Export the age of the oldest job of each lane, in seconds."""
        self._ages = read

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("clarion_events_accepted", "Events accepted.", self.accepted)
        yield _counter(
            "clarion_deliveries",
            "Deliveries that reached a status, by channel, status and reason.",
            ("channel", "status", "reason"),
            self.deliveries,
        )
        yield _counter(
            "clarion_jobs_failed",
            "Failed attempts by kind of job; is_dead if it was the last attempt.",
            ("kind", "is_dead"),
            {(kind, str(is_dead).lower()): n for (kind, is_dead), n in self.failures.items()},
        )
        doc = "Age of the oldest due job of a lane."
        ages = GaugeMetricFamily("clarion_queue_oldest_seconds", doc, labels=("lane",))
        for lane, seconds in self._ages().items():
            ages.add_metric((lane,), seconds)
        yield ages


class ChannelMetrics:
    """Attempts with the providers of channels, by kind: their names are chosen by apps."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts: dict[tuple[str, str, str], int] = defaultdict(int)
        self.disabled: dict[str, int] = defaultdict(int)
        self.count_open: Callable[[], Mapping[tuple[str, str], int]] = dict
        self._seconds = Histogram(
            "clarion_channel_attempt_seconds",
            "Time of an attempt, by channel and kind of provider.",
            ("channel", "kind"),
            registry=registry,
            buckets=_BUCKETS_S,
        )
        registry.register(_Collector(self._read))

    def observe(self, channel: str, kind: str, outcome: object, seconds: float) -> None:
        """Count an attempt by the class of its outcome."""
        self._attempts[channel, kind, type(outcome).__name__.lower()] += 1
        self._seconds.labels(channel, kind).observe(seconds)

    def _read(self) -> Iterable[Metric]:
        labels = ("channel", "kind")
        doc = "Attempts to deliver, by channel, kind of provider and outcome."
        yield _counter("clarion_channel_attempts", doc, (*labels, "outcome"), self._attempts)
        doc = "Providers that were disabled because their address is gone or never answered."
        counts = {(channel,): count for channel, count in self.disabled.items()}
        yield _counter("clarion_providers_disabled", doc, ("channel",), counts)
        doc = "Providers whose circuit breaker is open on this node."
        gauge = GaugeMetricFamily("clarion_provider_circuits_open", doc, labels=labels)
        for names, count in self.count_open().items():
            gauge.add_metric(names, count)
        yield gauge


class _Collector(Collector):
    """Metrics that a function reads at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


def _counter(
    name: str, doc: str, labels: tuple[str, ...], counts: Mapping[tuple[Any, ...], float]
) -> Metric:
    family = CounterMetricFamily(name, doc, labels=labels)
    for values, count in counts.items():
        family.add_metric(tuple(map(str, values)), count)
    return family
