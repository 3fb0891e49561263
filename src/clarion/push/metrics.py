"""Metrics of the push gateway, under the names that dashboards for APNs gateways use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from clarion.telemetry.tallies import Scraped, Tally, counter, gauge

if TYPE_CHECKING:
    from clarion.push.connections import Connections
    from clarion.push.registry import Registry

_PRIORITIES = (10, 5, 1)
_DELIVERY_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class GatewayMetrics:
    """Counts of messages to devices, and the time until they are acknowledged."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent: dict[tuple[int | str, str], int] = defaultdict(int)
        # From the start: of a counter that appears with a 1, Prometheus sees no increase.
        self._sent |= {(priority, "delivered"): 0 for priority in _PRIORITIES}
        self._sent |= {("any", status): 0 for status in ("expired", "failed")}
        self._times = Tally()
        # How many wait, as of the last count.
        self.pending = 0
        registry.register(Scraped(self._read))

    def count(self, priority: int, status: str) -> None:
        """Count a message that reached a status."""
        self._sent[priority, status] += 1

    def count_ended(self, status: str, count: int = 1) -> None:
        """Count messages of any priority that ended without being delivered."""
        self._sent["any", status] += count

    def observe_delivery(self, priority: int, seconds: float | None) -> None:
        """Count a delivered message, with the time since it was accepted.

        None if it waited for its device to connect: that time says nothing about the gateway.
        """
        self._sent[priority, "delivered"] += 1
        if seconds is not None:
            self._times.add(seconds, (int(priority),))

    def _read(self) -> Iterable[Metric]:
        doc = "Messages to devices by priority and status."
        yield counter("apns_notifications_sent", doc, ("priority", "status"), self._sent)
        doc = "Time from acceptance to acknowledgement, of messages to connected devices."
        yield self._times.read(
            "apns_notification_delivery_seconds", doc, ("priority",), _DELIVERY_BUCKETS_S
        )
        doc = "Messages that wait for their devices, of all nodes; counted up to 100,000."
        yield gauge("apns_pending_notifications", doc, (), {(): self.pending})


def watch_devices(
    registry: CollectorRegistry,
    devices: Registry,
    connections: Connections,
    count_open_circuits: Callable[[], int],
) -> None:
    """Export the counts of the registry of devices and the table of connections."""

    def read() -> Iterable[Metric]:
        hits = {("token",): devices.hits, ("connection",): connections.hits}
        misses = {("token",): devices.misses, ("connection",): connections.misses}
        yield counter("apns_cache_hits", "Look-ups answered from memory.", ("cache",), hits)
        doc = "Look-ups that memory could not answer."
        yield counter("apns_cache_misses", doc, ("cache",), misses)
        both = {(cache, "hit"): count for (cache,), count in hits.items()}
        both |= {(cache, "miss"): count for (cache,), count in misses.items()}
        doc = "Look-ups by cache and result."
        yield counter("apns_cache_operations", doc, ("cache", "operation"), both)
        operations = {
            ("register",): devices.registered,
            ("invalidate",): devices.invalidated,
            ("lookup_hit",): devices.hits,
            ("lookup_miss",): devices.misses,
        }
        doc = "Operations on the tokens of devices."
        yield counter("apns_token_operations", doc, ("operation",), operations)
        doc = "Devices connected to this node."
        yield gauge("apns_active_device_connections", doc, (), {(): len(connections)})
        doc = "Devices whose circuit breaker is open on this node."
        yield gauge("clarion_device_circuits_open", doc, (), {(): count_open_circuits()})

    registry.register(Scraped(read))
