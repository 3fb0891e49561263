"""Checkpoints: a connection of their own moves the log into the database while others commit.

A checkpoint copies each page that the log has and flushes the file, which takes as long as many
commits. In a thread of its own it delays none: SQLite lets one connection append to the log while
another copies from it. Only one thing is left for the writer. The log can start from its beginning
again when all of it is copied, and under load the thread is always a few pages behind. So when the
log has grown long, the writer copies these few itself, between two commits.
"""

from __future__ import annotations

import contextlib
import threading

import apsw

# Pages that are committed before the thread copies them: 16 MiB.
COPIED_PAGES = 4_000
# At this length (48 MiB) the writer restarts the log. At twice this length it waits for the thread.
LONG_PAGES = 12_000


class Checkpoints:
    """The checkpoints of a writer; `own` is a connection that nothing else uses."""

    def __init__(
        self,
        writer: apsw.Connection,
        own: apsw.Connection,
        *,
        copied_pages: int = COPIED_PAGES,
        long_pages: int = LONG_PAGES,
    ) -> None:
        self._writer = writer
        self._own = own
        self._copied_pages = copied_pages
        self._long_pages = long_pages
        # The length of the log, and what it was when it was last copied and last shortened.
        self._pages = self._copied = self._shortened = 0
        self._is_closed = False
        self._due = threading.Event()
        # Held while a checkpoint runs: SQLite allows one at a time.
        self.turn = threading.Lock()
        # In place of the checkpoints that SQLite would run in the commit.
        writer.set_wal_hook(self._note)
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def _note(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Take the length of the log after a commit. Called by SQLite."""
        if pages < self._pages:  # it began again
            self._copied = self._shortened = 0
        self._pages = pages
        if pages - self._copied >= self._copied_pages:
            self._due.set()
        return apsw.SQLITE_OK

    def shorten(self) -> None:
        """Copy the rest of a log that has grown long, so that the next commit starts it again.

        If a read of the log is running, that is tried again after as many pages as the thread waits
        for.
        """
        if self._pages < max(self._long_pages, self._shortened + self._copied_pages):
            return
        if self.turn.acquire(blocking=self._pages >= 2 * self._long_pages):
            try:
                self._shortened = self._pages
                self._copy(self._writer)
            finally:
                self.turn.release()

    def close(self) -> None:
        """Wait for a running checkpoint, and close the connection."""
        self._is_closed = True
        self._due.set()
        self._thread.join()
        self._writer.set_wal_hook(None)
        self._own.close()

    def _run(self) -> None:
        while self._due.wait() and not self._is_closed:
            self._due.clear()
            with self.turn:
                self._copied = self._pages
                self._copy(self._own)

    def _copy(self, connection: apsw.Connection) -> None:
        # What was not copied is still in the log: the next checkpoint copies it, and a disk that
        # fails also fails the next commit.
        with contextlib.suppress(apsw.Error):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
