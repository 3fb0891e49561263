"""The live overview of an app: figures and plots that update themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from clarion.access.model import Scope
from clarion.admin.figures import (
    RANGES,
    Range,
    count_reasons,
    list_times,
    make_column,
    make_latencies,
    make_rates,
    of_outcome,
    sum_all,
    sum_channels,
)
from clarion.admin.page import app_page
from clarion.admin.visit import Visit
from clarion.http.asgi import Response, respond_json

_DEFAULT = "1h"


async def show_overview(visit: Visit) -> Response:
    name, chosen = _find_range(visit)
    return await visit.render(
        "overview.html",
        figures=await _read_figures(visit, chosen),
        live=await visit.get("live"),
        stats=await visit.get("stats"),
        range=name,
        ranges=RANGES,
    )


async def answer_figures(visit: Visit) -> Response:
    """Return the data of the plots and the current figures; the page asks every few seconds."""
    _, chosen = _find_range(visit)
    figures = await _read_figures(visit, chosen)
    shown = figures["plots"] | {"live": await visit.get("live")}
    return respond_json(200, msgspec.json.encode(shown))


def _find_range(visit: Visit) -> tuple[str, Range]:
    name = visit.query.get("range", _DEFAULT)
    name = name if name in RANGES else _DEFAULT
    return name, RANGES[name]


async def _read_figures(visit: Visit, chosen: Range) -> dict[str, Any]:
    events = await _count(visit, chosen, "events")
    deliveries = await _count(visit, chosen, "deliveries", "channel,outcome")
    latencies = await _count(visit, chosen, "delivery_latency", "bucket")
    decisions = await _count(visit, chosen, "decisions", "reason")
    messages = await _count(visit, chosen, "messages", "outcome")
    times = list_times(events)
    channels, rates = make_rates(deliveries)
    seconds = chosen.interval.length_ms // 1000
    return {
        "events": sum(each["total"] for each in events["series"]),
        "all": sum_all(deliveries),
        "channels": sum_channels(deliveries),
        "reasons": count_reasons(decisions),
        "complete_until": events["complete_until"],
        "plots": {
            "step_s": seconds,
            "throughput": [
                times,
                make_column(times, *events["series"]),
                make_column(times, *of_outcome(deliveries, "sent")),
                make_column(times, *of_outcome(messages, "accepted")),
            ],
            "channels": channels,
            "rates": rates,
            "latency": make_latencies(latencies),
        },
    }


async def _count(visit: Visit, chosen: Range, metric: str, group_by: str = "") -> dict[str, Any]:
    interval = chosen.interval.value
    return await visit.get("analytics", metric=metric, interval=interval, group_by=group_by)


PAGES = (
    app_page("GET", "/overview", show_overview, Scope.STATS_READ),
    app_page("GET", "/overview/figures", answer_figures, Scope.STATS_READ),
)
