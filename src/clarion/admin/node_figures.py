"""Some figures of this node, out of its metrics."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

# A line whose labels have braces themselves, as routes do, is none of those that are shown.
_LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_THOUSAND = 1000


class Figures(NamedTuple):
    """Figures of a node: each is the current value, or the count since its start."""

    gateway_connections: int
    inbox_streams: int
    units: int
    waiting: int
    refused: int
    lag_ms: float
    queue_ages: dict[str, float]
    open_circuits: int
    devices_left_alone: int
    restarts: dict[str, int]


def read_figures(text: str) -> Figures:
    """Return the figures that a page shows; those that are not measured are zero."""
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for match in _LINE.finditer(text):
        found[match["name"]][_read_label(match["labels"] or "")].append(float(match["value"]))

    def total(name: str) -> int:
        return int(sum(map(sum, found[name].values())))

    lags = total("clarion_loop_lag_seconds_count")
    lag_s = sum(map(sum, found["clarion_loop_lag_seconds_sum"].values()))
    # All processes look at the same queue.
    ages = {lane: max(each) for lane, each in found["clarion_queue_oldest_seconds"].items()}
    restarts = {name: sum(each) for name, each in found["clarion_loop_restarts_total"].items()}
    return Figures(
        gateway_connections=total("clarion_gateway_connections"),
        inbox_streams=total("clarion_inbox_streams"),
        units=total("clarion_store_units_total"),
        waiting=total("clarion_store_waiting"),
        refused=total("clarion_store_refused_total"),
        lag_ms=lag_s / lags * _THOUSAND if lags else 0.0,
        queue_ages=ages,
        open_circuits=total("clarion_provider_circuits_open"),
        devices_left_alone=total("clarion_device_circuits_open"),
        restarts={name: int(count) for name, count in restarts.items() if count},
    )


def _read_label(labels: str) -> str:
    """Return the value of the first label that does not say which process was measured."""
    return next((value for name, value in _LABEL.findall(labels) if name != "process"), "")
