"""A node among those that use the database: heart-beats, nodes that are gone, and the leader.

A node is gone when its row has not changed for several checks in a row. Clocks are not compared:
neither skew nor an interruption of the database makes a node look dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from clarion.clock import Clock
from clarion.errors import ClarionError
from clarion.nodes.model import Node
from clarion.nodes.sql import NodeRecords
from clarion.telemetry.logs import get_logger
from clarion.telemetry.outages import Work

BEAT_S = 2.0
# A node that has not changed in this number of looks in a row, two seconds apart, is gone.
LOOKS = 4
# How long after a heart-beat no other node can have found this one gone.
LIVE_MS = 6_000
# How long a leader leads without renewing. One that is gone is replaced earlier.
LEADER_MS = 15_000
_LEAVE_S = 5.0

OnGone = Callable[[str], Awaitable[None]]


class SharedMembership:
    """The `Membership` port of a node on PostgreSQL."""

    def __init__(self, records: NodeRecords, clock: Clock, node: Node, on_gone: OnGone) -> None:
        self.nodes: Sequence[Node] = (node,)
        self.leader_id: str | None = None
        self._records = records
        self._clock = clock
        self._node = node
        self._on_gone = on_gone
        # By the monotonic clock.
        self._beaten_at: int | None = None
        # How often each other node was found with the same time.
        self._looks: dict[str, tuple[int, int]] = {}

    @property
    def is_live(self) -> bool:
        beaten_at = self._beaten_at
        return beaten_at is not None and self._clock.monotonic() - beaten_at < LIVE_MS

    @property
    def is_leading(self) -> bool:
        return self.is_live and self.leader_id == self._node.id

    async def join(self) -> None:
        await self.beat()

    async def run(self) -> None:
        """Beat every two seconds, until cancelled."""
        work = Work("membership")
        while True:
            with work.attempt():
                await self.beat()
            await asyncio.sleep(BEAT_S)

    async def beat(self) -> None:
        """Record that this node is alive, and take over from those that are gone."""
        began = self._clock.monotonic()
        self._node = replace(self._node, seen_at=self._clock.now())
        leader = await self._records.beat(self._node, until=self._node.seen_at + LEADER_MS)
        self._beaten_at = began
        if leader is not None and leader.node_id != self.leader_id:
            self.leader_id = leader.node_id
            if leader.node_id == self._node.id:
                get_logger().info("leader_taken", node=self._node.name, token=leader.token)
        self.nodes = await self._records.list()
        for node in self._find_gone(self.nodes):
            get_logger().warning("node_gone", node=node.name, node_id=node.id)
            await self._on_gone(node.id)
            await self._records.remove(node)

    def _find_gone(self, nodes: Sequence[Node]) -> list[Node]:
        before, self._looks = self._looks, {}
        for node in nodes:
            seen_at, looks = before.get(node.id, (0, 0))
            self._looks[node.id] = (node.seen_at, looks + 1 if seen_at == node.seen_at else 0)
        others = (node for node in nodes if node.id != self._node.id)
        return [node for node in others if self._looks[node.id][1] >= LOOKS]

    async def leave(self) -> None:
        """Release the claims of this node, and stop leading."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._on_gone(self._node.id)
                await self._records.remove(self._node)
        except (ClarionError, TimeoutError) as error:  # the others notice
            get_logger().warning("leave_failed", error=type(error).__name__)


class SoleNode:
    """The `Membership` port of a node that is alone on its database."""

    is_leading = is_live = True

    def __init__(self, node: Node, clock: Clock) -> None:
        self.leader_id = node.id
        self._node = node
        self._clock = clock

    async def join(self) -> None:
        """There is no other node."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None:
        """Do nothing: the next start takes over."""

    @property
    def nodes(self) -> Sequence[Node]:
        return (replace(self._node, seen_at=self._clock.now()),)
