"""Statistics of devices and messages in SQL. Counting may take long: these are slow reads."""

from __future__ import annotations

from clarion.access.sql import of_apps
from clarion.analytics.model import bucket
from clarion.push.model import MessageStatus
from clarion.push.sql.expressions import WAITS, platform_of
from clarion.store.engine import Engine
from clarion.store.statement import statement

COUNT_DEVICES = statement(
    "count_devices",
    """SELECT COUNT(*) FILTER (WHERE invalidated_at IS NULL),
    COUNT(*) FILTER (WHERE invalidated_at IS NOT NULL) FROM devices WHERE app_id = :app_id""",
)
COUNT_MESSAGES = statement(
    "count_messages_by_status",
    """SELECT status, COUNT(*) FROM messages WHERE app_id = :app_id AND sequence >= :since
    GROUP BY status""",
)
COUNT_SUBSCRIBERS = statement(
    "count_subscribers",
    """SELECT subscriptions.topic, COUNT(*) FROM subscriptions
    JOIN devices ON devices.id = subscriptions.device_id AND devices.invalidated_at IS NULL
    WHERE subscriptions.app_id = :app_id GROUP BY subscriptions.topic
    ORDER BY COUNT(*) DESC, subscriptions.topic LIMIT :limit""",
)
# Of all apps, by the index of what expires: a message that waits has a time at which it does.
COUNT_PENDING = statement(
    "count_pending_messages",
    f"""SELECT COUNT(*) FROM (SELECT 1 FROM messages WHERE {WAITS} AND expires_at > 0
    ORDER BY expires_at LIMIT :limit) AS waiting""",
)
# Of all apps, for the analytics: as those of `history`.
COUNT_NEW_MESSAGES = statement(
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


class Statistics:
    """Statistics of an app. Counting may take long and holds up nothing else."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def count_devices(self, app_id: str) -> tuple[int, int]:
        """Return how many devices are valid, and how many are not."""
        ((valid, invalid),) = await self._engine.fetch_slowly(COUNT_DEVICES, app_id=app_id)
        return valid, invalid

    async def count_messages(self, app_id: str, since: int) -> dict[MessageStatus, int]:
        """Return how many messages accepted since a time have each status."""
        rows = await self._engine.fetch_slowly(COUNT_MESSAGES, app_id=app_id, since=since * 1000)
        return {MessageStatus(status): count for status, count in rows}

    async def count_subscribers(self, app_id: str, limit: int) -> tuple[tuple[str, int], ...]:
        """Return topics with their number of valid subscribed devices, largest number first."""
        rows = await self._engine.fetch_slowly(COUNT_SUBSCRIBERS, app_id=app_id, limit=limit)
        return tuple((topic, count) for topic, count in rows)

    async def count_pending(self, limit: int) -> int:
        """Return how many messages of all apps wait for their devices, counted up to a limit."""
        ((count,),) = await self._engine.fetch_in_background(COUNT_PENDING, limit=limit)
        return int(count)
