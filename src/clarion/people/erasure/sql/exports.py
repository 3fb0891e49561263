"""Everything about a user in SQL, table by table."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from clarion.clock import to_rfc3339
from clarion.events.sql import naming
from clarion.events.tables import EVENTS
from clarion.history.sql import ended
from clarion.history.tables import DELIVERIES, NOTIFICATIONS
from clarion.people.erasure.sql.devices import choose_devices, values_of
from clarion.push.model import OwnedDevice
from clarion.push.sql.owned_devices import find_devices
from clarion.store.engine import Engine
from clarion.store.lifecycle import user_rows
from clarion.store.statement import Row, Value
from clarion.store.table import Owner, Shape, Table

# Tables whose rows name a user, in the order in which they are asked: of those with a prefix, all
# rows of the app are read.
_BY_ID = (Owner.ID, Owner.USER, Owner.PREFIX)
_encode = msgspec.json.Encoder().encode


async def is_named(engine: Engine, tables: Sequence[Table[Any]], app_id: str, user_id: str) -> bool:
    """Return whether there is a record of a user, or anything else that names the id.

    An app may use ids of users that it never creates, for example as an actor. For an unknown id,
    all events of the app are read, in the turns of that app.
    """
    fetch, values = engine.fetch_slowly, values_of(app_id, user_id)
    # Jobs come first among the tables, but none of their indexes begins with the user.
    by_id = [each for each in reversed(tables) if each.owner in _BY_ID]
    for table in sorted(by_id, key=lambda each: _BY_ID.index(each.owner)):
        find = user_rows.find(table)
        if await fetch(find, **{name: values[name] for name in find.names}):
            return True
    return await naming.exists(fetch, app_id, user_id)


class Exports:
    """Reads everything about a user."""

    def __init__(self, engine: Engine, tables: Sequence[Table[Any]]) -> None:
        self._engine = engine
        self._tables = tables

    async def exists(self, app_id: str, user_id: str) -> bool:
        """Return whether anything is stored about a user, deleted or not."""
        return await is_named(self._engine, self._tables, app_id, user_id)

    async def read(self, app_id: str, user_id: str) -> AsyncIterator[tuple[str, bytes | None]]:
        """Yield everything, a part at a time: the name of a section, and an object as JSON.

        The objects of one section come one after the other. A section that is a list begins with
        None, so that an empty one is known, too.
        """
        devices = await find_devices(self._engine, app_id, user_id)
        for table in self._tables:
            if table.section and table.owner is not Owner.NOTIFICATION:
                if table.cursor or table.owner is Owner.SEVERAL_USERS:
                    yield table.section, None  # it may be empty
                async for shown in self._read_table(table, app_id, user_id, devices):
                    yield table.section, _encode(shown)

    async def _read_table(
        self, table: Table[Any], app_id: str, user_id: str, devices: Sequence[OwnedDevice]
    ) -> AsyncIterator[dict[str, object]]:
        if table.owner is Owner.SEVERAL_USERS:
            async for page in naming.scan(self._engine.fetch_slowly, app_id, user_id):
                for found in page:
                    row = found.row if found.is_for(user_id) else found.show_party(user_id)
                    yield show(table, row, EVENTS.names)
            return
        for device in choose_devices(table, devices):
            async for shown in self._pages(table, values_of(app_id, user_id, device)):
                yield shown

    async def _pages(
        self, table: Table[Any], values: Mapping[str, Value]
    ) -> AsyncIterator[dict[str, Any]]:
        query, after = user_rows.show(table), user_rows.find_first(table)
        is_short = table.owner is Owner.NOTIFICATION  # a few rows, by an index
        fetch = self._engine.fetch if is_short else self._engine.fetch_slowly
        while True:
            cursor = {f"after_{n}": v for n, v in zip(table.cursor, after, strict=True)}
            given = {n: v for n, v in {**values, **cursor}.items() if n in query.names}
            rows = await fetch(query, **given)
            shown = [show(table, row, (*table.cursor, *table.shown)) for row in rows]
            if table is NOTIFICATIONS:
                await self._add_children([str(row[0]) for row in rows], shown)
                await self._add_ended([str(row[0]) for row in rows], shown, values)
            for each in shown:
                yield each
            if not rows or not table.cursor:
                return
            after = rows[-1][: len(table.cursor)]

    async def _add_children(self, ids: Sequence[str], shown: Sequence[dict[str, Any]]) -> None:
        """Add their deliveries and attempts to notifications."""
        for table in self._tables:
            if table.owner is Owner.NOTIFICATION:
                for notification_id, each in zip(ids, shown, strict=True):
                    own = {"notification_id": notification_id}
                    each[table.section] = [one async for one in self._pages(table, own)]

    async def _add_ended(
        self, ids: Sequence[str], shown: Sequence[dict[str, Any]], user: Mapping[str, Any]
    ) -> None:
        """Add the deliveries that are no rows to those that are."""
        found = await ended.find(self._engine, user["app_id"], user["user_id"], ids)
        for notification_id, each in zip(ids, shown, strict=True):
            rows = map(DELIVERIES.bind, found.get(notification_id, ()))
            more = [show(DELIVERIES, row, DELIVERIES.names) for row in rows]
            each[DELIVERIES.section] = sorted(
                each[DELIVERIES.section] + more, key=itemgetter("channel")
            )


def show(table: Table[Any], row: Row, names: Sequence[str]) -> dict[str, object]:
    """Return a row as an export shows it; the names are those of its values."""
    # A column of the cursor stands in the row twice.
    values = dict(zip(names, row, strict=False))
    return {name: _SHOWN[shape](values[name]) for name, shape in table.shown.items()}


def _show_payload(payload: bytes) -> object:
    try:
        msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return base64.b64encode(payload).decode()
    return msgspec.Raw(payload)


def _optional(convert: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda value: None if value is None else convert(value)


_SHOWN: dict[Shape, Callable[[Any], object]] = {
    Shape.PLAIN: lambda value: value,
    Shape.TIME: _optional(to_rfc3339),
    Shape.FLAG: _optional(bool),
    Shape.JSON: _optional(lambda text: msgspec.Raw(text.encode())),
    Shape.PAYLOAD: _optional(lambda payload: _show_payload(bytes(payload))),
}
