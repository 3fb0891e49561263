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
    ends=Stays("Other nodes delete the row of a node that is gone."),
    not_copied="The nodes of the target write their own rows.",
)
LEADERS = Table(
    "leader",
    Leader,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="the node that runs the common housekeeping",
    ends=Stays("One row."),
    not_copied="A node of the target becomes the leader.",
    note="one row",
)
TABLES = (NODES, LEADERS)
