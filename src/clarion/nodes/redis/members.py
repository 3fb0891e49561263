"""Which other nodes there are, and whether they can be heard: each counts up in one hash.

A node that is cut off from Redis alone goes on changing the store, and the others would not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from clarion.nodes.redis.client import slot_of
from clarion.nodes.redis.link import Command

# A node whose number has not changed for so long is not heard.
SILENT_S = 5.0
# After so long it is taken to be dead: it has no presence any more, either.
GONE_S = 60.0
_LIFE_S = 240


class Members:
    """The other nodes, by what was read of them so far. No clock but our own counts."""

    def __init__(
        self, namespace: str, node: str, *, silent_s: float = SILENT_S, gone_s: float = GONE_S
    ) -> None:
        self._key = f"{namespace}:nodes"
        self._slot = slot_of(self._key)
        self._node = node
        self._silent_s = silent_s
        self._gone_s = gone_s
        # By node: its number, and when that was first seen.
        self._seen: dict[str, tuple[bytes, float]] = {}
        self.silent: frozenset[str] = frozenset()
        self._is_first = True

    def count(self, number: int) -> list[tuple[int, Command]]:
        """Return what shows that this node is there, and last what reads the others."""
        return [
            (self._slot, ("HSET", self._key, self._node, number)),
            (self._slot, ("EXPIRE", self._key, _LIFE_S)),
            (self._slot, ("HGETALL", self._key)),
        ]

    def remove(self, *nodes: str) -> tuple[int, Command]:
        """Return what removes nodes; without a name, this one."""
        return self._slot, ("HDEL", self._key, *(nodes or (self._node,)))

    def note(self, numbers: Mapping[bytes, bytes], now: float) -> list[str]:
        """Take what was read, and return the nodes that are gone.

        At first these are those of the same name: a node that was killed and started anew. One that
        has the name by mistake counts on, and is there again.
        """
        gone, silent, seen = [], [], {}
        name = self._node.rpartition(".")[0]
        for field, number in numbers.items():
            node = field.decode()
            if node == self._node:
                continue
            if self._is_first and node.rpartition(".")[0] == name:
                gone.append(node)
                continue
            known = self._seen.get(node)
            first = known if known and known[0] == number else (number, now)
            seen[node] = first
            if now - first[1] > self._gone_s:
                gone.append(node)
            elif now - first[1] > self._silent_s:
                silent.append(node)
        self._seen, self.silent, self._is_first = seen, frozenset(silent), False
        return gone
