"""The writer process: batches come in over a socket, reports go back.

Why a process: SQLite's commit must run beside the event loop, and a Python thread cannot. It
needs the interpreter lock back after every call into SQLite, and an event loop under load gives
the lock up so briefly that the thread wakes too late to take it: waits of tens to hundreds of
milliseconds, at any switch interval (`python -m bench.interpreter_lock` shows it). A process
of its own shares no lock.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys

import apsw
import msgspec

from clarion.store.batch import Group, Report
from clarion.store.sqlite.runner import SqliteRunner, open_connection

HEADER_BYTES = 4


class Trouble(msgspec.Struct, array_like=True, tag=True):
    """The batch failed as a whole: `full`, `unavailable` or `broken`, and the kind of error."""

    kind: str
    message: str


class Finished(msgspec.Struct, array_like=True, tag=True):
    """The batch is committed."""

    report: Report


class Opened(msgspec.Struct, array_like=True, tag=True):
    """The database is open."""


Answer = Trouble | Finished | Opened


def classify(error: apsw.Error) -> Trouble:
    """Say what an error of the database means for the callers."""
    if isinstance(error, apsw.FullError):
        kind = "full"
    elif isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.NoMemError)):
        kind = "unavailable"
    elif getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        # A full disk again, now for the WAL's index, which is never synced and harms nothing. But
        # the WAL has the batch already, and a crash would bring it in: its fate is unknown.
        kind = "unavailable"
    else:
        # After a failed fsync nobody knows what is on the disk: no more writes by this process.
        kind = "broken"
    return Trouble(kind, type(error).__name__)


def serve(channel: socket.socket, path: str) -> None:
    """Answer batches until the other side closes."""
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(list[Group]).decode
    try:
        connection = open_connection(path)
    except apsw.Error as error:
        _send(channel, encode(classify(error)))
        return
    runner = SqliteRunner(connection)
    _send(channel, encode(Opened()))
    while message := _receive(channel):
        _send(channel, encode(answer(runner, decode(message))))
    connection.close()


def answer(runner: SqliteRunner, groups: list[Group]) -> Answer:
    """Run one batch."""
    try:
        return Finished(runner.run(groups))
    except apsw.Error as error:
        return classify(error)


def _send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(len(message).to_bytes(HEADER_BYTES, "big") + message)


def _receive(channel: socket.socket) -> bytes:
    header = _receive_exactly(channel, HEADER_BYTES)
    return _receive_exactly(channel, int.from_bytes(header, "big")) if header else b""


def _receive_exactly(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:  # the server is gone; what was not read whole was never accepted
            return b""
        parts += part
    return bytes(parts)


if __name__ == "__main__":
    # Ctrl-C reaches the whole group; the server decides when its writer ends, by closing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A server that was killed does not read its answers any more: nothing to report, and to whom.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
