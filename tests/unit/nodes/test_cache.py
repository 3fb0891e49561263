"""What is cached is used for a while, is bounded, and is never older than a known change."""

import asyncio
from collections.abc import Callable

import pytest

from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from tests.recorded_bus import RecordedHub

LIFETIME_MS, DISCONNECTED_MS, LIMIT = 10, 4, 3
Cache = NodeCache[str, int | None]
# What may happen to a value while it is read, and whether it may be cached then.
CHANGES: list[tuple[Callable[[Cache], None], bool]] = [
    (lambda cache: cache.forget("a"), False),
    (lambda cache: cache.forget_all(), False),
    (lambda cache: cache.forget_where(lambda key, _: key == "b"), False),
    (lambda cache: cache.forget("b"), True),
    (lambda _cache: None, True),
]


@pytest.fixture
def cache() -> Cache:
    return NodeCache(LIFETIME_MS, LIMIT, disconnected_ms=DISCONNECTED_MS)


def put(cache: Cache, *keys: str, read_at: int = 5) -> None:
    for key in keys:
        assert cache.put(key, len(key), read_at, cache.changes.count)


@pytest.mark.parametrize(
    ("now", "is_found"), [(5, True), (14, True), (15, False), (4, False), (1_000, False)]
)
def test_a_value_is_used_from_its_read_until_its_end(
    cache: Cache, now: int, *, is_found: bool
) -> None:
    put(cache, "a")
    assert cache.get("a", now) == ((5, 1) if is_found else None)
    assert cache.peek("a") == 1


def test_that_nothing_was_found_is_a_value(cache: Cache) -> None:
    cache.put("a", None, 5, 0)
    assert (cache.get("a", 5), cache.get("b", 5), cache.peek("b")) == ((5, None), None, None)


def test_while_the_bus_is_disconnected_a_value_is_used_for_less_time(cache: Cache) -> None:
    bus = RecordedHub().join()
    cache.invalidation = Invalidation("test.entry", cache.forget, cache.forget_all)
    cache.invalidation.join(bus)
    put(cache, "a")
    bus.is_connected = False
    assert (cache.get("a", 8), cache.get("a", 9)) == ((5, 1), None)
    bus.is_connected = True
    assert cache.get("a", 9)


async def test_other_nodes_forget_what_one_has_changed() -> None:
    hub, caches = RecordedHub(), [Cache(LIFETIME_MS, LIMIT) for _ in range(2)]
    changed = [Invalidation("test.entry", each.forget, each.forget_all) for each in caches]
    for each, invalidation in zip(caches, changed, strict=True):
        put(each, "a", "b")
        invalidation.join(hub.join())
    changed[0]("a")
    for _ in range(3):
        await asyncio.sleep(0)
    assert [[each.peek("a"), each.peek("b")] for each in caches] == [[None, 1]] * 2


def test_a_full_cache_evicts_the_oldest(cache: Cache) -> None:
    put(cache, "a", "b", "c", "a", "d")
    assert [cache.peek(each) for each in "abcd"] == [1, None, 1, 1]
    assert len(cache) == LIMIT


def test_a_limit_can_be_one_of_sizes() -> None:
    cache = NodeCache[str, int](LIFETIME_MS, 10, size_of=lambda value: value)
    for key, size in ("a", 4), ("b", 3), ("a", 5), ("c", 2), ("d", 1):
        assert cache.put(key, size, 0, 0)
    assert [cache.peek(each) for each in "abcd"] == [5, None, 2, 1]
    cache.forget("a")
    cache.put("e", 7, 0, cache.changes.count)
    assert [cache.peek(each) for each in "cde"] == [2, 1, 7]
    # Larger than the limit: it has the cache for itself.
    cache.put("f", 11, 0, cache.changes.count)
    assert (len(cache), cache.peek("f")) == (1, 11)
    cache.forget_all()
    cache.put("g", 10, 0, cache.changes.count)
    cache.put("h", 0, 0, cache.changes.count)
    assert len(cache) == 2


def test_some_can_be_forgotten_by_key_and_value(cache: Cache) -> None:
    put(cache, "a", "bb", "cc")
    cache.forget_where(lambda key, value: value == len("bb") and key != "cc")
    assert [cache.peek(each) for each in ("a", "bb", "cc")] == [1, None, 2]


@pytest.mark.parametrize(("change", "is_cached"), CHANGES)
async def test_what_was_read_before_a_change_is_not_cached_after_it(
    cache: Cache, change: Callable[[Cache], None], *, is_cached: bool
) -> None:
    is_reading, may_return = asyncio.Event(), asyncio.Event()

    async def read(_key: str) -> int:
        is_reading.set()
        await may_return.wait()
        return 1

    reading = asyncio.create_task(cache.find("a", 0, read))
    await is_reading.wait()
    change(cache)
    may_return.set()
    assert await reading == 1
    assert cache.peek("a") == (1 if is_cached else None)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_slow_read_does_not_replace_what_was_read_after_the_change(
    cache: Cache, order: tuple[int, int]
) -> None:
    reads = [asyncio.get_running_loop().create_future() for _ in range(2)]
    begun = iter(reads)

    async def read(_key: str) -> int:
        found: int = await next(begun)
        return found

    before = asyncio.create_task(cache.find("a", 0, read))
    await asyncio.sleep(0)
    cache.forget("a")
    after = asyncio.create_task(cache.find("a", 0, read))
    await asyncio.sleep(0)
    for number in order:
        reads[number].set_result(number)
        await (before, after)[number]
    assert cache.peek("a") == 1


async def test_a_value_that_is_cached_is_not_read(cache: Cache) -> None:
    reads = []

    async def read(key: str) -> int:
        reads.append(key)
        return 1

    assert [await cache.find("a", now, read) for now in (0, 9, 10)] == [1, 1, 1]
    assert reads == ["a", "a"]


async def test_a_failed_read_is_not_cached(cache: Cache) -> None:
    async def fail(_key: str) -> int:
        raise OSError

    with pytest.raises(OSError, match=r"^$"):
        await cache.find("a", 0, fail)
    assert len(cache) == 0
