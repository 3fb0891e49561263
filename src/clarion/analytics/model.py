"""The metrics, their dimensions, and the counts of a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# The upper bounds of the buckets in which latencies are counted, in milliseconds.
BOUNDS_MS = (
    *(50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000),
    *(30_000, MINUTE_MS, 5 * MINUTE_MS, HOUR_MS),
)
LONGER = "longer"


class Interval(StrEnum):
    """The length of time that one count is for. Days begin at midnight UTC."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length_ms(self) -> int:
        """Return the length in milliseconds."""
        return _LENGTHS_MS[self]

    def begin(self, moment: int) -> int:
        """Return the beginning of the minute, hour or day in which a time is."""
        return moment - moment % self.length_ms


_LENGTHS_MS = {Interval.MINUTE: MINUTE_MS, Interval.HOUR: HOUR_MS, Interval.DAY: DAY_MS}
# How long counts are kept.
KEPT_MS = {Interval.MINUTE: 2 * DAY_MS, Interval.HOUR: 90 * DAY_MS, Interval.DAY: 5 * 366 * DAY_MS}


class Metric(StrEnum):
    """What is counted."""

    EVENTS = "events"  # accepted
    NOTIFICATIONS = "notifications"  # created
    DECISIONS = "decisions"  # the first one for each channel of a notification
    DELIVERIES = "deliveries"  # by what became of them
    DELIVERY_LATENCY = "delivery_latency"  # from the decision to send until it was delivered
    MESSAGES = "messages"  # to devices of the gateway, by what became of them
    MESSAGE_LATENCY = "message_latency"  # from acceptance until it was acknowledged
    READS = "reads"  # for the first time
    DISMISSALS = "dismissals"
    CLICKS = "clicks"  # for the first time


class Dimension(StrEnum):
    """By what the counts of a metric are divided."""

    TYPE = "type"
    CHANNEL = "channel"
    PLATFORM = "platform"
    REASON = "reason"
    OUTCOME = "outcome"
    BUCKET = "bucket"


# These are one column, because no metric has two of them.
LABELS = frozenset({Dimension.REASON, Dimension.OUTCOME, Dimension.BUCKET})
_SENT = (Dimension.TYPE, Dimension.CHANNEL, Dimension.PLATFORM)
DIMENSIONS: dict[Metric, tuple[Dimension, ...]] = {
    Metric.EVENTS: (Dimension.TYPE,),
    Metric.NOTIFICATIONS: (Dimension.TYPE,),
    Metric.DECISIONS: (Dimension.TYPE, Dimension.CHANNEL, Dimension.REASON),
    Metric.DELIVERIES: (*_SENT, Dimension.OUTCOME),
    Metric.DELIVERY_LATENCY: (*_SENT, Dimension.BUCKET),
    Metric.MESSAGES: (Dimension.PLATFORM, Dimension.OUTCOME),
    Metric.MESSAGE_LATENCY: (Dimension.PLATFORM, Dimension.BUCKET),
    Metric.READS: (Dimension.TYPE,),
    Metric.DISMISSALS: (Dimension.TYPE,),
    Metric.CLICKS: (Dimension.TYPE,),
}


class Cell(NamedTuple):
    """What one count is of; a dimension that the metric does not have is empty."""

    app_id: str
    metric: Metric
    type: str = ""
    channel: str = ""
    platform: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class RollupProgress:
    """Up to when everything is counted, and up to when it was counted again.

    `turn` grows with each change.
    """

    turn: int
    counted_until: int
    settled_until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsQuery:
    """A query for counts of an app; an empty filter selects all."""

    app_id: str
    metric: Metric
    interval: Interval
    since: int
    until: int
    group_by: frozenset[Dimension] = frozenset()
    type: str = ""
    channel: str = ""
    platform: str = ""


class Count(NamedTuple):
    """A count of one minute, hour or day; dimensions that are not grouped by are empty."""

    at: int
    type: str
    channel: str
    platform: str
    label: str
    value: int


def find_bucket_bound(counts: dict[str, int], share: float) -> int | None:
    """Return the bound under which this share of latencies is; None: longer than all, or none."""
    left = share * sum(counts.values())
    if not left:
        return None
    for bound in BOUNDS_MS:
        left -= counts.get(str(bound), 0)
        if left <= 0:
            return bound
    return None


def bucket(latency: str) -> str:
    """Return the SQL expression for the bucket of a latency in milliseconds."""
    cases = " ".join(f"WHEN {latency} <= {bound} THEN '{bound}'" for bound in BOUNDS_MS)
    return f"CASE {cases} ELSE '{LONGER}' END"
