"""Which other nodes are connected to Redis: each counts up in one hash.

The store knows which nodes exist: a node that is cut off only from Redis still changes the store. A
node is connected to the bus only while all others are.
"""

from __future__ import annotations

from collections.abc import Mapping

from clarion.nodes.redis.client import slot_of
from clarion.nodes.redis.link import Command

# A node whose number has not changed for this long is silent.
SILENT_S = 3.0
# After this it is removed from the hash: its presence has expired, too.
GONE_S = 60.0
_LIFE_S = 240


class Members:
    """The other nodes, as read so far. Only the clock of this node is used."""

    def __init__(
        self,
        namespace: str,
        node: str,
        node_id: str,
        *,
        silent_s: float = SILENT_S,
        gone_s: float = GONE_S,
    ) -> None:
        """`node` is its name on the bus, `node_id` that in the store."""
        self._key = f"{namespace}:nodes"
        self._slot = slot_of(self._key)
        self._node = node
        self._node_id = node_id
        self._silent_s = silent_s
        self._gone_s = gone_s
        # By node: its number and id, and when these were first seen.
        self._seen: dict[str, tuple[bytes, float]] = {}
        # The names of the nodes that exist and are silent, by their ids.
        self.silent: Mapping[str, str] = {}
        self._is_first = True

    def count(self, number: int) -> list[tuple[int, Command]]:
        """Return the commands that show that this node is alive; the last one reads the others."""
        return [
            (self._slot, ("HSET", self._key, self._node, f"{number} {self._node_id}")),
            (self._slot, ("EXPIRE", self._key, _LIFE_S)),
            (self._slot, ("HGETALL", self._key)),
        ]

    def remove(self, *nodes: str) -> tuple[int, Command]:
        """Return the command that removes nodes; without a name, this one."""
        return self._slot, ("HDEL", self._key, *(nodes or (self._node,)))

    def note(self, read: Mapping[bytes, bytes], now: float, living: Mapping[str, str]) -> list[str]:
        """Update from the read numbers and the existing nodes; return the nodes to remove.

        The first time, these are earlier nodes of the same name, which were killed and restarted. A
        node wrongly removed reappears with its next number.
        """
        gone, seen, present = [], {}, {self._node_id}
        name = self._node.rpartition(".")[0]
        for field, value in read.items():
            node = field.decode()
            if node == self._node:
                continue
            if self._is_first and node.rpartition(".")[0] == name:
                gone.append(node)
                continue
            known = self._seen.get(node)
            seen[node] = first = known if known and known[0] == value else (value, now)
            if now - first[1] > self._gone_s:
                gone.append(node)
            elif now - first[1] <= self._silent_s:
                present.add(value.decode().partition(" ")[2])
        self.silent = {id_: name for id_, name in living.items() if id_ not in present}
        self._seen, self._is_first = seen, False
        return gone
