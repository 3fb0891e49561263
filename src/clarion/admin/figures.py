"""The figures of the overview: counts of the API as columns that a plot draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clarion.admin.reasons import explain_reason
from clarion.analytics.model import Interval, find_bucket_bound

_FAILED = frozenset({"failed", "expired"})
# Reasons of decisions by which something is sent are no reasons why it was not.
_SENT = frozenset({"allowed", "mandatory"})
_REASONS_SHOWN = 8
Columns = list[list[float | None]]


@dataclass(frozen=True, slots=True)
class Range:
    """A time that can be chosen: its words, the interval of its points, and how many it has."""

    words: str
    interval: Interval
    points: int


RANGES = {
    "1h": Range("Last hour", Interval.MINUTE, 60),
    "24h": Range("Last day", Interval.HOUR, 24),
    "30d": Range("Last 30 days", Interval.DAY, 30),
}


def list_times(report: Mapping[str, Any]) -> list[int]:
    """Return the beginning of each minute, hour or day of a report, in seconds.

    The newest one is not over, but its count is part of every sum: of a new app it is all there is.
    """
    interval_s = Interval(report["interval"]).length_ms // 1000
    return list(range(_to_seconds(report["from"]), _to_seconds(report["to"]), interval_s))


def make_column(times: list[int], *series: Mapping[str, Any]) -> list[float | None]:
    """Return the counts of some series at these times, zero where there is none."""
    counts = dict.fromkeys(times, 0)
    for each in series:
        for point in each["points"]:
            at = _to_seconds(point["at"])
            if at in counts:
                counts[at] += point["value"]
    return [float(each) for each in counts.values()]


def make_rates(report: Mapping[str, Any]) -> tuple[list[str], Columns]:
    """Return channels, and for each the share of its deliveries that arrived, in percent."""
    times = list_times(report)
    channels = sorted({each["group"]["channel"] for each in report["series"]})
    columns: Columns = [[float(each) for each in times]]
    for channel in channels:
        own = [each for each in report["series"] if each["group"]["channel"] == channel]
        done = make_column(times, *(each for each in own if _outcome(each) == "delivered"))
        lost = make_column(times, *(each for each in own if _outcome(each) in _FAILED))
        columns.append([_rate(good, bad) for good, bad in zip(done, lost, strict=True)])
    return channels, columns


def make_latencies(report: Mapping[str, Any]) -> Columns:
    """Return the times, and for each the bounds p50 and p95 of the deliveries, in ms."""
    times = list_times(report)
    buckets = {each["group"]["bucket"]: make_column(times, each) for each in report["series"]}
    columns: Columns = [[float(each) for each in times]]
    for share in (0.5, 0.95):
        columns.append([_find_bound(buckets, place, share) for place in range(len(times))])
    return columns


def count_reasons(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return why something was not sent at once, the most frequent reason first."""
    counts: dict[str, int] = {}
    for each in report["series"]:
        reason = each["group"]["reason"]
        if reason not in _SENT:
            counts[reason] = counts.get(reason, 0) + each["total"]
    most = sorted(counts.items(), key=lambda each: -each[1])[:_REASONS_SHOWN]
    largest = most[0][1] if most else 1
    return [
        {"reason": reason, "words": explain_reason(reason), "count": count, "part": count / largest}
        for reason, count in most
    ]


def sum_channels(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what became of the deliveries of each channel."""
    channels = sorted({each["group"]["channel"] for each in report["series"]})
    return [
        _sum_one([each for each in report["series"] if each["group"]["channel"] == channel])
        | {"channel": channel}
        for channel in channels
    ]


def sum_all(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what became of the deliveries of all channels."""
    return _sum_one(report["series"])


def of_outcome(report: Mapping[str, Any], outcome: str) -> list[Any]:
    """Return the series with an outcome."""
    return [each for each in report["series"] if _outcome(each) == outcome]


def _sum_one(series: Iterable[Any]) -> dict[str, Any]:
    """Return the counts: each sent delivery is delivered, failed, or still open."""
    counts = {"sent": 0, "delivered": 0, "failed": 0}
    for each in series:
        name = "failed" if _outcome(each) in _FAILED else _outcome(each)
        counts[name] = counts.get(name, 0) + each["total"]
    answered = counts["delivered"] + counts["failed"]
    return counts | {
        "answered": answered,
        # Never negative: what was sent before this time may have been answered in it.
        "open": max(counts["sent"] - answered, 0),
        "rate": counts["delivered"] / answered if answered else None,
    }


def _outcome(series: Mapping[str, Any]) -> str:
    outcome: str = series["group"]["outcome"]
    return outcome


def _rate(good: float | None, bad: float | None) -> float | None:
    total = (good or 0) + (bad or 0)
    return round((good or 0) * 100 / total, 1) if total else None


def _find_bound(
    buckets: Mapping[str, list[float | None]], place: int, share: float
) -> float | None:
    counts = {bucket: int(column[place] or 0) for bucket, column in buckets.items()}
    bound = find_bucket_bound(counts, share)
    return None if bound is None else float(bound)


def _to_seconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp())
