"""One pass of an erasure: everything about a user is removed, a chunk at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from clarion.clock import Clock
from clarion.people.erasure.model import Erasure, Subject
from clarion.people.erasure.sql import jobs, naming_events
from clarion.people.erasure.sql.devices import choose_devices, find_devices, values_of
from clarion.store.engine import Engine
from clarion.store.lifecycle import user_rows
from clarion.store.lifecycle.user_rows import CHUNK
from clarion.store.statement import Row, Step, Unit, Value, statement
from clarion.store.table import Owner, Table

# What was found may be written to meanwhile, so a pass is repeated until it finds nothing.
ROUNDS = 20
# The chunks of an erasure leave at least half of the time to others.
LONGEST_PAUSE_S = 0.05
LEASE_MS = 60_000

# The guard of every chunk: a settling erasure ends when the user is created again. It also says
# how far the erasure is, and that somebody works on it.
PROGRESS = statement(
    "note_erasure_progress",
    """UPDATE erasures SET counts = :counts, due_at = :due_at
    WHERE app_id = :app_id AND id = :id AND (status = 'running' OR (status = 'settling'
    AND NOT EXISTS (SELECT 1 FROM users WHERE users.app_id = :app_id AND users.id = :user_id)))
    RETURNING id""",
)
SET_SUBJECT = statement(
    "set_erasure_subject",
    "UPDATE erasures SET subject = :subject WHERE app_id = :app_id AND id = :id",
)
FIND_NOTIFICATIONS = statement(
    "find_notifications_to_erase",
    f"""SELECT id, event_id FROM notifications WHERE app_id = :app_id AND user_id = :user_id
    LIMIT {CHUNK}""",
)
ERASE_MESSAGES = statement(
    "erase_messages_of_notification",
    """DELETE FROM messages WHERE notification_id = :notification_id AND app_id = :app_id
    RETURNING id""",
)
# The error of a provider may quote an address.
CLEAR_ERROR = statement(
    "clear_event_error",
    """UPDATE events SET last_error = NULL WHERE app_id = :app_id AND id = :id
    AND last_error IS NOT NULL""",
)


class Stopped(Exception):
    """The erasure was finished by another node, or the user was created again."""


@dataclass(slots=True, kw_only=True)
class ErasurePass:
    """Removes everything about one user."""

    engine: Engine
    tables: Sequence[Table[Any]]
    erasure: Erasure
    subject: Subject
    clock: Clock
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Remove all rows in the order of the tables, until none is left; `Stopped` if it must."""
        for _ in range(ROUNDS):
            before = self.counts.total()
            for table in self.tables:
                await self._erase(table)
            if self.counts.total() == before:
                break
        await self._write({})  # the counts of the last chunk: what follows may be interrupted

    async def _erase(self, table: Table[Any]) -> None:
        match table.owner:
            case Owner.SEVERAL_USERS:
                await self._erase_from_events(table)
            case Owner.NOTIFICATION:
                pass  # with the notifications
            case Owner.USER if table.name == "jobs":
                await self._erase_jobs(table)
            case Owner.USER if table.name == "notifications":
                await self._erase_notifications(table)
            case _:
                await self._erase_rows(table)

    async def _erase_rows(self, table: Table[Any]) -> None:
        """Erase what is found, of several devices in one commit if it is little."""
        find, delete = user_rows.find(table), user_rows.delete(table)
        waiting: list[Row] = []
        for device in choose_devices(table, self.subject.devices):
            values = values_of(self.erasure.app_id, self.subject.user_id, device)
            owner = {name: values[name] for name in find.names}
            while found := await self.engine.fetch_in_background(find, **owner):
                waiting += (bind_delete(table, values, key) for key in sorted(found))
                if len(found) < CHUNK:
                    break  # the next round looks for more
                if not await self._write({table.name: delete.many(waiting)}):
                    return
                waiting = []
            if len(waiting) >= CHUNK:
                await self._write({table.name: delete.many(waiting)})
                waiting = []
        if waiting:
            await self._write({table.name: delete.many(waiting)})

    async def _erase_jobs(self, table: Table[Any]) -> None:
        owner = {"app_id": self.erasure.app_id, "user_id": self.subject.user_id}
        while found := await self.engine.fetch_in_background(user_rows.find(table), **owner):
            removed = await self._write(jobs.erase(table, owner, found, self.clock.now()))
            if removed == 0 or len(found) < CHUNK:
                return  # the next round looks for more

    async def _erase_notifications(self, table: Table[Any]) -> None:
        owner = {"app_id": self.erasure.app_id, "user_id": self.subject.user_id}
        children = [each for each in self.tables if each.owner is Owner.NOTIFICATION]
        while found := await self.engine.fetch_in_background(FIND_NOTIFICATIONS, **owner):
            ids = sorted(notification_id for notification_id, _ in found)
            events = sorted({event_id for _, event_id in found})
            app_id = self.erasure.app_id
            steps = {
                each.name: user_rows.delete_owned(each).many([(one,) for one in ids])
                for each in children
            }
            steps["messages"] = ERASE_MESSAGES.many(
                [ERASE_MESSAGES.bind(notification_id=one, app_id=app_id) for one in ids]
            )
            steps["events"] = CLEAR_ERROR.many(
                [CLEAR_ERROR.bind(app_id=app_id, id=one) for one in events]
            )
            delete = user_rows.delete(table)
            steps[table.name] = delete.many([delete.bind(**owner, id=one) for one in ids])
            await self._write(steps)

    async def _erase_from_events(self, table: Table[Any]) -> None:
        user_id, fetch = self.subject.user_id, self.engine.fetch_in_background
        async for page in naming_events.scan(fetch, self.erasure.app_id, user_id):
            for found in page:
                redact = naming_events.redact_notifications(self.engine, found.event, user_id)
                async for steps in redact:
                    await self._write({}, steps)
                await self._write({table.name: naming_events.erase(found, user_id)})

    async def _write(self, steps: Mapping[str, Step], changes: Sequence[Step] = ()) -> int:
        """Commit a chunk; return how many rows were removed, by the steps of a table."""
        began = self.clock.monotonic()
        whole = (self._progress(), *steps.values(), *changes)
        done = await self.engine.write(Unit(self.subject.user_id, whole, self.erasure.app_id))
        if done is None:
            raise Stopped
        removed = 0
        for table, rows in zip(steps, done[1 : 1 + len(steps)], strict=True):
            if table and rows:
                self.counts[table] += len(rows)
                removed += len(rows)
        await asyncio.sleep(min((self.clock.monotonic() - began) / 1000, LONGEST_PAUSE_S))
        return removed

    def _progress(self) -> Step:
        return PROGRESS.guard(
            app_id=self.erasure.app_id,
            id=self.erasure.id,
            user_id=self.subject.user_id,
            counts=encode_counts(self.counts),
            due_at=self.clock.now() + LEASE_MS,
        )


def bind_delete(table: Table[Any], values: Mapping[str, Value], key: Row) -> Row:
    """Return the values with which a row that was found is deleted."""
    delete = user_rows.delete(table)
    given = {name: values[name] for name in delete.names if name in values}
    return delete.bind(**given | dict(zip(table.key, key, strict=True)))


def encode_counts(counts: Mapping[str, int]) -> str:
    return msgspec.json.encode(dict(sorted(counts.items()))).decode()


async def extend_subject(engine: Engine, app_id: str, subject: Subject) -> Subject:
    """Return the subject with the devices that are stored now: those before may be erased."""
    found = await find_devices(engine, app_id, subject.user_id)
    new = [each for each in found if each not in subject.devices]
    return Subject(subject.user_id, (*subject.devices, *new))
