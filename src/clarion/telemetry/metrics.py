"""Metrics of HTTP, the store and the gateway. No label depends on apps, users or devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sized

    from prometheus_client.metrics_core import Metric

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class CacheCounts(Protocol):
    """A cache that counts its hits and misses."""

    hits: int
    misses: int


class WriterCounts(Protocol):
    """What a writer has done since it started."""

    units: int
    batches: int
    refused: int


class Writer(Protocol):
    """The group-commit writer."""

    @property
    def counts(self) -> WriterCounts: ...

    @property
    def waiting(self) -> int: ...


class Metrics:
    """The metrics of the server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "clarion_http_requests",
            "HTTP requests by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "clarion_http_request_seconds",
            "Time from the request headers to the response.",
            ("route",),
            registry=self.registry,
            buckets=_BUCKETS_S,
        )
        self.dependency_health = Gauge(
            "clarion_dependency_health",
            "1 if the dependency answered the last check, otherwise 0.",
            ("dependency",),
            registry=self.registry,
        )

        self._observers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. Metrics are cached: a look-up by labels costs more than counting."""
        key = (method, route, status)
        observer = self._observers.get(key)
        if observer is None:
            observer = (
                self.requests.labels(method, route, status),
                self.request_seconds.labels(route),
            )
            self._observers[key] = observer
        observer[0].inc()
        observer[1].observe(seconds)

    def watch_writer(self, commit: Writer) -> None:
        """Export the counts of the group-commit writer."""
        self.registry.register(_WriterCollector(commit))

    def watch_gateway(self, *, sockets: Sized, connections: Sized, registry: CacheCounts) -> None:
        """Export connections and cache counts of the gateway."""
        self._watch("clarion_gateway_connections", "Open WebSocket connections.", sockets.__len__)
        self._watch("apns_active_device_connections", "Connected devices.", connections.__len__)
        self._watch(
            "apns_cache_hits", "Token look-ups answered from memory.", lambda: registry.hits
        )
        self._watch(
            "apns_cache_misses", "Token look-ups answered from the store.", lambda: registry.misses
        )

    def watch_inbox(self, live: Sized) -> None:
        """Export the number of live clients."""
        self._watch(
            "clarion_inbox_streams", "Open live streams and sockets of users.", live.__len__
        )

    def watch_loops(self, count_restarts: Callable[[], Mapping[str, int]]) -> None:
        """Export how often each background loop was restarted."""
        self.registry.register(_LoopCollector(count_restarts))

    def _watch(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Export a number that is read at each scrape."""
        Gauge(name, doc, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class GatewayMetrics:
    """Metrics of the push gateway, under the names that APNs dashboards use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Plain numbers, read at each scrape: the counters of the library take a lock for each
        # count, and every push counts twice.
        self._sent: dict[tuple[int, str], int] = {}
        registry.register(_SentCollector(self._sent))
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
        key = (priority, status)
        self._sent[key] = self._sent.get(key, 0) + 1

    def observe_delivery(self, priority: int, seconds: float) -> None:
        """Count a delivered message, with the time since it was accepted."""
        self.count(priority, "delivered")
        histogram = self._histograms.get(priority)
        if histogram is None:
            histogram = self._delivery_seconds.labels(int(priority))
            self._histograms[priority] = histogram
        histogram.observe(seconds)


class _SentCollector(Collector):
    def __init__(self, sent: dict[tuple[int, str], int]) -> None:
        self._sent = sent

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "apns_notifications_sent",
            "Messages to devices by priority and status.",
            labels=("priority", "status"),
        )
        for (priority, status), count in self._sent.items():
            family.add_metric((str(int(priority)), status), count)
        yield family


class _WriterCollector(Collector):
    def __init__(self, commit: Writer) -> None:
        self._commit = commit

    def collect(self) -> Iterable[Metric]:
        counts, waiting = self._commit.counts, self._commit.waiting
        for name, doc, count in (
            ("units", "Units committed by the writer.", counts.units),
            ("batches", "Batches committed by the writer.", counts.batches),
            ("refused", "Units refused because too many were waiting.", counts.refused),
        ):
            yield CounterMetricFamily(f"clarion_store_{name}", doc, count)
        yield GaugeMetricFamily("clarion_store_waiting", "Units waiting for a commit.", waiting)


class _LoopCollector(Collector):
    def __init__(self, count_restarts: Callable[[], Mapping[str, int]]) -> None:
        self._count_restarts = count_restarts

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "clarion_loop_restarts",
            "Restarts of background loops after a failure.",
            labels=("loop",),
        )
        for name, count in self._count_restarts().items():
            family.add_metric((name,), count)
        yield family
