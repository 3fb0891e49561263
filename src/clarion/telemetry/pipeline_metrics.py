"""The metrics of the pipeline: plain counters, converted for Prometheus on request."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.metrics_core import Metric


class PipelineMetrics(Collector):
    """Counts events, deliveries and failures. Every label has a fixed set of values."""

    def __init__(self) -> None:
        self.accepted = 0
        self.deliveries: Counter[tuple[str, str, str]] = Counter()
        self.failures: Counter[tuple[str, bool]] = Counter()
        self._ages: Callable[[], Mapping[str, float]] = dict

    def watch_ages(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Export how long the oldest job of each lane has waited, in seconds."""
        self._ages = read

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "clarion_events_accepted", "Events accepted.", value=self.accepted
        )
        yield self._deliveries()
        yield self._failures()
        ages = GaugeMetricFamily(
            "clarion_queue_oldest_seconds",
            "How long the oldest job of a lane has been due.",
            labels=("lane",),
        )
        for lane, seconds in self._ages().items():
            ages.add_metric((lane,), seconds)
        yield ages

    def _deliveries(self) -> Metric:
        family = CounterMetricFamily(
            "clarion_deliveries",
            "Deliveries, by channel, new status and reason.",
            labels=("channel", "status", "reason"),
        )
        for labels, count in self.deliveries.items():
            family.add_metric(labels, count)
        return family

    def _failures(self) -> Metric:
        family = CounterMetricFamily(
            "clarion_jobs_failed",
            "Failed tries, by kind of job and whether it was the last.",
            labels=("kind", "is_dead"),
        )
        for (kind, is_dead), count in self.failures.items():
            family.add_metric((kind, str(is_dead).lower()), count)
        return family
