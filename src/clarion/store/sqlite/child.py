"""The writer process: receives batches over a socket and sends reports.

Why a process: SQLite's commit must run beside the event loop, and in a Python thread it cannot.
The thread needs the interpreter lock after every call into SQLite, and an event loop under load
releases it so briefly that the thread wakes too late to take it: it waits tens to hundreds of
milliseconds, at any switch interval (`python -m bench.interpreter_lock` shows it). Another process
shares no lock.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys

import apsw
import msgspec

from clarion.child_process import receive, send
from clarion.store.batch import Group, Report
from clarion.store.sqlite.runner import BUSY_MS, SqliteRunner, open_connection


class Trouble(msgspec.Struct, array_like=True, tag=True):
    """The whole batch failed: `full`, `unavailable` or `broken`, and the name of the error."""

    kind: str
    message: str


class Finished(msgspec.Struct, array_like=True, tag=True):
    """The batch is committed."""

    report: Report


class Opened(msgspec.Struct, array_like=True, tag=True):
    """The database is open."""


class Truncated(msgspec.Struct, array_like=True, tag=True):
    """Whether the write-ahead log is empty now."""

    is_done: bool


Answer = Trouble | Finished | Opened | Truncated
# How long the writer waits for readers of the log; everybody waits for the writer meanwhile.
_TRUNCATE_MS = 20


def classify(error: apsw.Error) -> Trouble:
    """Return what an error of the database means for the callers."""
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


def serve(channel: socket.socket, path: str) -> None:
    """Run batches until the other side closes the socket."""
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(list[Group] | None).decode
    try:
        connection = open_connection(path)
    except apsw.Error as error:
        send(channel, encode(classify(error)))
        return
    runner = SqliteRunner(connection)
    send(channel, encode(Opened()))
    while message := receive(channel):
        batch = decode(message)
        done = truncate_log(connection) if batch is None else answer(runner, batch)
        send(channel, encode(done))
    connection.close()


def answer(runner: SqliteRunner, groups: list[Group]) -> Answer:
    try:
        return Finished(runner.run(groups))
    except apsw.Error as error:
        return classify(error)


def truncate_log(connection: apsw.Connection) -> Answer:
    """Move the write-ahead log into the database, and empty its file."""
    connection.set_busy_timeout(_TRUNCATE_MS)
    try:
        ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except apsw.BusyError:
        return Truncated(is_done=False)
    except apsw.Error as error:
        return classify(error)
    finally:
        connection.set_busy_timeout(BUSY_MS)
    return Truncated(is_done=not is_busy)


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; the server ends its writer by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A server that was killed does not read the answers.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
