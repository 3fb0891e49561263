"""Counts what happened in a period, for all apps, with statements of the owners of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from clarion.analytics.model import Cell, Metric
from clarion.catalog.model import Channel
from clarion.clock import first_id_of
from clarion.events.sql.events import COUNT_NEW
from clarion.history.model import DeliveryStatus, PastDecision, ReasonCode
from clarion.history.sql.counts import (
    COUNT_CLICKS,
    COUNT_DECISIONS,
    COUNT_DELIVERED,
    COUNT_DISMISSALS,
    COUNT_NOTIFICATIONS,
    COUNT_READS,
    COUNT_SENT,
    COUNT_UNSUCCESSFUL,
)
from clarion.history.sql.ended import read_decisions
from clarion.push.sql.statistics import COUNT_ENDED_MESSAGES, COUNT_NEW_MESSAGES
from clarion.store.engine import Fetch
from clarion.store.statement import Row, Statement, Value

Found = Iterator[tuple[Cell, int]]
_read_past = msgspec.json.Decoder(tuple[PastDecision, ...]).decode
_SENDING = frozenset({DeliveryStatus.QUEUED, DeliveryStatus.DELIVERED})


async def count_all(fetch: Fetch, since: int, until: int) -> Mapping[Cell, int]:
    """Count everything that happened from a time on and before another."""
    values: dict[str, Value] = {
        "since": since,
        "until": until,
        "first_id": first_id_of(since),
        "last_id": first_id_of(until),
        "first_sequence": since * 1000,
        "last_sequence": until * 1000,
    }
    counts: Counter[Cell] = Counter()
    for query, read in _READERS.items():
        rows = await fetch(query, **{name: values[name] for name in query.names})
        for cell, value in read(rows):
            counts[cell] += value
    return counts


def _read_by_type(metric: Metric) -> Callable[[Sequence[Row]], Found]:
    def read(rows: Sequence[Row]) -> Found:
        return ((Cell(app_id, metric, type_), value) for app_id, type_, value in rows)

    return read


def _read_notifications(rows: Sequence[Row]) -> Found:
    for app_id, type_, ended, value in rows:
        yield Cell(app_id, Metric.NOTIFICATIONS, type_), value
        for each in read_decisions(ended or "[]"):
            channel, is_sent = each.channel.value, each.status is DeliveryStatus.DELIVERED
            reason = ReasonCode.ALLOWED if is_sent else each.reason
            yield Cell(app_id, Metric.DECISIONS, type_, channel, label=reason.value), value
            for outcome in ("sent", "delivered") if is_sent else ():
                yield Cell(app_id, Metric.DELIVERIES, type_, channel, label=outcome), value


def _read_decisions(rows: Sequence[Row]) -> Found:
    for app_id, type_, channel, decided, value in rows:
        reason = _find_first_reason(decided)
        yield Cell(app_id, Metric.DECISIONS, type_, channel, label=reason), value


def _find_first_reason(decided: str) -> str:
    """Return the reason of the first decision, from a reason or from past decisions."""
    if not decided.startswith("["):
        return decided
    first = _read_past(decided)[0]
    return (ReasonCode.ALLOWED if first.status in _SENDING else first.reason).value


def _read_deliveries(rows: Sequence[Row]) -> Found:
    for app_id, type_, channel, platform, outcome, value in rows:
        yield Cell(app_id, Metric.DELIVERIES, type_, channel, platform, outcome), value


def _read_delivered(rows: Sequence[Row]) -> Found:
    for app_id, type_, channel, platform, bucket, value in rows:
        yield Cell(app_id, Metric.DELIVERIES, type_, channel, platform, "delivered"), value
        if channel != Channel.IN_APP:
            yield Cell(app_id, Metric.DELIVERY_LATENCY, type_, channel, platform, bucket), value


def _read_messages(rows: Sequence[Row]) -> Found:
    for app_id, platform, value in rows:
        yield Cell(app_id, Metric.MESSAGES, platform=platform, label="accepted"), value


def _read_ended_messages(rows: Sequence[Row]) -> Found:
    for app_id, platform, status, bucket, value in rows:
        yield Cell(app_id, Metric.MESSAGES, platform=platform, label=status), value
        if status == "delivered":
            yield Cell(app_id, Metric.MESSAGE_LATENCY, platform=platform, label=bucket), value


_READERS: dict[Statement, Callable[[Sequence[Row]], Found]] = {
    COUNT_NEW: _read_by_type(Metric.EVENTS),
    COUNT_NOTIFICATIONS: _read_notifications,
    COUNT_DECISIONS: _read_decisions,
    COUNT_SENT: _read_deliveries,
    COUNT_DELIVERED: _read_delivered,
    COUNT_UNSUCCESSFUL: _read_deliveries,
    COUNT_READS: _read_by_type(Metric.READS),
    COUNT_DISMISSALS: _read_by_type(Metric.DISMISSALS),
    COUNT_CLICKS: _read_by_type(Metric.CLICKS),
    COUNT_NEW_MESSAGES: _read_messages,
    COUNT_ENDED_MESSAGES: _read_ended_messages,
}
