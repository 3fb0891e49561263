"""When users were last seen: once a minute, in batches, and not lost if the store is away."""

from collections.abc import Collection

import pytest

from clarion.errors import StoreUnavailable
from clarion.people.last_seen import EVERY_MS, WAITING_LIMIT, LastSeen
from clarion.people.sql import Users
from tests.factories import NOW, FixedClock, make_user
from tests.unit.conftest import MemoryEngine


class Node:
    def __init__(self, engine: MemoryEngine, clock: FixedClock) -> None:
        self.clock = clock
        self.users = Users(engine)  # type: ignore[arg-type]
        self.connected: list[tuple[str, str]] = []
        self.last_seen = LastSeen(self.users, clock, lambda: self.connected)

    async def write(self, limit: int = 10) -> int:
        return await self.last_seen.write(self.clock.now(), limit)

    async def read(self, user_id: str = "ana") -> int | None:
        user = await self.users.get("app", user_id)
        assert user is not None
        return user.last_seen_at


@pytest.fixture
async def node(engine: MemoryEngine, clock: FixedClock) -> Node:
    node = Node(engine, clock)
    for user_id in ("ana", "bo", "cy"):
        await node.users.put(make_user(user_id))
    return node


async def test_many_requests_are_one_write_a_minute(node: Node) -> None:
    for _ in range(5):
        node.last_seen.note("app", "ana")
    assert (await node.write(), await node.read()) == (1, NOW)
    node.clock.advance(EVERY_MS - 1)
    node.last_seen.note("app", "ana")
    assert (await node.write(), await node.read()) == (0, NOW)
    node.clock.advance(1)
    node.last_seen.note("app", "ana")
    assert (await node.write(), await node.read()) == (1, NOW + EVERY_MS)


async def test_connected_users_are_seen_for_as_long_as_they_are_connected(node: Node) -> None:
    node.connected.append(("app", "bo"))
    assert await node.write() == 1
    node.clock.advance(EVERY_MS)
    assert (await node.write(), await node.read("bo")) == (1, NOW + EVERY_MS)
    assert await node.read("ana") is None


async def test_a_clock_that_is_set_back_is_followed(node: Node) -> None:
    node.last_seen.note("app", "ana")
    await node.write()
    node.clock.step(-10 * EVERY_MS)
    node.clock.advance(EVERY_MS)
    node.last_seen.note("app", "ana")
    assert (await node.write(), await node.read()) == (1, NOW - 9 * EVERY_MS)


async def test_they_are_written_in_parts(node: Node) -> None:
    for user_id in ("ana", "bo", "cy"):
        node.last_seen.note("app", user_id)
    assert [await node.write(limit=2) for _ in range(3)] == [2, 1, 0]


class Away(Users):
    """The users of a store that does not answer."""

    async def touch(self, seen: Collection[tuple[str, str]], now: int) -> None:
        raise StoreUnavailable(f"{len(seen)} at {now}")


async def test_what_could_not_be_written_is_written_later(
    engine: MemoryEngine, clock: FixedClock
) -> None:
    last_seen = LastSeen(Away(engine), clock, lambda: ())  # type: ignore[arg-type]
    last_seen.note("app", "ana")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=f"1 at {NOW}"):
            await last_seen.write(NOW, 10)


async def test_no_more_are_noted_than_fit(node: Node) -> None:
    for number in range(WAITING_LIMIT + 10):
        node.last_seen.note("app", f"u{number}")
    assert await node.write(limit=2 * WAITING_LIMIT) == WAITING_LIMIT
