"""Removes the name of an erased user from messages to others, in SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec

from clarion.store.engine import Engine
from clarion.store.statement import Step, keys_of, statement

ERASED = "[erased]"
# Shorter names are part of other words.
SHORTEST_NAME = 2

SELECT_MESSAGES = statement(
    "select_messages_of_notifications",
    """SELECT device_id, id, payload FROM messages WHERE app_id = :app_id
    AND notification_id IN (SELECT key FROM json_each(:ids))""",
)
REDACT_MESSAGE = statement(
    "redact_message",
    """UPDATE messages SET payload = :payload WHERE device_id = :device_id AND id = :id
    AND app_id = :app_id RETURNING id""",
)
ERASE = statement(
    "erase_messages_of_notification",
    """DELETE FROM messages WHERE notification_id = :notification_id AND app_id = :app_id
    RETURNING id""",
)
_encode = msgspec.json.Encoder().encode


async def redact_messages(
    engine: Engine, app_id: str, notification_ids: Iterable[str], name: str
) -> AsyncIterator[Step]:
    """Yield the step that removes a name from the messages of notifications."""
    if len(name) < SHORTEST_NAME:
        return
    ids = keys_of(notification_ids)
    written = _encode(name)[1:-1]
    found = await engine.fetch_in_background(SELECT_MESSAGES, app_id=app_id, ids=ids)
    changes = [
        REDACT_MESSAGE.bind(
            app_id=app_id,
            device_id=device_id,
            id=message_id,
            payload=bytes(payload).replace(written, ERASED.encode()),
        )
        for device_id, message_id, payload in found
        if written in bytes(payload)
    ]
    if changes:
        yield REDACT_MESSAGE.many(changes)
