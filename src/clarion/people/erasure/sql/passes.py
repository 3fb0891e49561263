"""One pass of an erasure: everything about a user is removed, a chunk at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from clarion.clock import Clock
from clarion.events.sql.erasure import erase_from_events, erase_jobs
from clarion.events.tables import EVENTS, JOBS
from clarion.history.sql.erasure import erase_notifications
from clarion.history.tables import NOTIFICATIONS
from clarion.people.erasure.model import Erasure, Subject
from clarion.people.erasure.sql.devices import choose_devices, values_of
from clarion.push.sql.owned_devices import find_devices
from clarion.store.engine import Engine
from clarion.store.lifecycle import user_rows
from clarion.store.lifecycle.user_rows import CHUNK, ErasedUser, EraseUser
from clarion.store.statement import Row, Step, Unit, Value, statement
from clarion.store.table import Owner, Table

# What was found may be written to meanwhile, so a pass is repeated until it finds nothing.
ROUNDS = 20
# The chunks of an erasure leave at least half of the time to others.
LONGEST_PAUSE_S = 0.05
LEASE_MS = 60_000

# The guard of every chunk: a settling erasure ends when the user is created again. It also says
# how far the erasure is, and that a node works on it.
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


# Tables whose slice erases a user by code of its own.
OWN: Mapping[Table[Any], EraseUser] = {
    JOBS: erase_jobs,
    NOTIFICATIONS: erase_notifications,
    EVENTS: erase_from_events,
}


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
        if table in OWN:
            owner = ErasedUser(self.erasure.app_id, self.subject.user_id, self.clock.now())
            await OWN[table](self.engine, owner, self._write)
        elif table.owner is not Owner.NOTIFICATION:  # those go with the notifications
            await self._erase_rows(table)

    async def _erase_rows(self, table: Table[Any]) -> None:
        """Erase the found rows, of several devices in one commit if there are few."""
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

    async def _write(
        self,
        steps: Mapping[str, Step],
        changes: Sequence[Step] = (),
        within: Mapping[str, int] = MappingProxyType({}),
    ) -> int:
        """Commit a chunk; return how many rows were removed, by the steps of a table."""
        began = self.clock.monotonic()
        whole = (self._progress(), *steps.values(), *changes)
        # After what its batch writes about the user: that is removed, too.
        unit = Unit(self.subject.user_id, whole, self.erasure.app_id, is_last=True)
        done = await self.engine.write(unit)
        if done is None:
            raise Stopped
        removed = 0
        for table, rows in zip(steps, done[1 : 1 + len(steps)], strict=True):
            if table and rows:
                self.counts[table] += len(rows)
                removed += len(rows)
        self.counts.update({name: count for name, count in within.items() if count})
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
