"""Who may use a token: read again after a moment, and disconnected by every node."""

import asyncio

import pytest

from clarion.people.active_users import KNOWN_LIMIT, KNOWN_MS, LOOK_BACK_MS, ActiveUsers, UserState
from clarion.people.model import UserStatus
from clarion.people.sql import Users
from tests.factories import NOW, FixedClock, make_user
from tests.recorded_bus import RecordedHub
from tests.unit.conftest import MemoryEngine


class Nodes:
    """Two nodes on one store."""

    def __init__(self, engine: MemoryEngine, clock: FixedClock) -> None:
        self.engine = engine
        self.clock = clock
        self.users = Users(engine)  # type: ignore[arg-type]
        self.ended: list[tuple[str, str]] = []
        self.active = ActiveUsers(self.users, clock, self._end)

    def _end(self, app_id: str, user_id: str) -> None:
        self.ended.append((app_id, user_id))

    async def put(self, status: UserStatus, user_id: str = "ana", moment: int = NOW) -> None:
        await self.users.put(make_user(user_id, status=status, updated_at=moment))


@pytest.fixture
def nodes(engine: MemoryEngine, clock: FixedClock) -> Nodes:
    return Nodes(engine, clock)


async def test_a_user_is_read_once_in_a_while(nodes: Nodes) -> None:
    await nodes.put(UserStatus.ACTIVE)
    for moment in (0, KNOWN_MS - 1):
        nodes.clock.milliseconds = NOW + moment
        assert await nodes.active.is_active("app", "ana")
    assert nodes.engine.reads == 1
    await nodes.put(UserStatus.INACTIVE)  # by another node
    nodes.clock.milliseconds = NOW + KNOWN_MS
    assert not await nodes.active.is_active("app", "ana")


async def test_what_is_known_is_not_used_after_the_clock_was_set_back(nodes: Nodes) -> None:
    await nodes.put(UserStatus.ACTIVE)
    assert await nodes.active.is_active("app", "ana")
    await nodes.put(UserStatus.INACTIVE)
    nodes.clock.advance(-1)
    assert not await nodes.active.is_active("app", "ana")


async def test_a_user_that_was_never_created_is_active(nodes: Nodes) -> None:
    assert await nodes.active.is_active("app", "nobody")


async def test_a_change_on_this_node_counts_at_once(nodes: Nodes) -> None:
    await nodes.put(UserStatus.ACTIVE)
    assert await nodes.active.is_active("app", "ana")
    await nodes.put(UserStatus.INACTIVE)
    await nodes.active.check("app", "ana")
    assert nodes.ended == [("app", "ana")]
    assert not await nodes.active.is_active("app", "ana")
    await nodes.put(UserStatus.ACTIVE)
    await nodes.active.check("app", "ana")
    assert await nodes.active.is_active("app", "ana")
    assert nodes.ended == [("app", "ana")]


async def test_a_poll_ends_the_connections_of_those_who_became_inactive_lately(
    nodes: Nodes,
) -> None:
    await nodes.put(UserStatus.INACTIVE, "just now", NOW)
    await nodes.put(UserStatus.INACTIVE, "by a clock that is late", NOW - LOOK_BACK_MS + 1)
    await nodes.put(UserStatus.INACTIVE, "by a clock that is early", NOW + LOOK_BACK_MS)
    await nodes.put(UserStatus.INACTIVE, "long ago", NOW - LOOK_BACK_MS - 1)
    await nodes.put(UserStatus.ACTIVE, "active", NOW)
    await nodes.active.poll()
    assert {user_id for _, user_id in nodes.ended} == {
        "just now",
        "by a clock that is late",
        "by a clock that is early",
    }


async def test_a_poll_finds_more_than_one_page(nodes: Nodes) -> None:
    for number in range(1_001):
        await nodes.put(UserStatus.INACTIVE, f"user-{number}", NOW + number % 3)
    await nodes.active.poll()
    assert len(set(nodes.ended)) == len(nodes.ended) == 1_001


async def test_what_is_known_is_bounded(nodes: Nodes) -> None:
    for n in range(KNOWN_LIMIT):
        nodes.active._known.put(("app", str(n)), UserState.ACTIVE, NOW, 0)
    assert await nodes.active.is_active("app", "one more")
    assert len(nodes.active._known) == KNOWN_LIMIT


async def test_the_loop_polls_until_it_is_cancelled(nodes: Nodes) -> None:
    found = asyncio.Event()
    active = ActiveUsers(
        nodes.users, nodes.clock, lambda *_: found.set(), poll_s=0.001, check_s=0.001
    )
    await nodes.put(UserStatus.INACTIVE)
    running = asyncio.create_task(active.run())
    await asyncio.wait_for(found.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    ("status", "ended"), [(UserStatus.INACTIVE, [("app", "ana")]), (UserStatus.ACTIVE, [])]
)
async def test_the_other_nodes_disconnect_a_user_when_they_are_told(
    nodes: Nodes, status: UserStatus, ended: list[tuple[str, str]]
) -> None:
    hub, disconnected = RecordedHub(), list[tuple[str, str]]()
    here = ActiveUsers(nodes.users, nodes.clock, bus=hub.join())
    there = ActiveUsers(
        nodes.users, nodes.clock, lambda *owner: disconnected.append(owner), bus=hub.join()
    )
    await nodes.put(UserStatus.ACTIVE)
    assert await there.is_active("app", "ana")
    await nodes.put(status)
    await here.check("app", "ana")
    await asyncio.sleep(0)
    assert disconnected == ended
    assert await there.is_active("app", "ana") is (status is UserStatus.ACTIVE)


async def test_an_erased_user_is_forgotten_by_the_other_nodes_when_they_are_told(
    nodes: Nodes,
) -> None:
    class Gone:
        async def is_gone(self, _app_id: str, _user_id: str) -> bool:
            return True

    hub, forgotten = RecordedHub(), list[object]()
    here = ActiveUsers(nodes.users, nodes.clock, gone=Gone(), bus=hub.join())  # type: ignore[arg-type]
    there = ActiveUsers(nodes.users, nodes.clock, drop_cached=forgotten.append, bus=hub.join())
    await here.forget("app", "ana")
    await asyncio.sleep(0)
    assert forgotten == [(("app", "ana"),)]
    assert there.was_gone("app", "ana")
    assert here.was_gone("app", "ana")


async def test_nothing_is_known_of_users_after_a_gap(nodes: Nodes) -> None:
    bus = RecordedHub().join()
    active = ActiveUsers(nodes.users, nodes.clock, bus=bus)
    await nodes.put(UserStatus.ACTIVE)
    assert await active.is_active("app", "ana")
    await nodes.put(UserStatus.INACTIVE)
    bus.miss()
    assert not await active.is_active("app", "ana")
