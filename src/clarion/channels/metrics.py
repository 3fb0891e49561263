"""Metrics of the providers of channels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from clarion.telemetry.tallies import Scraped, Tally, counter, gauge


class ChannelMetrics:
    """Attempts with the providers of channels, by kind: their names are chosen by apps."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts: dict[tuple[str, str, str], int] = defaultdict(int)
        self._times = Tally()
        self.disabled: dict[str, int] = defaultdict(int)
        self.count_open: Callable[[], Mapping[tuple[str, str], int]] = dict
        registry.register(Scraped(self._read))

    def observe(self, channel: str, kind: str, outcome: object, seconds: float) -> None:
        """Count an attempt by the class of its outcome."""
        self._attempts[channel, kind, type(outcome).__name__.lower()] += 1
        self._times.add(seconds, (channel, kind))

    def _read(self) -> Iterable[Metric]:
        labels = ("channel", "kind")
        doc = "Attempts to deliver, by channel, kind of provider and outcome."
        yield counter("clarion_channel_attempts", doc, (*labels, "outcome"), self._attempts)
        doc = "Time of an attempt, by channel and kind of provider."
        yield self._times.read("clarion_channel_attempt_seconds", doc, labels)
        doc = "Providers that were disabled because their address is gone or never answered."
        counts = {(channel,): count for channel, count in self.disabled.items()}
        yield counter("clarion_providers_disabled", doc, ("channel",), counts)
        doc = "Providers whose circuit breaker is open on this node."
        yield gauge("clarion_provider_circuits_open", doc, labels, self.count_open())
