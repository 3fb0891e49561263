"""The ports of rate limits, of dependencies, and of the list of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from clarion.nodes.model import Node


class Allowance(NamedTuple):
    """The rest of a rate limit in the current window."""

    limit: int
    remaining: int
    reset_s: int
    is_exceeded: bool


class Quota(NamedTuple):
    """A counted key, and how often it may be used in a window."""

    key: str
    limit: int


class Taken(NamedTuple):
    """The rest of one of several quotas, and its index among them."""

    position: int
    allowance: Allowance


class Limits(Protocol):
    """Rate limits. Counts may be lost; then they start at zero."""

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        """Count one use of `key` in the current window and return the rest.

        Windows are aligned to multiples of `window_s`. The use number `limit + 1` of a window is
        the first beyond the limit. Uses beyond the limit are counted too; they do not extend the
        window.
        """

    async def take_all(self, quotas: Sequence[Quota], *, window_s: int, now: int) -> Taken:
        """Count one use of each, in this order, up to the first that is exceeded; return that.

        Those after it are not counted: a caller beyond its own limit uses up no shared limit. If
        none is exceeded, the first with the least left is returned. It takes one call for any
        number of quotas.
        """


class NodeLimits(Protocol):
    """Counts uses on this node alone. Not async, because every push counts twice."""

    def count(self, key: str, *, window_s: int, now: int) -> int:
        """Count one use, and return the number of uses in this window of time."""

    def read(self, key: str, *, window_s: int, now: int) -> int:
        """Return the number of uses in this window of time."""

    def find_reset_s(self, *, window_s: int, now: int) -> int:
        """Return in how many seconds this window ends."""


class Dependency(Protocol):
    """A service that Clarion needs: the database, Redis."""

    async def check(self) -> None:
        """Return if it answers, raise otherwise, within two seconds."""


class Membership(Protocol):
    """A node among those that serve the database."""

    async def join(self) -> None:
        """Become a member, before anything is claimed."""

    async def run(self) -> None:
        """Stay a member, until cancelled."""

    async def leave(self) -> None:
        """Release the claims of this node at once."""

    @property
    def is_leading(self) -> bool:
        """Whether this node does the work that one node does for all."""

    @property
    def is_live(self) -> bool:
        """Whether other nodes certainly know that this one is alive.

        If not, they may have taken over its claims.
        """

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that serve the database, this one among them, as of the last heart-beat."""

    @property
    def leader_id(self) -> str | None:
        """The id of the node that leads, as of the last heart-beat."""
