"""Who is connected to this node: device → connection, and topic → connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from clarion.gateway.frames import CloseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clarion.gateway.session import Effect, Session


@dataclass(slots=True)
class TopicCursor:
    """How far a connected device is with a topic."""

    acknowledged: int
    read: int
    outstanding: set[int] = field(default_factory=set)
    is_behind: bool = True

    def acknowledge(self, sequence: int) -> bool:
        """Take an acknowledgement; say whether the cursor moved."""
        self.outstanding.discard(sequence)
        reached = min(self.outstanding) - 1 if self.outstanding else self.read
        moved, self.acknowledged = reached > self.acknowledged, max(reached, self.acknowledged)
        return moved


class Connection(Protocol):
    """A device's connection, as the rest of the gateway sees it."""

    session: Session
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
