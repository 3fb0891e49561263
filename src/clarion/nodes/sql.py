"""The nodes in SQL, and which of them is the leader."""

from __future__ import annotations

from clarion.nodes.model import Leader, Node
from clarion.nodes.tables import LEADERS, NODES
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement

LIMIT = 1_000
BEAT = statement(
    "beat_node",
    f"""INSERT INTO nodes ({NODES.columns}) VALUES ({NODES.parameters})
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at""",
)
# The token stays while the same node leads.
LEAD = statement(
    "lead_nodes",
    """INSERT INTO leader (id, node_id, token, until) VALUES (1, :node_id, 1, :until)
    ON CONFLICT (id) DO UPDATE SET node_id = excluded.node_id, until = excluded.until,
    token = leader.token + CASE WHEN leader.node_id = excluded.node_id THEN 0 ELSE 1 END
    WHERE leader.node_id = excluded.node_id OR leader.until <= :now""",
)
SELECT_LEADER = statement("select_leader", f"SELECT {LEADERS.columns} FROM leader WHERE id = 1")
SELECT = statement(
    "select_nodes", f"SELECT {NODES.columns} FROM nodes ORDER BY started_at, id LIMIT {LIMIT}"
)
REMOVE = statement(
    "remove_node", "DELETE FROM nodes WHERE id = :id AND seen_at = :seen_at RETURNING id"
)
RESIGN = statement("end_leader", "UPDATE leader SET until = 0 WHERE node_id = :node_id")


class NodeRecords:
    """The nodes as the store knows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def beat(self, node: Node, *, until: int) -> Leader | None:
        """Record a heart-beat of a node at `seen_at`; return the leader.

        If there is no leader at that time, or the node is the leader, it leads until `until`.
        """
        beat = BEAT.many([NODES.bind(node)])
        lead = LEAD.step(node_id=node.id, now=node.seen_at, until=until)
        await self._engine.write_apart(Unit("", (beat, lead)))
        rows = await self._engine.fetch(SELECT_LEADER)
        return LEADERS.read(rows[0]) if rows else None

    async def list(self) -> tuple[Node, ...]:
        """Return the nodes in the order of their start, at most 1,000."""
        return tuple(map(NODES.read, await self._engine.fetch(SELECT)))

    async def remove(self, node: Node) -> None:
        """Remove a node, unless it has been seen since; it stops being the leader, too."""
        remove = REMOVE.guard(id=node.id, seen_at=node.seen_at)
        await self._engine.write_apart(Unit("", (remove, RESIGN.step(node_id=node.id))))
