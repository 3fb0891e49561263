"""Who is connected to this node: device → connection, and topic → connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from clarion.sockets.protocol import CloseCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from clarion.push.model import Message, PushPriority
    from clarion.push.session import DeviceSession, Effect


@dataclass(slots=True)
class TopicCursor:
    """How far a connected device is with a topic.

    Everything up to `read` was looked at: it is acknowledged, outstanding, or put off because it
    can wait for a device that is not awake.
    """

    acknowledged: int
    read: int
    outstanding: set[int] = field(default_factory=set)
    put_off: dict[int, PushPriority] = field(default_factory=dict)
    is_behind: bool = True

    def acknowledge(self, sequence: int) -> bool:
        """Take an acknowledgement; say whether the cursor moved."""
        self.outstanding.discard(sequence)
        reached = min((*self.outstanding, *self.put_off), default=self.read + 1) - 1
        moved, self.acknowledged = reached > self.acknowledged, max(reached, self.acknowledged)
        return moved

    def wants(self, least: PushPriority) -> bool:
        """Whether there is something to read, from this priority up."""
        return self.is_behind or any(priority >= least for priority in self.put_off.values())

    def due(self, least: PushPriority) -> set[int]:
        """Return what was put off and may be sent now, from this priority up."""
        return {sequence for sequence, priority in self.put_off.items() if priority >= least}

    def start(self, due: Collection[int]) -> int:
        """Return the sequence behind which to read what is due and what is new."""
        return min(due, default=self.read + 1) - 1

    def take(
        self, found: Sequence[Message], due: Collection[int], least: PushPriority, *, is_all: bool
    ) -> list[Message]:
        """Know what was read behind `start`, and return what is to be sent of it."""
        last = self.read if is_all else found[-1].sequence
        for sequence in due:
            if sequence <= last:  # it is in what was found, or gone from the store
                self.put_off.pop(sequence, None)
        taken = [message for message in found if self._is_wanted(message, due, least)]
        self.outstanding.update(message.sequence for message in taken)
        return taken

    def _is_wanted(self, message: Message, due: Collection[int], least: PushPriority) -> bool:
        if message.sequence <= self.read:
            return message.sequence in due
        self.read = message.sequence
        if message.priority >= least:
            return True
        self.put_off[message.sequence] = message.priority
        return False


class Connection(Protocol):
    """A device's connection, as the rest of the gateway sees it."""

    session: DeviceSession
    topics: dict[str, TopicCursor] | None

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the session says."""
        ...


class Connections:
    """The connections of this node. The newest connection of a device wins."""

    def __init__(self) -> None:
        self._by_device: dict[str, Connection] = {}
        self._by_topic: dict[tuple[str, str], set[Connection]] = {}

    def __len__(self) -> int:
        """How many devices are connected."""
        return len(self._by_device)

    def __iter__(self) -> Iterator[Connection]:
        """Walk the connections; adding and removing meanwhile does no harm."""
        return iter(list(self._by_device.values()))

    def get(self, device_id: str) -> Connection | None:
        """Return the device's connection, or None."""
        return self._by_device.get(device_id)

    def add(self, device_id: str, connection: Connection) -> None:
        """Take a connection in; one that the device had before is closed."""
        older = self._by_device.get(device_id)
        self._by_device[device_id] = connection
        if older is not None and older is not connection:
            self._leave_topics(older)
            older.carry_out(older.session.end(CloseCode.REPLACED, "a newer connection took over"))

    def remove(self, connection: Connection) -> bool:
        """Let a connection go; one that was replaced does not take its successor with it."""
        device = connection.session.device
        self._leave_topics(connection)
        if device is None or self._by_device.get(device.id) is not connection:
            return False
        del self._by_device[device.id]
        return True

    def hear(self, app_id: str, topic: str, connection: Connection, cursor: TopicCursor) -> None:
        """Let a connection hear a topic."""
        if connection.topics is None:
            connection.topics = {}
        connection.topics[topic] = cursor
        self._by_topic.setdefault((app_id, topic), set()).add(connection)

    def ignore(self, app_id: str, topic: str, connection: Connection) -> None:
        """End that."""
        if connection.topics is not None:
            connection.topics.pop(topic, None)
        hearing = self._by_topic.get((app_id, topic))
        if hearing is not None:
            hearing.discard(connection)
            if not hearing:
                del self._by_topic[app_id, topic]

    def hearing(self, app_id: str, topic: str) -> list[Connection]:
        """Return the connections that hear a topic."""
        return list(self._by_topic.get((app_id, topic), ()))

    def _leave_topics(self, connection: Connection) -> None:
        device = connection.session.device
        if device is not None:
            for topic in list(connection.topics or ()):
                self.ignore(device.app_id, topic, connection)
