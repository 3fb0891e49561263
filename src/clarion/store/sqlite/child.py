"""The writer process: receives batches over a socket and sends reports.

Why a process: a commit of SQLite must not block the event loop, and in a Python thread it does.
The thread needs the interpreter lock after every call into SQLite, and an event loop under load
releases it so briefly that the thread wakes too late to take it: it waits tens to hundreds of
milliseconds, at any switch interval (`python -m bench.interpreter_lock` shows it). Another process
shares no lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import apsw
import msgspec

from clarion.store.batch import Group, Report
from clarion.store.sqlite.checkpoints import Checkpoints
from clarion.store.sqlite.runner import BUSY_MS, SqliteRunner, open_connection
from clarion.store.sqlite.unused_space import UnusedSpace
from clarion.system.child_process import receive, send


class Trouble(msgspec.Struct, array_like=True, tag=True):
    """The whole batch failed: `full`, `unavailable` or `broken`, and the name of the error."""

    kind: str
    message: str


class Finished(msgspec.Struct, array_like=True, tag=True):
    """The batch is committed."""

    report: Report


class Opened(msgspec.Struct, array_like=True, tag=True):
    """The database is open."""


class Scrubbed(msgspec.Struct, array_like=True, tag=True):
    """The log was emptied, and pages of the file were cleared; `next_page` is None at the end."""

    next_page: int | None


class Busy(msgspec.Struct, array_like=True, tag=True):
    """Somebody reads from the log: it cannot be emptied now."""


# The number of the first answer; the questions count from there.
OPENED = 0
Answer = Trouble | Finished | Opened | Scrubbed | Busy
# How long the writer waits for readers of the log; everybody waits for the writer meanwhile.
_TRUNCATE_MS = 20
# Cleared at once: 20 MiB are read in 10 to 20 ms.
_PAGES = 5_000


def classify(error: apsw.Error) -> Trouble:
    """Return the meaning of a database error for the callers."""
    if isinstance(error, apsw.FullError):
        kind = "full"
    elif isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.NoMemError)):
        kind = "unavailable"
    elif getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        # The disk is full for the index of the WAL, which does no harm. But the WAL contains the
        # batch already, and a crash would recover it: its outcome is unknown.
        kind = "unavailable"
    else:
        # After a failed fsync it is unknown what is on the disk: this process must not write again.
        kind = "broken"
    return Trouble(kind, type(error).__name__)


def serve(channel: socket.socket) -> None:
    """Open the database that the first message names; run batches until the socket is closed.

    If the server was killed, its remaining requests are not started: another server may be running.
    """
    server = os.getppid()
    path = receive(channel).decode()
    if not path:
        return
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(tuple[int, list[Group] | int]).decode
    try:
        connection = open_connection(path)
        checkpoints = Checkpoints(connection, open_connection(path))
    except apsw.Error as error:
        send(channel, encode((OPENED, classify(error))))
        return
    runner, unused = SqliteRunner(connection), UnusedSpace(path)
    send(channel, encode((OPENED, Opened())))
    while (message := receive(channel)) and os.getppid() == server:
        # An answer has the number of its question: one that is taken for another must be noticed.
        number, asked = decode(message)
        if isinstance(asked, list):
            send(channel, encode((number, answer(runner, asked))))
            checkpoints.shorten()
        else:
            with checkpoints.turn:
                done = scrub(connection, path, unused, asked)
            send(channel, encode((number, done)))
    checkpoints.close()
    connection.close()


def answer(runner: SqliteRunner, groups: list[Group]) -> Answer:
    try:
        return Finished(runner.run(groups))
    except apsw.Error as error:
        return classify(error)


def scrub(connection: apsw.Connection, path: str, unused: UnusedSpace, first_page: int) -> Answer:
    """Empty the write-ahead log, and clear the unused space of some pages of the file."""
    try:
        if not _truncate_log(connection):
            return Busy()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if Path(f"{path}-wal").stat().st_size:  # another process has written since
                return Busy()
            next_page, is_changed = unused.clear(first_page, _PAGES)
        finally:
            connection.execute("ROLLBACK")
        if is_changed:
            # Otherwise the cached pages would be written again as they were.
            connection.execute("PRAGMA shrink_memory").fetchall()
    except apsw.BusyError:
        return Busy()
    except apsw.Error as error:
        return classify(error)
    except OSError as error:
        return Trouble("broken", type(error).__name__)
    return Scrubbed(next_page)


def _truncate_log(connection: apsw.Connection) -> bool:
    connection.set_busy_timeout(_TRUNCATE_MS)
    try:
        ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.set_busy_timeout(BUSY_MS)
    return not is_busy


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; the server ends its writer by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A server that was killed does not read the answers.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(sys.argv[1])))
