"""Analytics over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import Parameter, QueryParameter

from clarion.access.model import Scope
from clarion.analytics.model import (
    DIMENSIONS,
    LABELS,
    AnalyticsQuery,
    Count,
    Dimension,
    Interval,
    Metric,
    find_bucket_bound,
)
from clarion.analytics.sql.aggregates import Analytics
from clarion.catalog.model import Channel
from clarion.clock import Clock, to_rfc3339
from clarion.errors import FieldFault, InvalidFields
from clarion.http.bodies import collect
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import check_choice, read_moment, to_wire
from clarion.http.views import Timestamp
from clarion.push.model import Platform

POINTS = 2_000
COUNTS = 10_000
# How many minutes, hours or days are returned if the request does not say from when.
_DEFAULT_POINTS = {Interval.MINUTE: 60, Interval.HOUR: 24, Interval.DAY: 30}
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

MetricName = Annotated[
    str, Parameter(description="What is counted.", schema_extra={"enum": list(Metric)})
]
IntervalName = Annotated[
    str, Parameter(description="How long each point is.", schema_extra={"enum": list(Interval)})
]
_TIME = {"format": "date-time"}
From = Annotated[
    str | None,
    QueryParameter(name="from", description="The first time (RFC 3339).", schema_extra=_TIME),
]
To = Annotated[
    str | None,
    QueryParameter(
        name="to", description="The end (RFC 3339); now by default.", schema_extra=_TIME
    ),
]
_DIMENSION = f"({'|'.join(Dimension)})"
_LIST_OF_DIMENSIONS = f"{_DIMENSION}(,{_DIMENSION})*"
GroupBy = Annotated[
    str,
    Parameter(
        description="By what the counts are divided, with commas: "
        f"{', '.join(Dimension)}, as far as the metric has them.",
        schema_extra={"pattern": f"^({_LIST_OF_DIMENSIONS})?$"},
    ),
]
OfType = Annotated[str, QueryParameter(name="type", description="Only of this notification type.")]
OfChannel = Annotated[
    str, Parameter(description="Only of this channel.", schema_extra={"enum": ["", *Channel]})
]
OfPlatform = Annotated[
    str, Parameter(description="Only of this platform.", schema_extra={"enum": ["", *Platform]})
]


class Point(msgspec.Struct):
    """The count of one minute, hour or day, which begins at this time."""

    at: Timestamp
    """When the minute, hour or day begins."""
    value: int
    """How often it happened."""


class Series(msgspec.Struct, kw_only=True):
    """Counts in the order of time. Intervals without a count are left out.

    `group` has the values of the fields in `group_by`. For latencies, `percentiles` has p50, p95
    and p99 in milliseconds, rounded up to the bound of a bucket, or null if above an hour.
    """

    group: dict[str, str]
    """The values of the fields in `group_by`; empty without it."""
    total: int
    """The sum of all points."""
    percentiles: dict[str, int | None] | None
    """Of latencies: under how many milliseconds 50, 95 and 99 of 100 are. Null of other metrics."""
    points: list[Point]
    """The counts in the order of time; times without a count are left out."""


class AnalyticsReport(msgspec.Struct, rename={"since": "from", "until": "to"}, kw_only=True):
    """Counts at or after a time and before another.

    Everything before `complete_until` is counted; it is null if nothing was ever counted.
    """

    metric: Metric
    """What is counted."""
    interval: Interval
    """How long each point is."""
    since: Timestamp
    """The first time that is counted."""
    until: Timestamp
    """The end; what happened at it is not counted."""
    complete_until: Timestamp | None
    """All that happened before this time is counted; null if nothing ever was."""
    series: list[Series]
    """One series for each group."""


@get("/v1/analytics", summary="Get analytics", tags=["Statistics"])
async def get_analytics(  # noqa: PLR0913, PLR0917 - each is a parameter of the request
    request: ApiRequest,
    analytics: Injected[Analytics],
    clock: Injected[Clock],
    metric: MetricName = Metric.EVENTS.value,
    interval: IntervalName = Interval.HOUR.value,
    from_: From = None,
    to: To = None,
    group_by: GroupBy = "",
    type_: OfType = "",
    channel: OfChannel = "",
    platform: OfPlatform = "",
) -> AnalyticsReport:
    """Return how often something happened in each minute, hour or day.

    Minutes are kept for two days, hours for 90 days and days for five years. At most 2,000 points
    of time and 10,000 counts are returned.
    """
    app_id = app_of(request, Scope.STATS_READ).app_id
    chosen = collect(
        {
            "metric": lambda: check_choice(Metric, metric),
            "interval": lambda: check_choice(Interval, interval),
        }
    )
    since, until = _read_range(chosen["interval"], from_, to, clock.now())
    filters = {Dimension.TYPE: type_, Dimension.CHANNEL: channel, Dimension.PLATFORM: platform}
    query = AnalyticsQuery(
        app_id=app_id,
        metric=chosen["metric"],
        interval=chosen["interval"],
        since=since,
        until=until,
        group_by=_read_dimensions(chosen["metric"], group_by),
        **_read_filters(chosen["metric"], filters),
    )
    # Read before the counts, so that all up to then is counted.
    progress = await analytics.get_progress()
    counts = await _read_counts(analytics, query)
    return AnalyticsReport(
        metric=query.metric,
        interval=query.interval,
        since=to_rfc3339(since),
        until=to_rfc3339(until),
        complete_until=to_wire(progress.counted_until if progress else None),
        series=_make_series(query, counts),
    )


def _read_range(interval: Interval, from_: str | None, to: str | None, now: int) -> tuple[int, int]:
    """Return the times, rounded to whole intervals: nothing that is asked for is left out."""
    read = collect(
        {"from": lambda: read_moment(from_, "from"), "to": lambda: read_moment(to, "to")}
    )
    end = now if read["to"] is None else read["to"]
    until = interval.begin(end + interval.length_ms - 1)
    start = (
        until - _DEFAULT_POINTS[interval] * interval.length_ms
        if read["from"] is None
        else read["from"]
    )
    since = interval.begin(start)
    if since >= until:
        raise InvalidFields(FieldFault("from", "must be before `to`"))
    if until - since > POINTS * interval.length_ms:
        reason = f"is more than {POINTS:,} {interval}s before `to`; choose a longer interval"
        raise InvalidFields(FieldFault("from", reason))
    return since, until


def _read_dimensions(metric: Metric, text: str) -> frozenset[Dimension]:
    names = [each.strip() for each in text.split(",")] if text.strip() else []
    known = DIMENSIONS[metric]
    if any(each not in known for each in names):
        choices = ", ".join(known)
        raise InvalidFields(FieldFault("group_by", f"must be some of {choices} for {metric}"))
    return frozenset(map(Dimension, names))


def _read_filters(metric: Metric, given: dict[Dimension, str]) -> dict[str, str]:
    checks = {
        name.value: partial(_check_filter, metric, name, text) for name, text in given.items()
    }
    return collect(checks)


def _check_filter(metric: Metric, name: Dimension, text: str) -> str:
    if text and name not in DIMENSIONS[metric]:
        raise ValueError(f"is not known of {metric}")
    if text and name is Dimension.CHANNEL:
        return check_choice(Channel, text).value
    if text and name is Dimension.PLATFORM:
        return check_choice(Platform, text).value
    return text


async def _read_counts(analytics: Analytics, query: AnalyticsQuery) -> list[Count]:
    """Return the counts; those of latencies always by bucket."""
    if Dimension.BUCKET in DIMENSIONS[query.metric]:
        by = query.group_by | {Dimension.BUCKET}
        query = replace(query, group_by=by)
    counts = list(await analytics.read(query, COUNTS + 1))
    if len(counts) > COUNTS:
        reason = (
            f"gives more than {COUNTS:,} counts; choose a longer interval, less time or a filter"
        )
        raise InvalidFields(FieldFault("group_by", reason))
    return counts


def _make_series(query: AnalyticsQuery, counts: Iterable[Count]) -> list[Series]:
    groups: dict[tuple[tuple[str, str], ...], list[Count]] = {}
    for each in counts:
        groups.setdefault(_group_of(query, each), []).append(each)
    series = [_make_one(query, dict(key), members) for key, members in groups.items()]
    return sorted(series, key=lambda each: -each.total)


def _group_of(query: AnalyticsQuery, count: Count) -> tuple[tuple[str, str], ...]:
    named = {
        Dimension.TYPE: count.type,
        Dimension.CHANNEL: count.channel,
        Dimension.PLATFORM: count.platform,
    }
    by = (each for each in DIMENSIONS[query.metric] if each in query.group_by)
    return tuple((each.value, count.label if each in LABELS else named[each]) for each in by)


def _make_one(query: AnalyticsQuery, group: dict[str, str], counts: Iterable[Count]) -> Series:
    by_time: dict[int, int] = {}
    by_label: dict[str, int] = {}
    for each in counts:
        by_time[each.at] = by_time.get(each.at, 0) + each.value
        by_label[each.label] = by_label.get(each.label, 0) + each.value
    is_latency = Dimension.BUCKET in DIMENSIONS[query.metric]
    found = {name: find_bucket_bound(by_label, share) for name, share in PERCENTILES.items()}
    return Series(
        group=group,
        total=sum(by_time.values()),
        percentiles=found if is_latency else None,
        points=[Point(to_rfc3339(at), value) for at, value in by_time.items()],
    )


ROUTES = (get_analytics,)
