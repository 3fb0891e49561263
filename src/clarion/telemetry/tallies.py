"""Counts and times as plain numbers, converted at each scrape.

The metrics of the library take a lock for each count, which is too slow for events that happen
thousands of times a second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Label values, in the order of their names. They come from a fixed set.
Labels = tuple[Any, ...]


class Tally:
    """Values by label, counted in buckets: how many are not above each limit, and their sum."""

    def __init__(self, limits: Sequence[float] = BUCKETS_S) -> None:
        self._limits = limits
        # A cell for each limit: the values above the limit before and not above this one. Then one
        # for those above all limits, and one for the sum.
        self._cells: dict[Labels, list[float]] = {}

    def add(self, value: float, labels: Labels = ()) -> None:
        """Count a value."""
        cells = self._cells.get(labels)
        if cells is None:
            cells = self._cells[labels] = self._make_cells()
        cells[bisect_left(self._limits, value)] += 1
        cells[-1] += value

    def count(self) -> dict[Labels, float]:
        """Return the number of values, by label."""
        return {labels: sum(cells[:-1]) for labels, cells in self._cells.items()}

    def group(self, label_of: Callable[[Labels], Labels | None]) -> Tally:
        """Return the sums by other labels; labels mapped to None are left out."""
        grouped = Tally(self._limits)
        for labels, cells in self._cells.items():
            if (label := label_of(labels)) is None:
                continue
            others = grouped._cells.get(label, self._make_cells())
            grouped._cells[label] = [a + b for a, b in zip(cells, others, strict=True)]
        return grouped

    def _make_cells(self) -> list[float]:
        return [0] * (len(self._limits) + 2)

    def read(
        self, name: str, doc: str, names: Sequence[str] = (), shown: Sequence[float] = ()
    ) -> Metric:
        """Return the histogram; `shown` are the limits to show, of all there are."""
        family = HistogramMetricFamily(name, doc, labels=names)
        # Without labels there is one series, from the start.
        series = self._cells if names else {(): self._make_cells(), **self._cells}
        for labels, cells in series.items():
            below = dict(zip(self._limits, accumulate(cells), strict=False))
            buckets = [(str(float(each)), below[each]) for each in shown or self._limits]
            buckets.append(("+Inf", sum(cells[:-1])))
            family.add_metric(tuple(map(str, labels)), buckets, cells[-1])
        return family


class Scraped(Collector):
    """Metrics that a function reads at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


def counter(name: str, doc: str, names: Sequence[str], counts: Mapping[Labels, float]) -> Metric:
    """Return a counter, with its values by label."""
    family = CounterMetricFamily(name, doc, labels=names)
    for labels, count in counts.items():
        family.add_metric(tuple(map(str, labels)), count)
    return family


def gauge(name: str, doc: str, names: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    """Return a gauge, with its values by label."""
    family = GaugeMetricFamily(name, doc, labels=names)
    for labels, value in values.items():
        family.add_metric(tuple(map(str, labels)), value)
    return family
