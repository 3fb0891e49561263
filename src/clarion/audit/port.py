"""The ports of the audit log: what records, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from clarion.audit.model import Act, ActorKind, AuditResult, ChainState, Entry, Filter, Verified
from clarion.pages import Page


class Recording(Protocol):
    """The record of one act, while it is being done.

    As a context: the first unit that its task writes stores the entry too, so that both are durable
    or neither is. Other tasks of the process do not take part.
    """

    @property
    def is_written(self) -> bool:
        """Whether the entry is stored."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    async def finish(self, result: AuditResult, reason: str | None = None) -> None:
        """Store an entry of its own, unless one with this result is stored already.

        If nothing was written, `done` becomes `unchanged`.
        """

    def count(self, result: AuditResult) -> None:
        """Count the act with others like it, in one entry for the minute: there are too many."""


class AuditLog(Protocol):
    """The entries of all apps and of the installation, in one chain."""

    def record(self, find_act: Callable[[], Act | None]) -> Recording:
        """Begin to record an act. `find_act` is called when it is known; None: not recorded."""

    def describe(
        self, *, app_id: str | None = None, user_id: str | None = None, **target: str
    ) -> None:
        """Add to the act of this task what is not known when it begins: ids of what it is about.

        Call it before the first write; afterwards it is too late. Never with a secret, or with what
        somebody wrote. Nothing happens if the task records no act.
        """

    def identify(self, kind: ActorKind, actor_id: str) -> None:
        """Say who acts, if that is known only now: whoever signs in."""

    async def list(self, wanted: Filter, *, after: str | None, limit: int) -> Page[Entry]:
        """Return entries, newest first. `InvalidFields` if `after` is not the `next` of a page."""

    async def verify_newest(self, count: int) -> Verified:
        """Verify that the last entries of the chain are as they were written."""

    async def record_counted(self, *, is_last: bool = False) -> None:
        """Store an entry for each kind of acts that were counted, of the minutes that are over.

        With `is_last`, also of this one. What cannot be stored is stored the next time.
        """

    async def link_waiting(self) -> int:
        """Add what waits to the chain, at most a batch; return how much that was.

        Entries whose signature is not ours are left out.
        """

    async def prune(self, before: int, limit: int) -> int:
        """Delete the oldest entries up to the last one of before a time, at most `limit`.

        What is left can still be verified. Returns how many were deleted.
        """


class Chain(Protocol):
    """The chain as it is stored, for whoever verifies or copies it."""

    async def read(self, after: int, limit: int) -> tuple[Entry, ...]:
        """Return the entries of the chain after a number, in their order."""

    async def read_waiting(self, after: str, limit: int) -> tuple[Entry, ...]:
        """Return entries that are not in the chain yet, in the order of ids after an id."""

    async def get_state(self) -> ChainState:
        """Return where the chain begins and ends."""
