"""Look-ups that share a read."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from clarion.store.shared_reads import KEYS_LIMIT, SharedReads


class Squares:
    """A store whose reads end when they are let go."""

    def __init__(self) -> None:
        self.asked: list[Sequence[int]] = []
        self.may_end = asyncio.Event()
        self.began = asyncio.Event()

    async def read(self, keys: Sequence[int]) -> Mapping[int, int]:
        self.asked.append(keys)
        self.began.set()
        await self.may_end.wait()
        if 13 in keys:
            raise OSError("13 is broken")
        return {key: key * key for key in keys if key > 0}


async def test_those_that_wait_share_the_next_read() -> None:
    store = Squares()
    reads = SharedReads(store.read)
    first = asyncio.ensure_future(reads.find(2))
    await store.began.wait()
    others = [asyncio.ensure_future(reads.find(key)) for key in (3, 2, 3, -1)]
    await asyncio.sleep(0)
    store.may_end.set()
    assert await asyncio.gather(first, *others) == [4, 9, 4, 9, None]
    # The second one for 2 began after the first read: it is read again.
    assert store.asked == [[2], [3, 2, -1]]


async def test_a_read_has_a_limited_number_of_keys() -> None:
    store = Squares()
    store.may_end.set()
    reads = SharedReads(store.read)
    await asyncio.gather(*(reads.find(key) for key in range(1, 2 * KEYS_LIMIT + 2) if key != 13))
    assert [len(keys) for keys in store.asked] == [KEYS_LIMIT, KEYS_LIMIT]


async def test_an_error_reaches_all_of_its_read_and_no_other() -> None:
    store = Squares()
    store.may_end.set()
    reads = SharedReads(store.read)
    failed = await asyncio.gather(reads.find(13), reads.find(2), return_exceptions=True)
    assert [type(each) for each in failed] == [OSError, OSError]
    assert await reads.find(3) == 9


async def test_whoever_leaves_does_not_take_the_answer_from_others() -> None:
    store = Squares()
    reads = SharedReads(store.read)
    leaving, staying = (asyncio.ensure_future(reads.find(5)) for _ in range(2))
    await store.began.wait()
    leaving.cancel()
    store.may_end.set()
    assert await staying == 25
    with pytest.raises(asyncio.CancelledError):
        await leaving
