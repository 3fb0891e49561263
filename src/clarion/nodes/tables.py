"""The tables of the nodes that serve the database."""

from __future__ import annotations

from clarion.nodes.model import Leader, Node
from clarion.store.table import Owner, Stays, Table

NODES = Table(
    "nodes",
    Node,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="of the installation",
    ends=Stays("Other nodes remove one that is gone."),
    not_copied="They are those that run.",
)
LEADERS = Table(
    "leader",
    Leader,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="which node does what one does for all",
    ends=Stays("One row."),
    not_copied="It is one of the nodes that run.",
    note="one row",
)
TABLES = (NODES, LEADERS)
