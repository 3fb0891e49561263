"""Statements that count messages of all apps, for the analytics: as those of `history`."""

from __future__ import annotations

from clarion.access.sql import of_apps
from clarion.analytics.model import bucket
from clarion.push.sql.expressions import platform_of
from clarion.store.statement import statement

COUNT_MESSAGES = statement(
    "count_new_messages",
    f"""SELECT app_id, platform, COUNT(*) FROM (
      SELECT messages.app_id, {platform_of("messages.device_id")} AS platform
      FROM {of_apps("messages")} AND messages.sequence >= :first_sequence
      AND messages.sequence < :last_sequence) AS found
    GROUP BY app_id, platform""",
)
COUNT_ENDED_MESSAGES = statement(
    "count_ended_messages",
    f"""SELECT app_id, platform, status, bucket, COUNT(*) FROM (
      SELECT messages.app_id, {platform_of("messages.device_id")} AS platform, messages.status,
      {bucket("messages.updated_at - messages.created_at")} AS bucket FROM messages
      WHERE messages.updated_at >= :since AND messages.updated_at < :until
      AND messages.updated_at > 0
      AND messages.status IN ('delivered', 'failed', 'expired')) AS found
    GROUP BY app_id, platform, status, bucket""",
)
