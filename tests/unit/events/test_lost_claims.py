"""What a node claimed while the store failed is released when the store has answered a while."""

from collections.abc import Collection, Mapping

import pytest

from clarion.errors import StoreUnavailable
from clarion.events.leases import LEASE_MS, Leases
from clarion.events.lost_claims import QUIET_MS, LostClaims
from tests.factories import NOW, FixedClock
from tests.pipeline import make_event, make_job

JOB = make_job(make_event())


class Released:
    """The part of the `Queue` port that releases; it keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Mapping[str, Collection[str]], int, int]] = []
        self.fails = False

    async def release_lost(
        self, held: Mapping[str, Collection[str]], *, now: int, until: int
    ) -> None:
        if self.fails:
            raise StoreUnavailable
        self.calls.append((held, now, until))


class Node:
    """The claims of a node."""

    def __init__(self) -> None:
        self.clock, self.queue, self.leases = FixedClock(), Released(), Leases()
        self.lost = LostClaims(self.queue, self.leases, self.clock)  # type: ignore[arg-type]


@pytest.fixture
def node() -> Node:
    return Node()


async def test_nothing_is_released_while_the_store_does_not_fail(node: Node) -> None:
    node.clock.advance(QUIET_MS)
    await node.lost.release()
    assert node.queue.calls == []


async def test_what_was_claimed_until_the_store_failed_is_released_once(node: Node) -> None:
    node.leases.take([JOB])
    node.lost.note()
    await node.lost.release()
    assert node.queue.calls == []
    node.clock.advance(QUIET_MS)
    await node.lost.release()
    await node.lost.release()
    assert node.queue.calls == [({"app": [JOB.id]}, NOW + QUIET_MS, NOW + 1 + LEASE_MS)]


async def test_a_store_that_is_still_away_is_asked_again(node: Node) -> None:
    node.lost.note()
    node.clock.advance(QUIET_MS)
    node.queue.fails = True
    with pytest.raises(StoreUnavailable):
        await node.lost.release()
    node.queue.fails = False
    await node.lost.release()
    assert len(node.queue.calls) == 1


async def test_what_is_being_claimed_is_not_released(node: Node) -> None:
    """Its jobs are claimed in the store, and this node does not hold them yet."""
    with node.leases.claiming(NOW - 500):
        node.lost.note()
        node.clock.advance(QUIET_MS)
        await node.lost.release()
    ((_, _, until),) = node.queue.calls
    assert until == NOW - 500 + LEASE_MS
