"""Metrics of events on their way: intake, queue, decisions, deliveries, the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from clarion.telemetry.tallies import Scraped, Tally, counter, gauge

if TYPE_CHECKING:
    from clarion.events.backlog import Backlog
    from clarion.events.ledger import LedgerCheck

_DELIVERY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)


class PipelineMetrics(Collector):
    """Counts and times of events, deliveries and failed jobs."""

    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self.accepted = 0
        # Recipients for whom an event was decided, by the status that the event takes by it.
        self.decided: dict[str, int] = defaultdict(int)
        self.deliveries: dict[tuple[str, str, str], int] = defaultdict(int)
        self.failures: dict[tuple[str, bool], int] = defaultdict(int)
        # From the start: of a counter that appears with a 1, Prometheus sees no increase.
        self.failures |= {(kind, is_dead): 0 for kind in kinds for is_dead in (False, True)}
        self.decide_times = Tally()
        self.delivery_times = Tally(_DELIVERY_BUCKETS_S)
        self._queue: Backlog | None = None

    def watch_queue(self, queue: Backlog) -> None:
        """Export the lengths and ages of the queue, and the events refused because of them."""
        self._queue = queue

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("clarion_events_accepted", "Events accepted.", self.accepted)
        yield counter(
            "clarion_events",
            "Events by status and reason; those that are decided, once for each recipient.",
            ("status", "reason"),
            self._count_events(),
        )
        yield counter(
            "clarion_deliveries",
            "Deliveries that reached a status, by channel, status and reason.",
            ("channel", "status", "reason"),
            self.deliveries,
        )
        yield counter(
            "clarion_jobs_failed",
            "Failed attempts by kind of job; is_dead if it was the last attempt.",
            ("kind", "is_dead"),
            {(kind, str(is_dead).lower()): n for (kind, is_dead), n in self.failures.items()},
        )
        doc = "Time to decide an event for a recipient, with the text of the inbox."
        yield self.decide_times.read("clarion_decide_seconds", doc)
        doc = "Time from the decision to send until the channel has sent or delivered it."
        yield self.delivery_times.read("clarion_delivery_seconds", doc, ("channel",))
        yield from self._read_queue()

    def _count_events(self) -> dict[tuple[str, str], int]:
        counts = {("accepted", ""): self.accepted}
        counts |= {(status, ""): count for status, count in self.decided.items()}
        refused = self._queue.refused if self._queue else {}
        counts |= {("refused", reason): count for reason, count in refused.items()}
        dead = {kind: count for (kind, is_dead), count in self.failures.items() if is_dead}
        return counts | {("failed", kind): count for kind, count in dead.items()}

    def _read_queue(self) -> Iterable[Metric]:
        if self._queue is None:
            return
        for name, doc, values in (
            ("oldest_seconds", "Age of the oldest due job of a lane.", self._queue.ages_s()),
            ("jobs", "Jobs of a lane, due or not, without dead letters.", self._queue.lengths()),
        ):
            by_lane = {(lane,): value for lane, value in values.items()}
            yield gauge(f"clarion_queue_{name}", doc, ("lane",), by_lane)
        doc = "Jobs that failed at every attempt and are kept to be replayed."
        yield gauge("clarion_dead_letters", doc, (), {(): self._queue.dead_letters})
        doc = (
            "Deliveries that are held or collected, and are sent only if a dead letter is replayed."
        )
        yield gauge("clarion_deliveries_stuck", doc, (), {(): self._queue.stuck})


def watch_ledger(registry: CollectorRegistry, ledger: LedgerCheck) -> None:
    """Export the number of accepted items that are neither finished, waiting nor in progress."""

    def read() -> Iterable[Metric]:
        doc = "Events and deliveries that are neither finished nor waiting nor in progress."
        yield gauge("clarion_ledger_difference", doc, (), {(): ledger.difference})
        doc = "Times the ledger was checked."
        yield CounterMetricFamily("clarion_ledger_checks", doc, ledger.checked)

    registry.register(Scraped(read))
