"""Statements that count notifications and deliveries of all apps, for the analytics.

A count must not change later. So it depends on what stays in a row: the id, the first time at which
something happened, the first decision. Each is a range of an index.
"""

from __future__ import annotations

from clarion.analytics.model import bucket
from clarion.push.sql.expressions import JOIN_DEVICE
from clarion.store.statement import Statement, statement

# A subquery, not a join: PostgreSQL might read all notifications for a join.
_TYPE = """COALESCE((SELECT notifications.type FROM notifications
      WHERE notifications.app_id = deliveries.app_id
      AND notifications.user_id = deliveries.user_id
      AND notifications.id = deliveries.notification_id), '')"""
# That of the device which was tried first.
_PLATFORM = f"""CASE deliveries.channel WHEN 'push' THEN COALESCE((
      SELECT devices.platform FROM attempts {JOIN_DEVICE}
      WHERE attempts.notification_id = deliveries.notification_id AND attempts.channel = 'push'
      ORDER BY attempts.attempted_at, attempts.device_id LIMIT 1), '') ELSE '' END"""
# With the deliveries that ended when they were decided, as `ended.read_decisions` reads them.
COUNT_NOTIFICATIONS = statement(
    "count_new_notifications",
    """SELECT app_id, type, ended_deliveries, COUNT(*) FROM notifications
    WHERE id >= :first_id AND id < :last_id GROUP BY app_id, type, ended_deliveries""",
)
# The first decision may be among the past ones; then these are read. A user who was sent something
# was allowed to get it, even if the reason now says why sending failed.
COUNT_DECISIONS = statement(
    "count_new_decisions",
    f"""SELECT app_id, type, channel, decided, COUNT(*) FROM (
      SELECT deliveries.app_id, {_TYPE} AS type, deliveries.channel,
      CASE WHEN deliveries.past_decisions <> '[]' THEN deliveries.past_decisions
        WHEN deliveries.sent_at > 0 OR deliveries.status = 'queued' THEN 'allowed'
        ELSE deliveries.reason END AS decided
      FROM deliveries WHERE deliveries.notification_id >= :first_id
      AND deliveries.notification_id < :last_id) AS found
    GROUP BY app_id, type, channel, decided""",
)


def _count_deliveries(name: str, moment: str, label: str, condition: str = "TRUE") -> Statement:
    return statement(
        name,
        f"""SELECT app_id, type, channel, platform, label, COUNT(*) FROM (
          SELECT deliveries.app_id, {_TYPE} AS type, deliveries.channel,
          {_PLATFORM} AS platform, {label} AS label FROM deliveries
          WHERE deliveries.{moment} >= :since AND deliveries.{moment} < :until
          AND deliveries.{moment} > 0 AND {condition}) AS found
        GROUP BY app_id, type, channel, platform, label""",
    )


COUNT_SENT = _count_deliveries("count_sent_deliveries", "sent_at", "'sent'")
COUNT_DELIVERED = _count_deliveries(
    "count_delivered_deliveries",
    "delivered_at",
    bucket("deliveries.delivered_at - deliveries.decided_at"),
)
COUNT_UNSUCCESSFUL = _count_deliveries(
    "count_unsuccessful_deliveries",
    "decided_at",
    "deliveries.status",
    "deliveries.status IN ('failed', 'expired', 'cancelled')",
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
