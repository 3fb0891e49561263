"""Removes the actor of an event from the notifications and messages that others got, in SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from msgspec.structs import replace

from clarion.history.model import Content
from clarion.history.tables import NOTIFICATIONS
from clarion.inbox.sql.numbers import COUNT_CHANGE
from clarion.push.sql.redaction import ERASED, SHORTEST_NAME, redact_messages
from clarion.store.engine import Engine
from clarion.store.statement import Row, Step, keys_of, statement

_NOTIFICATIONS = 200
_OLD_CONTENT = NOTIFICATIONS.names.index("content")

SELECT_NOTIFICATIONS = statement(
    "select_notifications_of_naming_event",
    f"""SELECT {NOTIFICATIONS.columns} FROM notifications WHERE app_id = :app_id
    AND event_id = :event_id AND id > :after ORDER BY id LIMIT {_NOTIFICATIONS}""",
)
SELECT_FOLDED = statement(
    "select_notifications_folded_into",
    f"""SELECT {NOTIFICATIONS.columns} FROM notifications WHERE app_id = :app_id
    AND user_id IN (SELECT key FROM json_each(:user_ids))
    AND id IN (SELECT key FROM json_each(:ids))""",
)
REDACT_NOTIFICATION = statement(
    "redact_notification",
    """UPDATE notifications SET title = :title, body = :body, content = :content
    WHERE app_id = :app_id AND user_id = :user_id AND id = :id AND content = :known_content
    RETURNING id""",
)


def is_about(content: Content, user_id: str) -> bool:
    """Return whether a user is the actor or target of an event."""
    parties = (content.actor, content.target)
    return any(each is not None and each.id == user_id for each in parties)


def redact(content: Content, user_id: str) -> Content:
    """Return the content without the user as actor and target."""
    actor, target = content.actor, content.target
    return replace(
        content,
        actor=None if actor is not None and actor.id == user_id else actor,
        target=None if target is not None and target.id == user_id else target,
    )


async def redact_notifications(
    engine: Engine, app_id: str, event_id: str, content: Content, user_id: str
) -> AsyncIterator[tuple[Step, ...]]:
    """Yield the steps that remove the actor of an event from what others were sent, in chunks.

    `content` is that of the event.
    """
    if not is_about(content, user_id):
        return
    actor = content.actor
    is_actor = actor is not None and actor.id == user_id
    name = (actor.name or "") if is_actor and actor is not None else ""
    after = ""
    of_event = {"app_id": app_id, "event_id": event_id}
    while rows := await engine.fetch(SELECT_NOTIFICATIONS, **of_event, after=after):
        after = NOTIFICATIONS.read(rows[-1]).id
        every = [*rows, *await _find_folded(engine, app_id, rows)]
        steps = [*_redact_rows(every, user_id, name)]
        ids = [NOTIFICATIONS.read(row).id for row in every]
        steps += [each async for each in redact_messages(engine, app_id, ids, name)]
        yield tuple(steps)


async def _find_folded(engine: Engine, app_id: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the notifications that took some of these in, with their text."""
    folded = [each for each in map(NOTIFICATIONS.read, rows) if each.folded_into is not None]
    if not folded:
        return ()
    return await engine.fetch(
        SELECT_FOLDED,
        app_id=app_id,
        user_ids=keys_of(each.user_id for each in folded),
        ids=keys_of(each.folded_into or "" for each in folded),
    )


def _redact_rows(rows: Iterable[Row], user_id: str, name: str) -> Iterator[Step]:
    changes, owners = [], set[tuple[str, str]]()
    for row in rows:
        known = NOTIFICATIONS.read(row)
        if not is_about(known.content, user_id):
            continue
        owners.add((known.app_id, known.user_id))
        values = NOTIFICATIONS.values(replace(known, content=redact(known.content, user_id)))
        changes.append(
            REDACT_NOTIFICATION.bind(
                app_id=known.app_id,
                user_id=known.user_id,
                id=known.id,
                title=known.title and _blot(known.title, name),
                body=_blot(known.body, name),
                content=values["content"],
                known_content=row[_OLD_CONTENT],
            )
        )
    if changes:
        # Inboxes first, in one order: that is how others lock them.
        yield COUNT_CHANGE.many([COUNT_CHANGE.bind(app_id=a, user_id=u) for a, u in sorted(owners)])
        yield REDACT_NOTIFICATION.many(changes)


def _blot(text: str, name: str) -> str:
    return text.replace(name, ERASED) if len(name) >= SHORTEST_NAME else text
