"""The list of nodes: heart-beats, who is gone, and who leads."""

from clarion.nodes.membership import LEADER_MS, LIVE_MS, LOOKS, SharedMembership, SoleNode
from clarion.nodes.model import Node
from clarion.nodes.sql import NodeRecords
from clarion.store.engine import Engine
from tests.factories import NOW, FixedClock

BEAT_MS = 2_000


class Member:
    """A node on a store, which remembers whose work it took over."""

    def __init__(self, engine: Engine, clock: FixedClock, name: str) -> None:
        self.taken: list[str] = []
        node = Node(name, name, "1.2.3", NOW, NOW)
        self.membership = SharedMembership(NodeRecords(engine), clock, node, self._take_over)

    async def _take_over(self, node_id: str) -> None:
        self.taken.append(node_id)

    @property
    def is_leading(self) -> bool:
        return self.membership.is_leading

    async def beat(self) -> None:
        await self.membership.beat()


async def pass_beats(clock: FixedClock, count: int, *members: Member) -> None:
    for _ in range(count):
        clock.advance(BEAT_MS)
        for each in members:
            await each.beat()


async def test_the_list_has_every_node_and_when_it_was_seen(engine: Engine) -> None:
    clock = FixedClock()
    a, b = (Member(engine, clock, name) for name in ("a", "b"))
    await pass_beats(clock, 1, a, b, a)
    assert a.membership.nodes == tuple(
        Node(name, name, "1.2.3", NOW, NOW + BEAT_MS) for name in ("a", "b")
    )


async def test_a_node_that_died_is_taken_over_once_and_no_longer_listed(engine: Engine) -> None:
    clock = FixedClock()
    a, b = (Member(engine, clock, name) for name in ("a", "b"))
    await pass_beats(clock, 2, a, b)
    await pass_beats(clock, LOOKS - 1, a)
    assert a.taken == []
    await pass_beats(clock, 3, a)
    assert a.taken == ["b"]
    assert [each.id for each in a.membership.nodes] == ["a"]
    await pass_beats(clock, 1, b, a)
    assert [each.id for each in a.membership.nodes] == ["a", "b"]


async def test_a_node_whose_clock_differs_is_not_taken_for_dead(engine: Engine) -> None:
    clock, other_clock = FixedClock(), FixedClock(NOW - 3_600_000)
    a, b = Member(engine, clock, "a"), Member(engine, other_clock, "b")
    for _ in range(2 * LOOKS):
        await pass_beats(clock, 1, a)
        await pass_beats(other_clock, 1, b)
    assert a.taken == b.taken == []


async def test_nobody_is_gone_because_the_store_was_away(engine: Engine) -> None:
    """All nodes are silent for a minute, and then come back one after the other."""
    clock = FixedClock()
    a, b = (Member(engine, clock, name) for name in ("a", "b"))
    await pass_beats(clock, 2, a, b)
    clock.advance(60_000)
    await pass_beats(clock, 1, a)
    await pass_beats(clock, 1, a, b)
    await pass_beats(clock, LOOKS, a, b)
    assert a.taken == b.taken == []


async def test_one_node_leads_until_it_dies(engine: Engine) -> None:
    clock = FixedClock()
    a, b = (Member(engine, clock, name) for name in ("a", "b"))
    await pass_beats(clock, 10, a, b)
    assert (a.is_leading, b.is_leading) == (True, False)
    assert a.membership.leader_id == b.membership.leader_id == "a"
    silent = 0
    while not b.is_leading:
        assert not (a.is_leading and b.is_leading)
        await pass_beats(clock, 1, b)
        silent += BEAT_MS
    assert silent <= LEADER_MS + BEAT_MS
    assert not a.is_leading
    await pass_beats(clock, 1, a)
    assert (a.is_leading, b.is_leading) == (False, True)


async def test_a_leader_that_was_paused_knows_before_it_has_asked(engine: Engine) -> None:
    clock = FixedClock()
    a = Member(engine, clock, "a")
    await a.beat()
    assert a.is_leading
    assert a.membership.is_live
    clock.advance(LIVE_MS)
    assert not a.membership.is_live
    clock.advance(LEADER_MS)
    assert not a.is_leading
    await a.beat()
    assert a.is_leading
    assert a.membership.is_live


async def test_a_node_that_leaves_hands_over_at_once(engine: Engine) -> None:
    clock = FixedClock()
    a, b = (Member(engine, clock, name) for name in ("a", "b"))
    await pass_beats(clock, 2, a, b)
    await a.membership.leave()
    assert a.taken == ["a"]
    await b.beat()
    assert b.is_leading
    assert [each.id for each in b.membership.nodes] == ["b"]


async def test_the_token_counts_the_leaders(engine: Engine) -> None:
    records, tokens = NodeRecords(engine), []
    for name, at in (("a", 0), ("a", 1), ("b", 2), ("b", LEADER_MS + 2), ("a", 2 * LEADER_MS + 2)):
        node = Node(name, name, "0", NOW, NOW + at)
        leader = await records.beat(node, until=NOW + at + LEADER_MS)
        assert leader is not None
        tokens.append((leader.node_id, leader.token))
    assert tokens == [("a", 1), ("a", 1), ("a", 1), ("b", 2), ("a", 3)]


def test_a_node_alone_leads_and_is_seen() -> None:
    clock = FixedClock()
    sole = SoleNode(Node("a", "a", "0", NOW, NOW), clock)
    clock.advance(5)
    assert (sole.is_leading, sole.is_live, sole.leader_id) == (True, True, "a")
    assert [each.seen_at for each in sole.nodes] == [NOW + 5]
