"""Runs batches on a SQLite connection, in any process or thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apsw

from clarion.store.batch import Group, Members, Report, Spoiled, split
from clarion.store.statement import Row

_BUSY_S = 5.0
BUSY_MS = int(_BUSY_S * 1000)
_RETRY_S = 0.01
# Errors of the database, not of one unit: the whole batch fails.
WHOLE_BATCH = (
    apsw.FullError,
    apsw.IOError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
)
# Errors of one unit: what SQLite refuses, and values that it cannot store.
OF_A_UNIT = (apsw.Error, OverflowError, TypeError, ValueError)


def open_connection(
    path: str, *, vfs: str | None = None, synchronous: str = "FULL"
) -> apsw.Connection:
    """Open a connection for writing, as durable as SQLite can be.

    `vfs` and `synchronous` are for the power-loss tests and their negative control only; no
    setting changes them.
    """
    connection = apsw.Connection(path, vfs=vfs)
    connection.set_busy_timeout(BUSY_MS)
    keep_plans(connection)
    _use_wal(connection)
    for pragma in (
        f"synchronous={synchronous}",
        "cache_size=-65536",
        "temp_store=MEMORY",
        "wal_autocheckpoint=4000",
        # What is deleted or replaced is overwritten: an erased text must not stay in the file.
        "secure_delete=ON",
        "journal_size_limit=67108864",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def keep_plans(connection: apsw.Connection) -> None:
    """Compile each statement once, for all values.

    Where there is a partial index, SQLite otherwise looks at the values to see whether it can be
    used, and compiles the statement again for each row: that takes longer than to run it.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _use_wal(connection: apsw.Connection) -> None:
    # Two processes that create the same database can deadlock here: each holds the lock that the
    # other waits for, so the busy timeout does not apply.
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return


class _Feed:
    """Gives rows to `executemany` one by one and knows whose row is being run."""

    def __init__(self, members: Members) -> None:
        self.unit = -1
        self.row = -1
        self._members = iter(members)
        self._rows: Iterator[Row] = iter(())

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> Row:
        while True:
            for values in self._rows:
                self.row += 1
                return values
            self.unit, rows = next(self._members)
            self._rows, self.row = iter(rows), -1

    def skip_unit(self) -> None:
        self._rows = iter(())


class _GuardFeed(_Feed):
    """Also counts the rows that a guard changed, which is cheaper than returning them."""

    def __init__(self, members: Members, count_changes: Callable[[], int]) -> None:
        super().__init__(members)
        self.changed: set[int] = set()
        self._count_changes = count_changes
        self._changes = count_changes()

    def __next__(self) -> Row:
        changes = self._count_changes()
        if changes != self._changes:
            self._changes = changes
            self.changed.add(self.unit)
        return super().__next__()


class SqliteRunner:
    """Runs each batch in one transaction; a unit that fails does not affect the others."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    def run(self, groups: Sequence[Group]) -> Report:
        with self._transaction():
            try:
                report = self._run_together(groups)
            except Spoiled:
                self._cursor.execute("ROLLBACK")
                self._cursor.execute("BEGIN IMMEDIATE")
                report = self._run_apart(groups)
        return report

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._cursor.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._cursor.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._cursor.execute("ROLLBACK")
            raise

    def _run_together(self, groups: Sequence[Group]) -> Report:
        report = Report()
        for group in groups:
            members = group.members
            if report.refused or report.failed:
                members = [member for member in members if not report.is_out(member[0])]
            self._run_group(group, members, report)
        return report

    def _run_group(self, group: Group, members: Members, report: Report) -> None:
        guard = _GuardFeed(members, self._connection.total_changes) if group.is_guard else None
        feed = guard or _Feed(members)
        while True:
            try:
                self._run_feed(group, feed, report)
                break
            except WHOLE_BATCH:
                raise
            except OF_A_UNIT as error:
                if group.position or feed.row > 0:
                    raise Spoiled from error
                report.failed[feed.unit] = describe(error)
                feed.skip_unit()
        if guard is not None:
            report.refuse_without_rows(group, members, guard.changed)

    def _run_feed(self, group: Group, feed: _Feed, report: Report) -> None:
        # executemany takes the next row only when the previous one is finished, so the feed always
        # knows whose rows are returned and which row failed.
        cursor = self._cursor.executemany(group.text, feed)
        if group.returns_rows:
            for row in cursor:
                steps = report.rows.setdefault(feed.unit, {})
                steps.setdefault(group.position, []).append(row)

    def _run_apart(self, groups: Sequence[Group]) -> Report:
        report = Report()
        for unit, steps in split(groups).items():
            self._run_alone(unit, steps, report)
        return report

    def _run_alone(self, unit: int, steps: Sequence[Group], report: Report) -> None:
        self._cursor.execute("SAVEPOINT unit")
        try:
            for step in steps:
                self._run_group(step, step.members, report)
                if report.is_out(unit):
                    break
        except Spoiled as spoiled:
            self._cursor.execute("ROLLBACK TO unit")
            report.undo(unit, spoiled, describe)
        self._cursor.execute("RELEASE unit")


def describe(error: BaseException) -> tuple[bool, str]:
    """Return whether a constraint refused it, and the name of the error without any values."""
    return isinstance(error, apsw.ConstraintError), type(error).__name__
