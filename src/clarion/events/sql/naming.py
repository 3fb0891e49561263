"""The events that name a user, in SQL: as a recipient, as the actor or as the target.

There is no index by user: events are accepted far more often than users are erased. So the events
of the app are read from the first to the last, a page at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from clarion.events.model import Event
from clarion.events.tables import EVENTS
from clarion.history.model import Content
from clarion.history.sql.redaction import is_about, redact
from clarion.store.engine import Engine
from clarion.store.statement import Row, Step, statement

Fetch = Callable[..., Awaitable[Sequence[Row]]]
_PAGE = 2_000
# Events in memory at a time: each may have 10,000 recipients and be half a megabyte.
_FOUND = 20
_WHOLE = 100
_LAST = "\uffff"
_ID, _AUDIENCE, _CONTENT = map(EVENTS.names.index, ("id", "audience", "content"))

FIND_PAGE_END = statement(
    "find_end_of_events_page",
    f"""SELECT id FROM events WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT 1 OFFSET {_PAGE - 1}""",
)
# SQLite ignores the case of letters; the results are compared again.
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


class NamingEvent(NamedTuple):
    """An event that names a user, and its row."""

    event: Event
    row: Row

    def is_for(self, user_id: str) -> bool:
        return user_id in self.event.audience.ids

    def show_party(self, user_id: str) -> Row:
        """Return the row as its actor or target, who is not its recipient, may see it.

        Everything about other users is left out, also in its keys.
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
    return user_id in event.audience.ids or is_about(event.content, user_id)


def erase(found: NamingEvent, user_id: str) -> Step:
    """Return the step that removes a user from an event, or the event if it is for them alone."""
    event, row = found
    if found.is_for_alone(user_id):
        return DELETE.step(app_id=event.app_id, id=event.id)
    # The place in the list stays: audiences are expanded by position.
    ids = tuple("" if each == user_id else each for each in event.audience.ids)
    audience = replace(event.audience, ids=ids)
    content = redact(event.content, user_id)
    values = EVENTS.values(replace(event, audience=audience, content=content))
    return REDACT.step(
        app_id=event.app_id,
        id=event.id,
        audience=values["audience"],
        content=values["content"],
        known_audience=row[_AUDIENCE],
        known_content=row[_CONTENT],
    )
