"""Look-ups that wait at the same time share a read: a thousand clients at once ask a few times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
KEYS_LIMIT = 100
# After each read, so that concurrent callers share few reads, however fast the database is.
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
        # A future for each who asks: one that leaves cancels its own.
        self._waiting: dict[K, list[asyncio.Future[V | None]]] = {}
        self._reading: asyncio.Future[None] | None = None

    async def find(self, key: K) -> V | None:
        """Return what there is for a key, or None; raises what the read raises."""
        found: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(found)
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_waiting())
        return await found

    async def _read_waiting(self) -> None:
        try:
            while self._waiting:
                keys = list(islice(self._waiting, self._limit))
                await self._answer({key: self._waiting.pop(key) for key in keys})
                if len(self._waiting) < self._limit:
                    await asyncio.sleep(self._pause_s)
        finally:
            self._reading = None

    async def _answer(self, waiting: Mapping[K, list[asyncio.Future[V | None]]]) -> None:
        try:
            found = await self._read(list(waiting))
        except BaseException as error:
            for future in _open(chain.from_iterable(waiting.values())):
                future.set_exception(error)
                future.exception()  # the caller may be cancelled before it is raised there
            if not isinstance(error, Exception):
                raise
        else:
            for key, futures in waiting.items():
                value = found.get(key)
                for future in _open(futures):
                    future.set_result(value)


def _open(futures: Iterable[asyncio.Future[T]]) -> Iterator[asyncio.Future[T]]:
    """Return the futures of callers who still wait."""
    return (future for future in futures if not future.done())
