"""What waits for a commit: taken fairly, and refused when there is no space left."""

import asyncio
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import Overloaded
from clarion.store.fair_queue import (
    ACTIVE_BATCHES,
    LIGHT_BYTES,
    ROW_BYTES,
    SHARED_BYTES,
    FairQueue,
    size_of,
)
from clarion.store.statement import Unit, statement

INSERT = statement("insert", "INSERT INTO things (id, n, b) VALUES (:id, :n, :b)")
MANY = 1_000_000


@pytest.fixture
async def queue() -> FairQueue:
    return FairQueue(units_limit=12, bytes_limit=MANY)


def add(queue: FairQueue, owner: str | None, name: str = "", size: int = 1) -> None:
    future = asyncio.get_running_loop().create_future()
    queue.add(Unit(name, (), owner), size, future)


def add_until_refused(queue: FairQueue, owner: str | None, size: int = 1) -> int:
    """Return how many there was space for."""
    for count in range(MANY):
        try:
            add(queue, owner, size=size)
        except Overloaded:
            return count
    raise AssertionError


def take(queue: FairQueue, *, units: int = MANY, size: int = MANY) -> list[tuple[str, str]]:
    taken = queue.take(units=units, size=size)
    return [(unit.owner or "", unit.key) for unit, _, _ in taken]


def owners_of(taken: list[tuple[str, str]]) -> str:
    return "".join(owner for owner, _ in taken)


async def test_what_fits_is_taken_whole(queue: FairQueue) -> None:
    for owner in "aabca":
        add(queue, owner)
    assert sorted(owners_of(take(queue))) == list("aaabc")
    assert (queue.units, queue.bytes, take(queue)) == (0, 0, [])


async def test_owners_take_turns_and_each_in_its_own_order(queue: FairQueue) -> None:
    for name in "123":
        add(queue, "a", name)
    for name in "12":
        add(queue, "b", name)
    taken = take(queue, units=4)
    assert taken == [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")]
    assert take(queue, units=4) == [("a", "3")]


async def test_who_comes_late_does_not_wait_behind_what_another_has_waiting(
    queue: FairQueue,
) -> None:
    for _ in range(5):
        add(queue, "a")
    assert owners_of(take(queue, units=3)) == "aaa"
    add(queue, "b")
    assert "b" in owners_of(take(queue, units=2))


async def test_who_comes_late_does_not_catch_up_on_what_it_did_not_use(queue: FairQueue) -> None:
    for owner in "aaaab":
        add(queue, owner)
    take(queue, units=4)
    for owner in "abbb":
        add(queue, owner)
    assert owners_of(take(queue, units=2)) in {"ab", "ba"}


async def test_the_share_of_an_owner_is_counted_in_bytes(queue: FairQueue) -> None:
    for _ in range(3):
        add(queue, "large", size=100)
    for _ in range(4):
        add(queue, "small", size=10)
    assert owners_of(take(queue, units=5)).count("small") == 4


async def test_what_the_server_writes_itself_takes_turns_too(queue: FairQueue) -> None:
    for _ in range(5):
        add(queue, "a")
    add(queue, None)
    assert sorted(owners_of(take(queue, units=2))) == ["a"]


async def test_a_batch_ends_before_it_is_too_large(queue: FairQueue) -> None:
    for _ in range(4):
        add(queue, "a", size=40)
    assert len(take(queue, size=100)) == 2


async def test_a_unit_that_is_larger_than_a_batch_goes_alone(queue: FairQueue) -> None:
    for size in (500, 1, 500):
        add(queue, "a", size=size)
    assert [len(take(queue, size=100)) for _ in range(3)] == [1, 1, 1]


async def test_an_app_that_is_not_alone_has_but_a_share_of_each_batch() -> None:
    queue = FairQueue(units_limit=MANY, bytes_limit=MANY * MANY)
    add(queue, "a", size=10 * SHARED_BYTES)
    assert owners_of(take(queue, size=MANY)) == "a"  # it is larger than a share, and alone
    for _ in range(10):
        add(queue, "a", size=SHARED_BYTES // 2)
    add(queue, "b", size=LIGHT_BYTES)
    # The batch in which another waits is short, and after it comes a longer one.
    assert sorted(owners_of(take(queue, size=MANY))) == ["a", "b"]
    assert owners_of(take(queue, size=MANY)) == "aa"
    assert owners_of(take(queue, size=MANY)) == "aa"
    add(queue, "b", size=LIGHT_BYTES)
    assert sorted(owners_of(take(queue, size=MANY))) == ["a", "b"]
    add(queue, "b", size=LIGHT_BYTES)
    assert sorted(owners_of(take(queue, size=MANY))) == ["a", "a", "b"]


async def test_an_app_has_whole_batches_again_when_the_others_are_quiet() -> None:
    queue = FairQueue(units_limit=MANY, bytes_limit=MANY * MANY)
    add(queue, "b")
    for _ in range(2 * ACTIVE_BATCHES):
        add(queue, "a")
        take(queue, size=MANY)
    for _ in range(10):
        add(queue, "a", size=SHARED_BYTES)
    assert owners_of(take(queue, size=MANY)) == 10 * "a"


async def test_what_the_server_writes_itself_makes_no_app_share() -> None:
    queue = FairQueue(units_limit=MANY, bytes_limit=MANY * MANY)
    for owner in ("a", None, "a", None):
        add(queue, owner, size=SHARED_BYTES)
    assert len(take(queue, size=MANY)) == 4


async def test_one_app_gets_half_of_the_space(queue: FairQueue) -> None:
    assert add_until_refused(queue, "a") == 6
    assert add_until_refused(queue, "b") == 3
    add(queue, "c")


async def test_greedy_apps_leave_space_for_the_next(queue: FairQueue) -> None:
    for _ in range(100):
        for owner in "ab":
            add_until_refused(queue, owner)
        take(queue, units=2)
    add_until_refused(queue, "a")
    add_until_refused(queue, "b")
    assert add_until_refused(queue, "c") >= 2


async def test_one_app_gets_half_of_the_bytes() -> None:
    queue = FairQueue(units_limit=MANY, bytes_limit=1_000)
    assert add_until_refused(queue, "a", size=100) == 5
    add(queue, "b", size=100)


async def test_the_server_itself_may_use_all_the_space(queue: FairQueue) -> None:
    assert add_until_refused(queue, None) == 12


async def test_the_error_says_whose_requests_wait(queue: FairQueue) -> None:
    add_until_refused(queue, "a")
    with pytest.raises(Overloaded, match="of this app"):
        add(queue, "a")


async def test_one_that_is_larger_than_all_the_space_may_wait_alone() -> None:
    queue = FairQueue(units_limit=MANY, bytes_limit=1_000)
    add(queue, "a", size=5_000)
    with pytest.raises(Overloaded):
        add(queue, "b")
    take(queue)
    add(queue, "b")


@given(
    st.lists(st.tuples(st.sampled_from([None, *"abc"]), st.integers(1, 50)), max_size=60),
    st.integers(1, 10),
    st.integers(1, 100),
)
def test_everything_is_taken_once_in_its_owners_order_and_within_the_limits(
    given_units: list[tuple[str | None, int]], units: int, size: int
) -> None:
    async def run() -> None:
        queue = FairQueue(units_limit=MANY, bytes_limit=MANY)
        for number, (owner, own_size) in enumerate(given_units):
            add(queue, owner, f"{number:03}", own_size)
        batches = []
        while queue.units:
            batch = queue.take(units=units, size=size)
            assert 1 <= len(batch) <= units
            assert len(batch) == 1 or sum(own_size for _, own_size, _ in batch) <= size
            batches += [(unit.owner or "", unit.key) for unit, _, _ in batch]
        assert queue.bytes == 0
        assert sorted(key for _, key in batches) == [f"{n:03}" for n in range(len(given_units))]
        for _, own in groupby(sorted(batches, key=lambda each: each[0]), lambda each: each[0]):
            keys = [key for _, key in own]
            assert keys == sorted(keys)

    asyncio.run(run())


def test_the_size_of_a_unit_counts_rows_texts_and_bytes() -> None:
    rows = [INSERT.bind(id="abc", n=5, b=b"1234"), INSERT.bind(id="é", n=None, b=None)]
    assert size_of(Unit("", (INSERT.many(rows), INSERT.many(rows[:1])))) == 3 * ROW_BYTES + 15
    assert size_of(Unit("", ())) == ROW_BYTES
