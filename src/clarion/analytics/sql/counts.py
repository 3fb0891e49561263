"""Statements that count what happened in a time, of all apps.

A count must not change later. So it depends on what stays in a row: the id, the first time at which
something happened, the first decision. Each is a range of an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from clarion.analytics.model import BOUNDS_MS, LONGER, Cell, Metric
from clarion.catalog.model import Channel
from clarion.events.model import DeliveryStatus, PastDecision, ReasonCode
from clarion.events.sql.retention import first_id_of
from clarion.store.engine import Fetch
from clarion.store.statement import Row, Statement, Value, statement

# A subquery, not a join: PostgreSQL might read all notifications for a join.
_TYPE = """COALESCE((SELECT notifications.type FROM notifications
      WHERE notifications.app_id = deliveries.app_id
      AND notifications.user_id = deliveries.user_id
      AND notifications.id = deliveries.notification_id), '')"""
# What was not delivered by the commit that decided it.
_IS_LATER = "(deliveries.channel <> 'in_app' OR deliveries.past_decisions <> '[]')"
# That of the device which was tried first.
_PLATFORM = """CASE deliveries.channel WHEN 'push' THEN COALESCE((
      SELECT devices.platform FROM attempts JOIN devices ON devices.id = attempts.device_id
      WHERE attempts.notification_id = deliveries.notification_id AND attempts.channel = 'push'
      ORDER BY attempts.attempted_at, attempts.device_id LIMIT 1), '') ELSE '' END"""
_DEVICE_PLATFORM = """COALESCE(
      (SELECT devices.platform FROM devices WHERE devices.id = messages.device_id), '')"""


def _bucket(latency: str) -> str:
    cases = " ".join(f"WHEN {latency} <= {bound} THEN '{bound}'" for bound in BOUNDS_MS)
    return f"CASE {cases} ELSE '{LONGER}' END"


# The apps come first: of each, the range of its index is read. SQLite keeps to the order of a cross
# join.
COUNT_EVENTS = statement(
    "count_new_events",
    """SELECT events.app_id, events.type, COUNT(*) FROM apps CROSS JOIN events
    WHERE events.app_id = apps.id AND events.id >= :first_id AND events.id < :last_id
    GROUP BY events.app_id, events.type""",
)
# The first decision may be among the past ones; then these are read. Whoever was sent something
# was allowed to be, even if the reason is now why that failed.
COUNT_DECISIONS = statement(
    "count_new_decisions",
    f"""SELECT app_id, type, channel, decided, COUNT(*), SUM(is_shown), SUM(is_first) FROM (
      SELECT deliveries.app_id, {_TYPE} AS type, deliveries.channel,
      CASE WHEN deliveries.past_decisions <> '[]' THEN deliveries.past_decisions
        WHEN deliveries.sent_at > 0 OR deliveries.status = 'queued' THEN 'allowed'
        ELSE deliveries.reason END AS decided,
      CASE WHEN NOT {_IS_LATER} AND deliveries.sent_at > 0 THEN 1 ELSE 0 END AS is_shown,
      CASE WHEN deliveries.channel = (SELECT MIN(others.channel) FROM deliveries AS others
        WHERE others.notification_id = deliveries.notification_id) THEN 1 ELSE 0 END AS is_first
      FROM deliveries WHERE deliveries.notification_id >= :first_id
      AND deliveries.notification_id < :last_id) AS found
    GROUP BY app_id, type, channel, decided""",
)


def _count_deliveries(name: str, moment: str, condition: str, label: str) -> Statement:
    return statement(
        name,
        f"""SELECT app_id, type, channel, platform, label, COUNT(*) FROM (
          SELECT deliveries.app_id, {_TYPE} AS type, deliveries.channel,
          {_PLATFORM} AS platform, {label} AS label FROM deliveries
          WHERE deliveries.{moment} >= :since AND deliveries.{moment} < :until
          AND deliveries.{moment} > 0 AND {condition}) AS found
        GROUP BY app_id, type, channel, platform, label""",
    )


COUNT_SENT = _count_deliveries("count_sent_deliveries", "sent_at", _IS_LATER, "'sent'")
COUNT_DELIVERED = _count_deliveries(
    "count_delivered_deliveries",
    "delivered_at",
    _IS_LATER,
    _bucket("deliveries.delivered_at - deliveries.decided_at"),
)
COUNT_UNSUCCESSFUL = _count_deliveries(
    "count_unsuccessful_deliveries",
    "decided_at",
    "deliveries.status IN ('failed', 'expired', 'cancelled')",
    "deliveries.status",
)


def _count_notifications(name: str, moment: str) -> Statement:
    return statement(
        name,
        f"""SELECT app_id, type, COUNT(*) FROM notifications
        WHERE {moment} >= :since AND {moment} < :until AND {moment} > 0 GROUP BY app_id, type""",
    )


COUNT_READS = _count_notifications("count_first_reads", "first_read_at")
COUNT_DISMISSALS = _count_notifications("count_dismissals", "dismissed_at")
COUNT_CLICKS = _count_notifications("count_first_clicks", "clicked_at")
COUNT_MESSAGES = statement(
    "count_new_messages",
    f"""SELECT app_id, platform, COUNT(*) FROM (
      SELECT messages.app_id, {_DEVICE_PLATFORM} AS platform FROM apps CROSS JOIN messages
      WHERE messages.app_id = apps.id AND messages.sequence >= :first_sequence
      AND messages.sequence < :last_sequence) AS found
    GROUP BY app_id, platform""",
)
COUNT_ENDED_MESSAGES = statement(
    "count_ended_messages",
    f"""SELECT app_id, platform, status, bucket, COUNT(*) FROM (
      SELECT messages.app_id, {_DEVICE_PLATFORM} AS platform, messages.status,
      {_bucket("messages.updated_at - messages.created_at")} AS bucket FROM messages
      WHERE messages.updated_at >= :since AND messages.updated_at < :until
      AND messages.updated_at > 0
      AND messages.status IN ('delivered', 'failed', 'expired')) AS found
    GROUP BY app_id, platform, status, bucket""",
)

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


def _read_decisions(rows: Sequence[Row]) -> Found:
    for app_id, type_, channel, decided, decisions, shown, notifications in rows:
        reason = _find_first_reason(decided)
        yield Cell(app_id, Metric.DECISIONS, type_, channel, label=reason), decisions
        yield Cell(app_id, Metric.NOTIFICATIONS, type_), int(notifications)
        for outcome in ("sent", "delivered") if shown else ():
            cell = Cell(app_id, Metric.DELIVERIES, type_, Channel.IN_APP.value, label=outcome)
            yield cell, int(shown)


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
    COUNT_EVENTS: _read_by_type(Metric.EVENTS),
    COUNT_DECISIONS: _read_decisions,
    COUNT_SENT: _read_deliveries,
    COUNT_DELIVERED: _read_delivered,
    COUNT_UNSUCCESSFUL: _read_deliveries,
    COUNT_READS: _read_by_type(Metric.READS),
    COUNT_DISMISSALS: _read_by_type(Metric.DISMISSALS),
    COUNT_CLICKS: _read_by_type(Metric.CLICKS),
    COUNT_MESSAGES: _read_messages,
    COUNT_ENDED_MESSAGES: _read_ended_messages,
}
