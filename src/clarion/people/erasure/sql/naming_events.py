"""The events that name a user, in SQL: as a recipient, as the actor or as the target.

There is no index by user: events are accepted far more often than users are erased. So the events
of the app are read from the first to the last, a page at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from clarion.events.model import Event
from clarion.events.tables import EVENTS
from clarion.history.model import Content
from clarion.history.tables import NOTIFICATIONS
from clarion.inbox.sql.numbers import COUNT_CHANGE
from clarion.store.engine import Engine
from clarion.store.statement import Row, Step, keys_of, statement

Fetch = Callable[..., Awaitable[Sequence[Row]]]
ERASED = "[erased]"
# Shorter names are part of other words.
_SHORTEST_NAME = 2
_PAGE = 2_000
# Each may have 10,000 recipients, and be half a megabyte: so many are in memory at a time.
_FOUND = 20
_WHOLE = 100
_NOTIFICATIONS = 200
_LAST = "\uffff"
_ID, _AUDIENCE, _CONTENT = map(EVENTS.names.index, ("id", "audience", "content"))
_OLD_CONTENT = NOTIFICATIONS.names.index("content")

FIND_PAGE_END = statement(
    "find_end_of_events_page",
    f"""SELECT id FROM events WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT 1 OFFSET {_PAGE - 1}""",
)
# SQLite finds capitals and small letters alike; what was found is compared again.
SELECT_NAMING = statement(
    "select_events_naming_user",
    rf"""SELECT {EVENTS.columns} FROM events WHERE app_id = :app_id AND id > :after
    AND id <= :upto AND (audience LIKE :pattern ESCAPE '\' OR content LIKE :pattern ESCAPE '\')
    ORDER BY id LIMIT {_FOUND}""",
)
SELECT_PAGE = statement(
    "select_page_of_events",
    f"""SELECT {EVENTS.columns} FROM events WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT {_WHOLE}""",
)
DELETE = statement(
    "erase_event", "DELETE FROM events WHERE app_id = :app_id AND id = :id RETURNING id"
)
# Only if nobody has changed it since it was read: two users may be erased at the same time.
REDACT = statement(
    "redact_event",
    """UPDATE events SET audience = :audience, content = :content, last_error = NULL, trace = NULL
    WHERE app_id = :app_id AND id = :id AND audience = :known_audience
    AND content = :known_content RETURNING id""",
)
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
_encode = msgspec.json.Encoder().encode


class NamingEvent(NamedTuple):
    """An event that names a user, and its row."""

    event: Event
    row: Row

    def is_for(self, user_id: str) -> bool:
        return user_id in self.event.audience.ids

    def show_party(self, user_id: str) -> Row:
        """Return the row as the user may see it who is its actor or target, and not its recipient.

        What it says about others is left out, also in its keys.
        """
        actor, target = self.event.content.actor, self.event.content.target
        own = Content(
            actor=actor if actor and actor.id == user_id else None,
            target=target if target and target.id == user_id else None,
        )
        shown = replace(self.event, content=own, dedupe_key=None, last_error=None)
        values = EVENTS.values(shown)
        return tuple(values[name] for name in EVENTS.names)

    def is_for_alone(self, user_id: str) -> bool:
        return self.is_for(user_id) and not any(
            each not in {user_id, ""} for each in self.event.audience.ids
        )


async def scan(fetch: Fetch, app_id: str, user_id: str) -> AsyncIterator[list[NamingEvent]]:
    """Yield the events of an app that name a user, by parts of the table.

    `fetch` is that of requests, which take turns by their app, or of what runs in the background.
    """
    pattern = '%"' + user_id.replace("_", r"\_") + '"%'
    after = ""
    while True:
        ends = await fetch(FIND_PAGE_END, app_id=app_id, after=after)
        upto = ends[0][0] if ends else _LAST
        rows = await fetch(SELECT_NAMING, app_id=app_id, after=after, upto=upto, pattern=pattern)
        found = (NamingEvent(EVENTS.read(row), row) for row in rows)
        yield [each for each in found if _names(each.event, user_id)]
        if len(rows) == _FOUND:
            after = rows[-1][_ID]
        elif not ends:
            return
        else:
            after = upto


async def read_all(engine: Engine, app_id: str) -> AsyncIterator[NamingEvent]:
    """Yield all events of an app, whomever they name."""
    after = ""
    while rows := await engine.fetch_in_background(SELECT_PAGE, app_id=app_id, after=after):
        for row in rows:
            yield NamingEvent(EVENTS.read(row), row)
        after = EVENTS.read(rows[-1]).id


async def exists(fetch: Fetch, app_id: str, user_id: str) -> bool:
    """Return whether an event names a user. It may read all events of the app."""
    async for page in scan(fetch, app_id, user_id):
        if page:
            return True
    return False


def names_of(event: Event) -> set[str]:
    """Return the ids of the users whom an event names."""
    parties = (event.content.actor, event.content.target)
    return {*event.audience.ids, *(each.id or "" for each in parties if each)} - {""}


def _names(event: Event, user_id: str) -> bool:
    return user_id in event.audience.ids or _is_about(event.content, user_id)


def _is_about(content: Content, user_id: str) -> bool:
    parties = (content.actor, content.target)
    return any(each is not None and each.id == user_id for each in parties)


def erase(found: NamingEvent, user_id: str) -> Step:
    """Return the step that removes a user from an event, or the event if it is for them alone."""
    event, row = found
    if found.is_for_alone(user_id):
        return DELETE.step(app_id=event.app_id, id=event.id)
    # The place in the list stays: audiences are expanded by position.
    ids = tuple("" if each == user_id else each for each in event.audience.ids)
    audience = replace(event.audience, ids=ids)
    content = _redact(event.content, user_id)
    values = EVENTS.values(replace(event, audience=audience, content=content))
    return REDACT.step(
        app_id=event.app_id,
        id=event.id,
        audience=values["audience"],
        content=values["content"],
        known_audience=row[_AUDIENCE],
        known_content=row[_CONTENT],
    )


def _redact(content: Content, user_id: str) -> Content:
    """Return the content without the user as actor and target."""
    actor, target = content.actor, content.target
    return replace(
        content,
        actor=None if actor is not None and actor.id == user_id else actor,
        target=None if target is not None and target.id == user_id else target,
    )


async def redact_notifications(
    engine: Engine, event: Event, user_id: str
) -> AsyncIterator[tuple[Step, ...]]:
    """Yield the steps that remove the actor of an event from what others were sent, in chunks."""
    if not _is_about(event.content, user_id):
        return
    actor = event.content.actor
    is_actor = actor is not None and actor.id == user_id
    name = (actor.name or "") if is_actor and actor is not None else ""
    after = ""
    of_event = {"app_id": event.app_id, "event_id": event.id}
    while rows := await engine.fetch(SELECT_NOTIFICATIONS, **of_event, after=after):
        after = NOTIFICATIONS.read(rows[-1]).id
        every = [*rows, *await _find_folded(engine, event.app_id, rows)]
        steps = [*_redact_rows(every, user_id, name)]
        steps += [each async for each in _redact_messages(engine, event.app_id, every, name)]
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
        if not _is_about(known.content, user_id):
            continue
        owners.add((known.app_id, known.user_id))
        values = NOTIFICATIONS.values(replace(known, content=_redact(known.content, user_id)))
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


async def _redact_messages(
    engine: Engine, app_id: str, rows: Sequence[Row], name: str
) -> AsyncIterator[Step]:
    if len(name) < _SHORTEST_NAME:
        return
    ids = keys_of(NOTIFICATIONS.read(row).id for row in rows)
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


def _blot(text: str, name: str) -> str:
    return text.replace(name, ERASED) if len(name) >= _SHORTEST_NAME else text
