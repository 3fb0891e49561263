"""One table: what belongs to an app, and how it is removed after the app was deleted.

The app's row stays as a mark until nothing is left. Everything is in the store: after a crash, or
on another node, the next step goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from clarion.access.sql import Apps
from clarion.store.app_tables import AppTable, delete_by_notification
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from clarion.store.sweeps import sweep

CHUNK = 500
# Longer than anything that began before the deletion can still be written.
MARK_KEPT_MS = 3600 * 1000


_POOLS = "pool IN ('', 'audience', 'push', 'email', 'sms', 'webhook', 'stub')"
_LANES = "lane IN (-1, 0, 1, 2, 3)"
# In this order: first what would still be sent, then what is large.
TABLES = (
    AppTable("jobs", ("id",), "pool, lane, app_id, due_at", f"{_POOLS} AND {_LANES} AND "),
    AppTable("api_keys", ("id",)),
    AppTable("user_keys", ("kid",)),
    AppTable("provider_keys", ("key_id",)),
    AppTable("tickets", ("hash",)),
    AppTable("providers", ("channel", "name")),
    AppTable("push_endpoints", ("device_id", "id")),
    AppTable("subscriptions", ("device_id", "topic"), "app_id, topic, device_id"),
    AppTable("messages", ("device_id", "id"), "app_id, sequence"),
    AppTable("topic_messages", ("topic", "sequence")),
    AppTable("topics", ("topic",)),
    AppTable("devices", ("id",)),
    AppTable("feedback", ("invalidated_at", "token_hash")),
    AppTable("notifications", ("user_id", "id"), children=("attempts", "deliveries")),
    AppTable("inboxes", ("user_id",)),
    AppTable("events", ("id",)),
    AppTable("dedupes", ("id",)),
    AppTable("limit_counts", ("id",)),
    AppTable("follows", ("topic", "user_id")),
    AppTable("user_tags", ("tag", "user_id")),
    AppTable("users", ("id",)),
    AppTable("user_attributes", ("user_id", "term")),
    AppTable("inactive_users", ("user_id",)),
    AppTable("former_device_users", ("user_id", "device_id", "until")),
    AppTable("erasures", ("id",)),
    AppTable("erasure_keys", ("created_at",)),
    AppTable("segments", ("name",)),
    AppTable("templates", ("type", "channel", "language", "version")),
    AppTable("notification_types", ("type",)),
    AppTable("categories", ("name",)),
    AppTable("idempotency_keys", ("key",)),
    AppTable("analytics", ("metric", "step", "at", "type", "channel", "platform", "label")),
)
# Tables with the id of an app whose rows stay, and why.
KEPT = {"audit_entries": "They are a chain, and say who deleted the app. Their age ends them."}
DELETE_CHILDREN = {name: delete_by_notification(name) for name in ("attempts", "deliveries")}
STATEMENTS = {table.name: (table.find(), table.delete()) for table in TABLES}
DELETE_MARK = statement(
    "delete_mark_of_app", "DELETE FROM apps WHERE id = :id AND deleted_at <= :before"
)


@dataclass(frozen=True, slots=True)
class AppDeletion:
    """Removes what is left of deleted apps, a chunk at a time."""

    engine: Engine
    apps: Apps

    async def step(self, now: int) -> int:
        """Remove a chunk of each deleted app; return `CHUNK` or more if there is more to do."""
        most = 0
        for app_id in await self.apps.list_deleted():
            removed = await self._remove_some(app_id)
            most = max(most, removed)
            if not removed:
                mark = DELETE_MARK.step(id=app_id, before=now - MARK_KEPT_MS)
                await self.engine.write(Unit(app_id, (mark,)))
        return most

    async def _remove_some(self, app_id: str) -> int:
        """Remove at least a chunk, unless less is left; return how much."""
        removed = 0
        for table in TABLES:
            if removed < CHUNK:
                removed += await self._remove_rows(table, app_id)
        return removed

    async def _remove_rows(self, table: AppTable, app_id: str) -> int:
        find, delete = STATEMENTS[table.name]
        if not table.children:
            return await sweep(self.engine, find, delete, app_id=app_id, limit=CHUNK)
        found = await self.engine.fetch_in_background(find, app_id=app_id, limit=CHUNK)
        if not found:
            return 0
        rows = [dict(zip(table.key, row, strict=True)) for row in sorted(found)]
        steps = [
            DELETE_CHILDREN[name].many([DELETE_CHILDREN[name].bind(id=row["id"]) for row in rows])
            for name in table.children
        ]
        own = delete.many([delete.bind(app_id=app_id, **row) for row in rows])
        await self.engine.write(Unit(app_id, (*steps, own)))
        return len(found)
