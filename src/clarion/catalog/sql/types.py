"""Notification types in SQL: one definition a row, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from clarion.catalog.model import NotificationType
from clarion.store.statement import Unit, statement

if TYPE_CHECKING:
    from clarion.store.engine import Engine

PUT = statement(
    "put_type",
    """INSERT INTO notification_types (app_id, type, definition, created_at, updated_at)
    VALUES (:app_id, :type, :definition, :now, :now)
    ON CONFLICT (app_id, type) DO UPDATE SET definition = excluded.definition,
    updated_at = excluded.updated_at""",
)
GET = statement(
    "get_type",
    "SELECT definition FROM notification_types WHERE app_id = :app_id AND type = :type",
)
LIST = statement(
    "list_types",
    """SELECT definition FROM notification_types WHERE app_id = :app_id
    ORDER BY type LIMIT 1000""",
)
DELETE = statement(
    "delete_type",
    "DELETE FROM notification_types WHERE app_id = :app_id AND type = :type RETURNING type",
)
DELETE_TEMPLATES = statement(
    "delete_templates_of_type",
    "DELETE FROM templates WHERE app_id = :app_id AND type = :type RETURNING version",
)
_encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(NotificationType).decode


class SqlTypes:
    """The `Types` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, app_id: str, definition: NotificationType, now: int) -> None:
        """Add a type, or replace it."""
        text = _encode(definition).decode()
        step = PUT.step(app_id=app_id, type=definition.type, definition=text, now=now)
        await self._engine.write(Unit(app_id, (step,)))

    async def get(self, app_id: str, type_name: str) -> NotificationType | None:
        """Return the type as the app has defined it, or None."""
        rows = await self._engine.fetch(GET, app_id=app_id, type=type_name)
        return _read(rows[0][0]) if rows else None

    async def list(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return what the app has defined."""
        rows = await self._engine.fetch(LIST, app_id=app_id)
        return tuple(_read(row[0]) for row in rows)

    async def delete(self, app_id: str, type_name: str) -> bool:
        """Remove what the app has said of a type, its templates too."""
        steps = (
            DELETE.step(app_id=app_id, type=type_name),
            DELETE_TEMPLATES.step(app_id=app_id, type=type_name),
        )
        done = await self._engine.write(Unit(app_id, steps))
        return done is not None and any(done)
