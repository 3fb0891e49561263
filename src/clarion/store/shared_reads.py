"""Look-ups that wait at the same time share a read: a thousand clients at once ask a few times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
KEYS_LIMIT = 100
# After each read, so that those who come together are few reads however fast the store is.
PAUSE_S = 0.02


class SharedReads(Generic[K, V]):
    """Looks up keys, many in one read.

    A look-up is never answered by a read that began before it. The first one does not wait.
    """

    def __init__(
        self,
        read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]],
        *,
        limit: int = KEYS_LIMIT,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`read` returns what there is for some keys, at most `limit`."""
        self._read = read
        self._limit = limit
        self._pause_s = pause_s
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._reading: asyncio.Future[None] | None = None

    async def find(self, key: K) -> V | None:
        """Return what there is for a key, or None; raises what the read raises."""
        found = self._waiting.get(key)
        if found is None:
            found = self._waiting[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_waiting())
        # Others may wait for the same key.
        return await asyncio.shield(found)

    async def _read_waiting(self) -> None:
        try:
            while self._waiting:
                keys = list(islice(self._waiting, self._limit))
                await self._answer({key: self._waiting.pop(key) for key in keys})
                if len(self._waiting) < self._limit:
                    await asyncio.sleep(self._pause_s)
        finally:
            self._reading = None

    async def _answer(self, waiting: Mapping[K, asyncio.Future[V | None]]) -> None:
        try:
            found = await self._read(list(waiting))
        except BaseException as error:
            for future in waiting.values():
                future.set_exception(error)
                future.exception()  # whoever waited may have left
            if not isinstance(error, Exception):
                raise
        else:
            for key, future in waiting.items():
                future.set_result(found.get(key))
