"""What nodes know of each other."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Node:
    """A process that serves this database. Its id is that of one start."""

    id: str
    name: str
    version: str
    started_at: int
    seen_at: int


class Leader(msgspec.Struct, frozen=True):
    """The node that does the work that one node does for all. The token counts the leaders."""

    node_id: str
    token: int
    until: int
