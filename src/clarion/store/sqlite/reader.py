"""Connections that read: one on the loop's own thread, others in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import apsw

from clarion.errors import ReadTooSlow, StoreUnavailable
from clarion.store.sqlite.runner import keep_plans
from clarion.store.statement import Row


def open_reader(path: str) -> apsw.Connection:
    """Open a connection for long reads: how each is best done depends on its values.

    All files are opened here and none later: the process may run out of descriptors.
    """
    reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    reader.set_busy_timeout(100)
    reader.execute("PRAGMA mmap_size=2147418112; PRAGMA temp_store=MEMORY").fetchall()
    reader.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()  # opens the WAL
    return reader


def open_quick_reader(path: str) -> apsw.Connection:
    """Open a connection for short reads."""
    reader = open_reader(path)
    keep_plans(reader)
    return reader


class ThreadReader:
    """A connection in a thread of its own, for one long read at a time."""

    def __init__(self, path: str, name: str, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._connection = open_reader(path)
        self._thread = ThreadPoolExecutor(1, name)
        self._is_closed = False

    async def fetch(self, text: str, row: Row) -> Sequence[Row]:
        """Return the rows; `ReadTooSlow` after the limit, else the error of the driver.

        No other read may be running.
        """
        if self._is_closed:
            raise StoreUnavailable
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(self._limit_s, self._connection.interrupt)
        running = loop.run_in_executor(self._thread, self._run, text, row)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._connection.interrupt()
            await asyncio.wait([running])  # the next read must find the connection free
            running.exception()  # asyncio would log one that nobody looks at
            raise
        except apsw.InterruptError as error:
            raise ReadTooSlow from error
        finally:
            alarm.cancel()

    def close(self) -> None:
        """End a read that is running, then close. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connection.interrupt()
        self._thread.shutdown(wait=True)
        self._connection.close()

    def _run(self, text: str, row: Row) -> Sequence[Row]:
        return self._connection.execute(text, row).fetchall()
