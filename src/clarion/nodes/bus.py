"""The port of the bus: what the nodes on one database tell each other, and who holds which device.

Nothing on the bus is durable, and nothing is acknowledged: what is said is in the store before, and
whoever did not hear it finds it there. A node that may have missed something is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

# Called on the loop with what arrived about a subject, in the order in which each node said it.
Receive = Callable[[Sequence[bytes]], None]
# Called on the loop with the ids of devices of this node that another node holds now.
Replaced = Callable[[Sequence[str]], None]


class Bus(Protocol):
    """Tells other nodes, and hears them. None of it fails; only `settle` and `find_held` wait.

    What is said within a turn of the loop goes to each node as one frame. If nobody can be reached,
    it is dropped.
    """

    @property
    def is_hearing(self) -> bool:
        """Whether this node hears every other node that uses the database.

        While it does not, what others change has to be looked for in the store, and what is cached
        of the store may be used for seconds only.
        """

    def hear(self, subject: str, receive: Receive) -> None:
        """Have `receive` called with what other nodes say about a subject; once a subject."""

    def on_gap(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever this node may have missed something, and hears again.

        What is cached is to be dropped then, and what may wait for connections is to be read.
        """

    def on_replaced(self, call: Replaced) -> None:
        """Have `call` called with devices of which another node holds a newer connection."""

    def tell(self, subject: str, data: bytes) -> None:
        """Tell all other nodes."""

    def tell_holder(self, subject: str, device_id: str, data: bytes) -> None:
        """Tell the node that holds a device, unless it is this one or none does."""

    def hold(self, device_id: str, since: int) -> None:
        """Take note that this node has the connection of a device, opened at `since`.

        `since` is in milliseconds by the clock that all nodes share. The newest connection wins: if
        another node holds an older one, that node is told, and if a newer one, this node is.
        """

    def release(self, device_id: str) -> None:
        """Take note that this node has no connection of a device any more."""

    async def settle(self) -> None:
        """Return when others see what this node holds and has released, or cannot be told.

        Whoever reads what waits for a device after that, misses nothing: what is stored later is
        sent here.
        """

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        """Return which of the devices other nodes hold; none if that cannot be asked."""


class NoBus:
    """The `Bus` port of a node that hears nobody.

    If it is alone on its database there is nobody to hear; otherwise it has to ask the store.
    """

    def __init__(self, *, is_alone: bool) -> None:
        self.is_hearing = is_alone

    def hear(self, subject: str, receive: Receive) -> None:
        """Hear nothing."""

    def on_gap(self, call: Callable[[], None]) -> None:
        """Miss nothing."""

    def on_replaced(self, call: Replaced) -> None:
        """Learn of no other connection."""

    def tell(self, subject: str, data: bytes) -> None:
        """Reach nobody."""

    def tell_holder(self, subject: str, device_id: str, data: bytes) -> None:
        """Reach nobody."""

    def hold(self, device_id: str, since: int) -> None:
        """Have nobody to tell."""

    def release(self, device_id: str) -> None:
        """Have nobody to tell."""

    async def settle(self) -> None:
        """Have nobody to wait for."""

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        del device_ids
        return frozenset()


# For what is built without a bus.
ALONE: Bus = NoBus(is_alone=True)
