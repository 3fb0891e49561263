"""Pages of inboxes in SQL: one read, without the columns that a page does not show."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from clarion.catalog.model import Priority
from clarion.history.sql.listings import Listings, make_listings
from clarion.inbox.model import (
    InboxContent,
    InboxQuery,
    InboxRow,
    InboxRows,
    InboxState,
    PageOutline,
)
from clarion.inbox.sql.inboxes import SELECT_STATE
from clarion.inbox.sql.numbers import OF_USER
from clarion.pages import refuse_cursor
from clarion.store.engine import Engine
from clarion.store.statement import Row, Value

# In each row, since one statement sees one moment; both engines evaluate them once.
_STATE = f""", (SELECT unread_count FROM inboxes WHERE {OF_USER}),
(SELECT sequence FROM inboxes WHERE {OF_USER})"""
# What is listed is not dismissed.
_COLUMNS = (
    "id, type, category, priority, title, body, content, count, read_at, created_at, sequence"
)
ITEMS = make_listings("show", _COLUMNS, _STATE)
# Read from the index alone.
IDS = make_listings("outline", "id", _STATE)
# Sorts after every id: they are written in hexadecimal digits.
_NEWEST = "g"
_ID = re.compile(r"[0-9a-f-]{36}")
_PRIORITIES = {each.value: each.label for each in Priority}


_decode = msgspec.json.Decoder(InboxContent).decode


class SqlInboxPages:
    """The `InboxPages` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(self, app_id: str, user_id: str, query: InboxQuery) -> InboxRows:
        rows, state = await self._fetch(ITEMS, app_id, user_id, query)
        found = [_read_row(row) for row in rows[: query.limit]]
        return InboxRows(found, len(rows) > query.limit, state)

    async def outline(self, app_id: str, user_id: str, query: InboxQuery) -> PageOutline:
        rows, state = await self._fetch(IDS, app_id, user_id, query)
        ids = [row[0] for row in rows[: query.limit]]
        return PageOutline(ids, len(rows) > query.limit, state)

    async def _fetch(
        self, listings: Listings, app_id: str, user_id: str, query: InboxQuery
    ) -> tuple[Sequence[Row], InboxState]:
        rows = await _fetch_listed(self._engine, listings, app_id, user_id, query)
        if rows:
            return rows, _read_state(rows[0][-2:])
        # No row has the state. It is read before the page, so that a client that resumes a stream
        # after it misses nothing.
        found = await self._engine.fetch(SELECT_STATE, app_id=app_id, user_id=user_id)
        if not found:
            return (), InboxState(0, 0)
        rows = await _fetch_listed(self._engine, listings, app_id, user_id, query)
        return rows, _read_state(rows[0][-2:] if rows else found[0])


def _read_state(row: Row) -> InboxState:
    unread_count, sequence = row
    return InboxState(unread_count or 0, sequence or 0)


def _read_row(row: Row) -> InboxRow:
    # By position: names would cost as much as all else that is done here.
    return InboxRow(
        row[0],
        row[1],
        row[2],
        _PRIORITIES[row[3]],
        row[4],
        row[5],
        _decode(row[6]),
        row[7],
        row[8],
        row[9],
        row[10],
    )


async def _fetch_listed(
    engine: Engine, listings: Listings, app_id: str, user_id: str, query: InboxQuery
) -> Sequence[Row]:
    """Return the rows of a page, and one more if more follow; the cursor is the id of the last."""
    after, category = query.after, query.category
    if after is not None and not _ID.fullmatch(after):
        raise refuse_cursor()
    values: dict[str, Value] = {
        "app_id": app_id,
        "user_id": user_id,
        "before_id": after or _NEWEST,
        "limit": query.limit + 1,
    }
    if category is not None:
        values["category"] = category
    return await engine.fetch(listings[query.unread, category is not None], **values)
