"""The port of the bus: messages between the nodes on one database, and which node holds a device.

Nothing on the bus is durable or acknowledged. A change is in the store before its message is
published, so a node that missed it finds it there. A node is notified when it may have missed one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

# Called on the loop with the messages of a subject, those of each node in the order of publishing.
Receive = Callable[[Sequence[bytes]], None]
# Called on the loop with the ids of devices of this node that another node holds now.
Replaced = Callable[[Sequence[str]], None]


class Bus(Protocol):
    """Publishes to other nodes. Never raises; only `settle` and `find_held` wait.

    All messages of one turn of the loop go to each node as one frame. They are dropped if no node
    can be reached.
    """

    @property
    def is_connected(self) -> bool:
        """Whether this node receives from every other node that uses the database.

        While it does not, it must poll the store for changes by others, and may use cached values
        only for seconds.
        """

    def subscribe(self, subject: str, receive: Receive) -> None:
        """Register the callback for messages of other nodes on a subject; one for each subject."""

    def on_gap(self, call: Callable[[], None]) -> None:
        """Register a callback for the moment when the node is connected again after a gap.

        The callback drops cached values, and reads what may be waiting for connections.
        """

    def on_replaced(self, call: Replaced) -> None:
        """Register a callback for devices that reconnected to another node."""

    def publish(self, subject: str, data: bytes) -> None:
        """Send a message to all other nodes."""

    def send_to_holder(self, subject: str, device_id: str, data: bytes) -> None:
        """Send a message to the node that holds a device, if another node does."""

    def hold(self, device_id: str, since: int) -> None:
        """Register the connection of a device on this node, opened at `since`.

        `since` is in milliseconds by the clock that all nodes share. The newest connection wins:
        the node with the older one is notified, whether that is the other node or this one.
        """

    def release(self, device_id: str) -> None:
        """Remove the connection of a device from this node."""

    async def settle(self) -> None:
        """Wait until the others see which devices this node holds, or cannot be reached.

        After that, reading a device's waiting messages misses nothing: messages stored later are
        sent to this node.
        """

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        """Return which of the devices other nodes hold; none if they cannot be asked."""


class NoBus:
    """The `Bus` port of a node without a bus: nothing is sent or received.

    If it is alone on its database there is nothing to receive; otherwise it must ask the store.
    """

    def __init__(self, *, is_alone: bool) -> None:
        self.is_connected = is_alone

    def subscribe(self, subject: str, receive: Receive) -> None: ...

    def on_gap(self, call: Callable[[], None]) -> None: ...

    def on_replaced(self, call: Replaced) -> None: ...

    def publish(self, subject: str, data: bytes) -> None: ...

    def send_to_holder(self, subject: str, device_id: str, data: bytes) -> None: ...

    def hold(self, device_id: str, since: int) -> None: ...

    def release(self, device_id: str) -> None: ...

    async def settle(self) -> None: ...

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        del device_ids
        return frozenset()


# For code that runs without a bus.
ALONE: Bus = NoBus(is_alone=True)


class DropReason(StrEnum):
    """Why a message did not leave this node, or was not understood here."""

    UNAVAILABLE = "unavailable"  # no node could be reached
    FULL = "full"  # more waited than there is space for
    UNREADABLE = "unreadable"  # another version's frame


@dataclass(slots=True)
class BusCounts:
    """Counts of a bus since its start; the messages of one loop turn are sent in one frame."""

    messages_sent: int = 0
    messages_received: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    rebuilds: int = 0  # how often it subscribed again
    dropped: dict[DropReason, int] = field(default_factory=lambda: defaultdict(int))
