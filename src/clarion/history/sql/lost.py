"""Deliveries that are lost, in SQL: their job is gone."""

from __future__ import annotations

from clarion.access.sql import is_of_living_app
from clarion.events.sql.expressions import is_without_job
from clarion.store.statement import statement

_JOB = """CASE deliveries.status
      WHEN 'held' THEN deliveries.notification_id || '/held'
      WHEN 'collected' THEN deliveries.digest
      ELSE deliveries.notification_id || '/' || deliveries.channel END"""
SELECT_LOST = statement(
    "select_deliveries_without_job",
    f"""SELECT deliveries.app_id, deliveries.notification_id FROM deliveries
    WHERE deliveries.notification_id >= :first_id AND deliveries.notification_id < :last_id
    AND deliveries.status IN ('held', 'collected', 'queued')
    AND {is_without_job(_JOB)}
    AND {is_of_living_app("deliveries.app_id")}
    LIMIT :limit""",
)
