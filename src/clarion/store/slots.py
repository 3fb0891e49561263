"""Slots for long reads: a few at a time, one per app, with a limit for the wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import msgspec

from clarion.errors import Overloaded

# How long a read of housekeeping may take; no caller waits for it.
BACKGROUND_LIMIT_S = 30.0


class SlowReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a slow read may take, and how long it may wait for its slot.

    The wait is longer than the read, so that it outlasts one read of another app.
    """

    read_s: float = 10.0
    wait_s: float = 15.0


USUAL = SlowReadLimits()


class Slots:
    """Limits what runs at once, first come, first served; one at a time for each app."""

    def __init__(self, count: int, *, wait_s: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._wait_s = wait_s
        # One for each app that has a read running or waiting.
        self._apps: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, app_id: object) -> AsyncIterator[None]:
        """Wait for a slot; `Overloaded` if none is free in time."""
        # The app's own lock first, so that an app has one read at most among those that wait.
        own = self._apps.setdefault(app_id, asyncio.Lock())
        try:
            async with asyncio.timeout(self._wait_s):
                await own.acquire()
                try:
                    await self._free.acquire()
                except BaseException:
                    own.release()
                    raise
        except TimeoutError as error:
            raise Overloaded("Too many long reads are running; nothing was read.") from error
        try:
            yield
        finally:
            self._free.release()
            own.release()
