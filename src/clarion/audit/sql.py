"""The audit log in SQL: entries join the unit of the change, and are linked a moment later."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextvars import Token
from dataclasses import replace
from types import TracebackType
from typing import Self

from clarion.access.port import Vault
from clarion.audit.chain import (
    ChainKeys,
    Key,
    content_of,
    make_link,
    retired_key_context,
    sign_pruned,
)
from clarion.audit.counted import SUMMARY, CountedActs, summarise
from clarion.audit.model import (
    TEXT_LENGTH,
    Act,
    ActorKind,
    AuditResult,
    ChainState,
    ChainVerification,
    Entry,
    Filter,
)
from clarion.audit.tables import CHAIN, ENTRIES
from clarion.audit.verification import verify_newest
from clarion.clock import Clock
from clarion.pages import LARGEST, Page, cut_page, read_cursor, write_cursor
from clarion.store.companions import Companion, companion
from clarion.store.engine import Engine, Fetch
from clarion.store.statement import Row, Statement, Step, Unit, Value, statement

LINKED_AT_ONCE = 500
# Pages of waiting entries that are read for one batch: those that are not ours stay.
_PAGES = 20
# Each failure means that another node has linked something.
_ATTEMPTS = 10
_CHAIN = "audit"
_AFTER_ALL_IDS = "~"

INSERT = statement("insert_audit_entry", ENTRIES.insert)
SELECT_WAITING = statement(
    "select_waiting_audit_entries",
    f"""SELECT {ENTRIES.columns} FROM audit_entries WHERE sequence IS NULL AND id > :after
    ORDER BY id LIMIT :limit""",
)
SELECT_CHAIN = statement(
    "select_audit_entries",
    f"""SELECT {ENTRIES.columns} FROM audit_entries WHERE sequence > :after
    ORDER BY sequence LIMIT :limit""",
)
SELECT_STATE = statement(
    "select_audit_chain", f"SELECT {CHAIN.columns} FROM audit_chain WHERE id = :id"
)
# Of several nodes that link at once, one succeeds.
MOVE_END = statement(
    "move_end_of_audit_chain",
    """INSERT INTO audit_chain (id, sequence, link, pruned_sequence, pruned_link, pruned_signature)
    VALUES (:id, :sequence, :link, 0, '', '')
    ON CONFLICT (id) DO UPDATE SET sequence = excluded.sequence, link = excluded.link
    WHERE audit_chain.sequence = :after AND audit_chain.link = :before
    RETURNING sequence""",
)
LINK = statement(
    "link_audit_entry",
    """UPDATE audit_entries SET sequence = :sequence, link = :link
    WHERE id = :id AND sequence IS NULL""",
)
MOVE_BEGINNING = statement(
    "move_beginning_of_audit_chain",
    """UPDATE audit_chain SET pruned_sequence = :sequence, pruned_link = :link,
    pruned_signature = :signature WHERE id = :id AND pruned_sequence = :after
    RETURNING pruned_sequence""",
)
PRUNE = statement(
    "prune_audit_entries",
    "DELETE FROM audit_entries WHERE sequence > :after AND sequence <= :sequence",
)
SELECT_KEYS = statement("select_audit_keys", "SELECT id, sealed_key FROM audit_keys ORDER BY id")
INSERT_KEY = statement(
    "insert_audit_key",
    """INSERT INTO audit_keys (id, sealed_key, created_at) VALUES (:id, :sealed_key, :now)
    ON CONFLICT (id) DO NOTHING""",
)

# What entries can be found by; each combination has a statement of its own, which uses an index.
_CONDITIONS = {
    "app_id": "app_id = :app_id",
    "action": "action = :action",
    "actor_id": "actor_id = :actor_id",
    "subject": "subject = :subject",
}


def _list_statement(*names: str) -> Statement:
    conditions = " AND ".join(["sequence IS NOT NULL", *(_CONDITIONS[name] for name in names)])
    return statement(
        "_".join(("list_audit_entries_by", *names)),
        f"""SELECT {ENTRIES.columns} FROM audit_entries
        WHERE {conditions} AND created_at >= :since AND (created_at, id) < (:before, :before_id)
        ORDER BY created_at DESC, id DESC LIMIT :limit""",
    )


LISTS = {
    names: _list_statement(*names)
    for count in range(len(_CONDITIONS) + 1)
    for names in itertools.combinations(_CONDITIONS, count)
    # A pseudonym is that of a user of one app.
    if "subject" not in names or "app_id" in names
}


class Recording:
    """The record of one act, while it is being done.

    As a context: the first unit that its task writes stores the entry too, so that both are durable
    or neither is. Other tasks of the process do not take part.
    """

    def __init__(self, log: AuditLog, find_act: Callable[[], Act | None]) -> None:
        self._log = log
        self._find_act = find_act
        self._act: Act | None = None
        self._described: dict[str, str] = {}
        self._app_id: str | None = None
        self._user_id: str | None = None
        self.actor: tuple[ActorKind, str] | None = None
        self.is_written = False  # whether the entry is stored
        self._is_under_way = self._is_over = False
        self._token: Token[Companion | None] | None = None

    def __enter__(self) -> Self:
        self._token = companion.set(self)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        # What the task has started may write later, but not this entry.
        self._is_over = True
        if self._token is not None:
            companion.reset(self._token)

    def describe(self, app_id: str | None, user_id: str | None, target: dict[str, str]) -> None:
        """Add what the act is about."""
        self._app_id = self._app_id if app_id is None else app_id
        self._user_id = self._user_id if user_id is None else user_id
        self._described |= target

    def take(self) -> Step | None:
        if self._is_under_way or self.is_written or self._is_over:
            return None
        act = self._find()
        if act is None:
            return None
        self._is_under_way = True
        return self._log.make_step(act, AuditResult.DONE)

    def settle(self, *, is_written: bool) -> None:
        self._is_under_way = False
        self.is_written = is_written
        if is_written:
            self._log.on_written()

    async def finish(self, result: AuditResult, reason: str | None = None) -> None:
        """Store an entry of its own, unless one with this result is stored already.

        If nothing was written, `done` becomes `unchanged`.
        """
        self._is_over = True
        act = self._find()
        if act is None or (self.is_written and result in (AuditResult.DONE, AuditResult.UNCHANGED)):
            return
        if result is AuditResult.DONE:
            result = AuditResult.UNCHANGED
        await self._log.write(act, result, reason)

    def count(self, result: AuditResult) -> None:
        """Count the act with others like it, in one entry for the minute: there are too many."""
        self._is_over = True
        act = self._find()
        if act is not None:
            self._log.count(act, result)

    def _find(self) -> Act | None:
        if self._act is None:
            self._act = self._find_act()
        act = self._act
        if act is None:
            return None
        kind, actor_id = self.actor or (act.actor_kind, act.actor_id)
        return replace(
            act,
            actor_kind=kind,
            actor_id=actor_id,
            app_id=act.app_id if self._app_id is None else self._app_id,
            user_id=act.user_id if self._user_id is None else self._user_id,
            target=act.target | self._described,
        )


class AuditLog:
    """The entries of all apps and of the installation, in one chain.

    A cursor is the time and id of the last entry.
    """

    def __init__(self, engine: Engine, keys: ChainKeys, clock: Clock, node: str) -> None:
        self._engine = engine
        self.chain = Chain(engine.fetch)
        self.keys = keys
        self._clock = clock
        self._node = node
        self._counted = CountedActs()
        # Called when an entry waits to be linked.
        self.on_written: Callable[[], None] = lambda: None

    def record(self, find_act: Callable[[], Act | None]) -> Recording:
        """Begin to record an act. `find_act` is called when it is known; None: not recorded."""
        return Recording(self, find_act)

    def describe(
        self, *, app_id: str | None = None, user_id: str | None = None, **target: str
    ) -> None:
        """Add ids to the act of this task that are not known when it begins.

        Call it before the first write, and never with a secret or a text from a caller. Does
        nothing if the task records no act.
        """
        recording = companion.get()
        if isinstance(recording, Recording):
            recording.describe(app_id, user_id, target)

    def identify(self, kind: ActorKind, actor_id: str) -> None:
        """Name the actor, if it is known only now: at a sign-in."""
        recording = companion.get()
        if isinstance(recording, Recording):
            recording.actor = (kind, actor_id)

    def make_step(self, act: Act, result: AuditResult, reason: str | None = None) -> Step:
        """Return the step that stores the entry of an act."""
        return INSERT.step(**ENTRIES.values(self._make_entry(act, result, reason)))

    async def write(self, act: Act, result: AuditResult, reason: str | None = None) -> None:
        """Store the entry of an act in a unit of its own."""
        step = self.make_step(act, result, reason)
        await self._engine.write(Unit(act.app_id, (step,), act.app_id or None))
        self.on_written()

    def count(self, act: Act, result: AuditResult) -> None:
        """Count an act instead of storing an entry of its own."""
        self._counted.add(act, result, self._clock.now())

    async def record_counted(self, *, is_last: bool = False) -> None:
        """Store an entry for each kind of acts that were counted, of the minutes that are over.

        With `is_last`, also of this one. What cannot be stored is stored the next time.
        """
        until = LARGEST if is_last else self._clock.now()
        for kind, count in self._counted.take(until):
            try:
                await self.write(summarise(kind, count), kind.result, SUMMARY)
            except BaseException:  # also if it is cancelled: twice is better than hidden
                self._counted.put_back(kind, count)
                raise

    def _make_entry(self, act: Act, result: AuditResult, reason: str | None) -> Entry:
        is_user = act.actor_kind is ActorKind.USER
        name_user = self.keys.name_user
        entry = Entry(
            id=self._clock.new_id(),
            app_id=act.app_id,
            created_at=self._clock.now(),
            actor_kind=act.actor_kind,
            actor_id=name_user(act.app_id, act.actor_id) if is_user else _cut(act.actor_id),
            action=_cut(act.action),
            subject=None if act.user_id is None else name_user(act.app_id, act.user_id),
            target={name: _cut(value) for name, value in sorted(act.target.items())},
            result=result,
            reason=reason,
            address=act.address,
            request_id=act.request_id,
            node=self._node,
            signature="",
        )
        return replace(entry, signature=self.keys.sign(*content_of(entry)))

    async def list(self, wanted: Filter, *, after: str | None, limit: int) -> Page[Entry]:
        """Return entries, newest first. `InvalidFields` if `after` is not the `next` of a page."""
        before, before_id = read_cursor(after) if after else (LARGEST, _AFTER_ALL_IDS)
        if wanted.until is not None and wanted.until < before:
            before, before_id = wanted.until, ""
        rows = await self._fetch_list(
            wanted, since=wanted.since, before=before, before_id=before_id, limit=limit + 1
        )
        entries = [*map(ENTRIES.read, rows)]
        return cut_page(entries, limit, lambda each: write_cursor(each.created_at, each.id))

    async def _fetch_list(self, wanted: Filter, **bounds: Value) -> Sequence[Row]:
        given = {"app_id": wanted.app_id, "action": wanted.action, "actor_id": wanted.actor_id}
        values: dict[str, Value] = {name: each for name, each in given.items() if each is not None}
        if wanted.user_id is None:
            return await self._engine.fetch(LISTS[tuple(values)], **values, **bounds)
        # Few keys: one, and one for each time that the master key was replaced.
        found: tuple[Row, ...] = ()
        for subject in self.keys.list_names(wanted.app_id or "", wanted.user_id):
            chosen = LISTS[(*values, "subject")]
            found += (*await self._engine.fetch(chosen, **values, subject=subject, **bounds),)
        return sorted(found, key=_newest_first, reverse=True)

    async def verify_newest(self, count: int) -> ChainVerification:
        """Verify that the last entries of the chain are unchanged."""
        return await verify_newest(self.chain, self.keys, count)

    async def link_waiting(self) -> int:
        """Add waiting entries to the chain, at most a batch; return how many.

        Entries that Clarion did not sign are left out.
        """
        for _ in range(_ATTEMPTS):
            linked = await self._link_once()
            if linked is not None:
                return linked
        return 0

    async def _link_once(self) -> int | None:
        """Link a batch; None if another node was faster, which may not have read all of it."""
        if not await self.chain.read_waiting("", 1):
            return 0
        # Before the entries: if another node links them meanwhile, the end has moved.
        state = await self.chain.get_state()
        waiting = await self._find_ours()
        if not waiting:
            return 0
        sequence, link, rows = state.sequence, state.link, []
        for entry in waiting:
            sequence, link = sequence + 1, make_link(self.keys, sequence + 1, link, entry)
            rows.append(LINK.bind(sequence=sequence, link=link, id=entry.id))
        move = MOVE_END.guard(
            id=_CHAIN, sequence=sequence, link=link, after=state.sequence, before=state.link
        )
        done = await self._engine.write(Unit(_CHAIN, (move, LINK.many(rows))))
        return len(waiting) if done else None

    async def _find_ours(self) -> tuple[Entry, ...]:
        """Return the waiting entries that Clarion signed; `verify` reports the others."""
        found: tuple[Entry, ...] = ()
        last = ""
        for _ in range(_PAGES):
            page = await self.chain.read_waiting(last, LINKED_AT_ONCE)
            found += tuple(filter(self._is_ours, page))
            if len(page) < LINKED_AT_ONCE or len(found) >= LINKED_AT_ONCE:
                break
            last = page[-1].id
        return found[:LINKED_AT_ONCE]

    def _is_ours(self, entry: Entry) -> bool:
        return self.keys.verifies(entry.signature, *content_of(entry))

    async def prune(self, before: int, limit: int) -> int:
        """Delete at most `limit` of the entries from before a time, oldest first.

        The rest can still be verified. Returns how many were deleted.
        """
        state = await self.chain.get_state()
        oldest = await self.chain.read(state.pruned_sequence, limit)
        # One whose clock was ahead does not keep the others.
        old = [n for n, each in enumerate(oldest) if each.created_at < before]
        if not old:
            return 0
        last = oldest[old[-1]]
        after, sequence, link = state.pruned_sequence, last.sequence or 0, last.link or ""
        move = MOVE_BEGINNING.guard(
            id=_CHAIN,
            sequence=sequence,
            link=link,
            signature=sign_pruned(self.keys, sequence, link),
            after=after,
        )
        done = await self._engine.write(
            Unit(_CHAIN, (move, PRUNE.step(after=after, sequence=sequence)))
        )
        return old[-1] + 1 if done else 0


class Chain:
    """The stored chain, for verifying or copying."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def read(self, after: int, limit: int) -> tuple[Entry, ...]:
        """Return the entries of the chain after a number, in their order."""
        rows = await self._fetch(SELECT_CHAIN, after=after, limit=limit)
        return tuple(map(ENTRIES.read, rows))

    async def read_waiting(self, after: str, limit: int) -> tuple[Entry, ...]:
        """Return entries that are not in the chain yet, in the order of ids after an id."""
        rows = await self._fetch(SELECT_WAITING, after=after, limit=limit)
        return tuple(map(ENTRIES.read, rows))

    async def get_state(self) -> ChainState:
        """Return where the chain begins and ends."""
        rows = await self._fetch(SELECT_STATE, id=_CHAIN)
        return CHAIN.read(rows[0]) if rows else ChainState()


async def load_retired_keys(fetch: Fetch, keys: ChainKeys, vault: Vault) -> None:
    """Add the keys of the master keys that were replaced."""
    for key_id, sealed in await fetch(SELECT_KEYS):
        keys.add(key_id, vault.open(sealed, retired_key_context(key_id)))


def keep_retired_key(key: Key, vault: Vault, now: int) -> Step:
    """Return the step that keeps the key of a master key that is being replaced."""
    key_id, derived = key
    sealed = vault.seal(derived, retired_key_context(key_id))
    return INSERT_KEY.step(id=key_id, sealed_key=sealed, now=now)


def _cut(text: str) -> str:
    return text[:TEXT_LENGTH]


def _newest_first(row: Row) -> tuple[int, str]:
    entry = ENTRIES.read(row)
    return entry.created_at, entry.id
