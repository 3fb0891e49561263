"""Erasures in SQL: the tombstone first, then everything about the user, then the receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from clarion.access.port import Vault
from clarion.clock import Clock
from clarion.pages import Page, cut_page
from clarion.people.erasure.model import (
    Erasure,
    ErasureCause,
    ErasureStatus,
    Subject,
    subject_context,
)
from clarion.people.erasure.sql.exports import is_named
from clarion.people.erasure.sql.passes import (
    SET_SUBJECT,
    ErasurePass,
    Stopped,
    encode_counts,
    extend_subject,
)
from clarion.people.erasure.sql.user_hashes import UserHashes
from clarion.people.tables import ERASURES
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.statement import Row, Statement, Step, Unit, statement
from clarion.store.table import Table

_SELECT = f"SELECT {ERASURES.columns} FROM erasures"
_OPEN = "status IN ('running', 'settling')"
_OF_ERASURE = "app_id = :app_id AND id = :id"

ADD = statement("add_erasure", ERASURES.insert)
DELETE_USER = statement(
    "erase_user", "DELETE FROM users WHERE app_id = :app_id AND id = :user_id RETURNING id"
)
SETTLE = statement(
    "settle_erasure",
    f"""UPDATE erasures SET status = 'settling', counts = :counts, due_at = :due_at,
    completed_at = COALESCE(completed_at, :now) WHERE {_OF_ERASURE} AND status = 'running'""",
)
FINISH = statement(
    "finish_erasure",
    f"""UPDATE erasures SET status = 'done', subject = NULL, counts = :counts
    WHERE {_OF_ERASURE} AND status = 'settling'""",
)
CLAIM = statement(
    "claim_erasure",
    f"""UPDATE erasures SET due_at = :until WHERE {_OF_ERASURE} AND due_at = :due_at
    AND {_OPEN} RETURNING id""",
)
RELEASE = statement(
    "release_erasure", f"UPDATE erasures SET due_at = :now WHERE {_OF_ERASURE} AND {_OPEN}"
)
_NEVER = 1 << 62
SELECT_DUE = statement(
    "select_due_erasures",
    f"""{_SELECT} WHERE {_OPEN} AND due_at > :since AND due_at <= :until
    ORDER BY due_at LIMIT :limit""",
)
SELECT_OPEN = statement(
    "select_open_erasures", f"{_SELECT} WHERE {_OPEN} AND due_at > 0 ORDER BY due_at LIMIT :limit"
)
FIND = statement(
    "find_erasures_of_user",
    f"""{_SELECT} WHERE app_id = :app_id AND user_hash = :user_hash
    ORDER BY id DESC LIMIT 1""",
)
FIND_TOMBSTONE = statement(
    "find_tombstone",
    """SELECT id FROM erasures WHERE app_id = :app_id AND user_hash = :user_hash
    AND NOT EXISTS (SELECT 1 FROM users WHERE users.app_id = :app_id AND users.id = :user_id)
    LIMIT 1""",
)
SELECT_RUNNING = statement(
    "select_running_erasures",
    f"""SELECT user_hash FROM erasures WHERE {_OPEN} AND due_at > 0 AND status = 'running'
    AND app_id = :app_id""",
)
GET = statement("get_erasure", f"{_SELECT} WHERE {_OF_ERASURE}")
LIST = statement(
    "list_erasures",
    f"{_SELECT} WHERE app_id = :app_id AND id < :before ORDER BY id DESC LIMIT :limit",
)
_NEWEST = "\uffff"


class Erasures:
    """Removes everything about a user, in chunks, and keeps a tombstone.

    A cursor is the id of the last erasure of its page.
    """

    def __init__(
        self, engine: Engine, vault: Vault, clock: Clock, tables: Sequence[Table[Any]]
    ) -> None:
        self._engine = engine
        self._vault = vault
        self._clock = clock
        self._tables = tables
        self._hashes = UserHashes(engine, vault)

    async def begin(
        self, app_id: str, user_id: str, cause: ErasureCause, *, now: int, until: int
    ) -> Erasure | None:
        """Store a tombstone, delete the user's record, and return the erasure, to be run.

        The caller works on it until a time; then any node may. If the user is being erased already,
        that erasure is returned; if nothing is known of the user, the receipt of the last one, or
        None if they were never erased.
        """
        user_hash = await self._hashes.make(app_id, user_id, now)
        last = await self._find(FIND, app_id=app_id, user_hash=user_hash)
        if last is not None and last.status is ErasureStatus.RUNNING:
            return last
        if not await is_named(self._engine, self._tables, app_id, user_id):
            return last
        erasure_id = self._clock.new_id()
        erasure = Erasure(
            app_id=app_id,
            id=erasure_id,
            user_hash=user_hash,
            subject=self._seal(app_id, erasure_id, Subject(user_id)),
            cause=cause,
            status=ErasureStatus.RUNNING,
            counts={},
            due_at=until,
            requested_at=now,
        )
        add = ADD.many([ERASURES.bind(erasure)])
        done = await self._write(erasure, add, DELETE_USER.step(app_id=app_id, user_id=user_id))
        return replace(erasure, counts={"users": 1} if done and done[1] else {})

    async def run(self, erasure: Erasure) -> Erasure | None:
        """Remove everything, and return the erasure with its counts; None if it must not continue.

        It must not continue if another node has finished it, or if it is settling and the user was
        created again. It can be interrupted at any time and run again.
        """
        subject = self._open(erasure)
        if subject is None:
            return None
        extended = await extend_subject(self._engine, erasure.app_id, subject)
        if extended != subject:
            # Stored before they are erased: a second pass must find messages sent to them late.
            sealed = self._seal(erasure.app_id, erasure.id, extended)
            of_erasure = {"app_id": erasure.app_id, "id": erasure.id}
            await self._write(erasure, SET_SUBJECT.step(**of_erasure, subject=sealed))
        one = ErasurePass(
            engine=self._engine,
            tables=self._tables,
            erasure=erasure,
            subject=extended,
            clock=self._clock,
            counts=Counter(erasure.counts),
        )
        try:
            await one.run()
        except Stopped:
            return None
        return replace(erasure, counts=dict(sorted(one.counts.items())))

    async def settle(self, erasure: Erasure, *, now: int, due_at: int) -> Erasure:
        """Record that everything is removed; the second pass runs at `due_at`."""
        step = SETTLE.step(
            app_id=erasure.app_id,
            id=erasure.id,
            counts=encode_counts(erasure.counts),
            due_at=due_at,
            now=now,
        )
        await self._write(erasure, step)
        return replace(
            erasure, status=ErasureStatus.SETTLING, completed_at=erasure.completed_at or now
        )

    async def finish(self, erasure: Erasure) -> None:
        """Remove the data an erasure needed to find the user; tombstone and receipt stay."""
        step = FINISH.step(
            app_id=erasure.app_id, id=erasure.id, counts=encode_counts(erasure.counts)
        )
        await self._write(erasure, step)

    async def claim_due(self, now: int, until: int, latest: int, limit: int) -> tuple[Erasure, ...]:
        """Claim erasures that nobody works on, until a time.

        No erasure is planned for later than `latest`; one that seems to be shows that the clock was
        set back.
        """
        rows: list[Row] = []
        for since, to in ((-1, now), (latest, _NEVER)):
            rows += await self._engine.fetch(SELECT_DUE, since=since, until=to, limit=limit)
        claimed = []
        for each in map(ERASURES.read, rows):
            step = CLAIM.guard(app_id=each.app_id, id=each.id, due_at=each.due_at, until=until)
            if await self._write(each, step) is not None:
                claimed.append(replace(each, due_at=until))
        return tuple(claimed)

    async def release(self, erasure: Erasure, now: int) -> None:
        """Let any node continue with an erasure at once."""
        await self._write(erasure, RELEASE.step(app_id=erasure.app_id, id=erasure.id, now=now))

    async def list_open(self, limit: int) -> tuple[tuple[str, str, str], ...]:
        """Return the erasures that are not done: each as its id, app and user id."""
        rows = await self._engine.fetch(SELECT_OPEN, limit=limit)
        found = [(each, self._open(each)) for each in map(ERASURES.read, rows)]
        return tuple((each.id, each.app_id, one.user_id) for each, one in found if one is not None)

    async def is_erased(self, app_id: str, user_id: str) -> bool:
        """Return whether there is a tombstone of this user, and no user was created since."""
        user_hash = await self._hashes.find(app_id, user_id)
        if user_hash is None:
            return False
        found = await self._engine.fetch(
            FIND_TOMBSTONE, app_id=app_id, user_hash=user_hash, user_id=user_id
        )
        return bool(found)

    async def find_running(self, app_id: str, user_ids: Collection[str]) -> frozenset[str]:
        """Return those of the users who are being erased at this moment."""
        running = {bytes(row[0]) for row in await self._engine.fetch(SELECT_RUNNING, app_id=app_id)}
        if not running:
            return frozenset()
        hashes = {each: await self._hashes.find(app_id, each) for each in user_ids}
        return frozenset(each for each, user_hash in hashes.items() if user_hash in running)

    async def get(self, app_id: str, erasure_id: str) -> Erasure | None:
        return await self._find(GET, app_id=app_id, id=erasure_id)

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[Erasure]:
        """Return the erasures of an app, newest first."""
        rows = await self._engine.fetch(
            LIST, app_id=app_id, before=after or _NEWEST, limit=limit + 1
        )
        return cut_page([*map(ERASURES.read, rows)], limit, lambda each: each.id)

    async def _find(self, query: Statement, **values: str | bytes) -> Erasure | None:
        return ERASURES.first(await self._engine.fetch(query, **values))

    async def _write(self, erasure: Erasure, *steps: Step) -> Rows | None:
        return await self._engine.write(Unit(erasure.id, steps, erasure.app_id))

    def _seal(self, app_id: str, erasure_id: str, subject: Subject) -> bytes:
        return self._vault.seal(
            msgspec.msgpack.encode(subject), subject_context(app_id, erasure_id)
        )

    def _open(self, erasure: Erasure) -> Subject | None:
        if erasure.subject is None:
            return None
        opened = self._vault.open(
            bytes(erasure.subject), subject_context(erasure.app_id, erasure.id)
        )
        return msgspec.msgpack.decode(opened, type=Subject)
