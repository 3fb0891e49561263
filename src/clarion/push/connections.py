"""The connections of devices to this node, by device and by topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clarion.pacing import Pace
from clarion.push.model import Message, PushPriority
from clarion.push.session import DeviceSession, Effect
from clarion.sockets.protocol import APP_IS_DELETED, USER_IS_INACTIVE, CloseCode


@dataclass(slots=True, eq=False)
class TopicCursor:
    """The position of a connected device in a topic.

    Every message up to `read` was read: it is acknowledged, outstanding, or deferred because its
    priority is too low for a device that is not awake.
    """

    acknowledged: int
    read: int
    outstanding: set[int] = field(default_factory=set)
    deferred: dict[int, PushPriority] = field(default_factory=dict)
    is_behind: bool = True

    def advance(self) -> bool:
        """Move up to the first message that is outstanding or deferred; return whether it moved."""
        reached = min((*self.outstanding, *self.deferred), default=self.read + 1) - 1
        moved, self.acknowledged = reached > self.acknowledged, max(reached, self.acknowledged)
        return moved

    def wants(self, least: PushPriority) -> bool:
        """Return whether there are messages of at least this priority to read."""
        return self.is_behind or any(priority >= least for priority in self.deferred.values())

    def due(self, least: PushPriority) -> set[int]:
        """Return the deferred messages of at least this priority."""
        return {sequence for sequence, priority in self.deferred.items() if priority >= least}

    def start(self, due: Collection[int]) -> int:
        """Return the sequences after which to read due and new messages."""
        return min(due, default=self.read + 1) - 1

    def take(
        self, found: Sequence[Message], due: Collection[int], least: PushPriority, *, is_all: bool
    ) -> list[Message]:
        """Process the messages read after `start`; return those to send."""
        last = self.read if is_all else found[-1].sequence
        for sequence in due:
            if sequence <= last:  # it is in `found`, or was deleted
                self.deferred.pop(sequence, None)
        taken = [message for message in found if self._is_wanted(message, due, least)]
        self.outstanding.update(message.sequence for message in taken)
        return taken

    def _is_wanted(self, message: Message, due: Collection[int], least: PushPriority) -> bool:
        if message.sequence <= self.read:
            return message.sequence in due
        self.read = message.sequence
        if message.priority >= least:
            return True
        self.deferred[message.sequence] = message.priority
        return False


class Connection(Protocol):
    """The connection of a device."""

    session: DeviceSession
    topics: dict[str, TopicCursor] | None

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out the effects that the session returned."""


class Connections:
    """The connections of this node. The newest connection of a device wins."""

    def __init__(self) -> None:
        self._by_device: dict[str, Connection] = {}
        # In the order of their subscriptions.
        self._by_topic: dict[tuple[str, str], dict[Connection, None]] = {}
        # By app and user: the connections of the user's devices, a few at most.
        self._by_user: dict[tuple[str, str], tuple[Connection, ...]] = {}
        self._counts: dict[str, int] = {}
        # Look-ups since the start, for the metrics.
        self.hits = self.misses = 0

    def __len__(self) -> int:
        """Return the number of connected devices."""
        return len(self._by_device)

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over a copy, so that connections may be added and removed meanwhile."""
        return iter(list(self._by_device.values()))

    def count(self, app_id: str) -> int:
        """Return the number of connected devices of an app."""
        return self._counts.get(app_id, 0)

    def list_apps(self) -> list[str]:
        """Return the apps that have devices connected here."""
        return list(self._counts)

    def list_topics(self) -> dict[str, list[str]]:
        """Return the topics that connected devices are subscribed to, by app."""
        topics: dict[str, list[str]] = {}
        for app_id, topic in self._by_topic:
            topics.setdefault(app_id, []).append(topic)
        return topics

    def get(self, device_id: str) -> Connection | None:
        """Return the device's connection, or None."""
        connection = self._by_device.get(device_id)
        if connection is None:
            self.misses += 1
        else:
            self.hits += 1
        return connection

    def find(self, device_ids: Iterable[str]) -> list[Connection]:
        """Return the connections of those devices that have one; not counted as look-ups."""
        found = map(self._by_device.get, device_ids)
        return [connection for connection in found if connection is not None]

    def add(self, device_id: str, connection: Connection) -> None:
        """Add a connection; an older one of the same device is closed."""
        older = self._by_device.get(device_id)
        self._by_device[device_id] = connection
        if older is connection:
            return
        self._note(connection)
        if older is not None:
            self._forget(older)
            _replace(older)

    def end_replaced(self, device_ids: Iterable[str]) -> None:
        """Close the connections of devices that have a newer one elsewhere."""
        for connection in self.find(device_ids):
            _replace(connection)

    def end_older(self, device_id: str, newest_at: int) -> None:
        """Close the connection of a device if it was opened before its newest one."""
        connection = self._by_device.get(device_id)
        if connection is not None and connection.session.connected_at < newest_at:
            _replace(connection)

    def remove(self, connection: Connection) -> bool:
        """Remove a connection; False if it was replaced by a newer one, which stays."""
        device = connection.session.device
        if device is None or self._by_device.get(device.id) is not connection:
            self._unsubscribe_all(connection)
            return False
        del self._by_device[device.id]
        self._forget(connection)
        return True

    def disconnect_user(self, app_id: str, user_id: str) -> None:
        """Close the connections of the devices that were the user's when they connected."""
        for connection in self._by_user.get((app_id, user_id), ()):
            connection.carry_out(connection.session.end(CloseCode.NOT_AUTHORISED, USER_IS_INACTIVE))

    async def disconnect_app(self, app_id: str) -> None:
        """Close the connections of all devices of an app that was deleted."""
        if not self.count(app_id):
            return
        async for connection in Pace().over(self):
            device = connection.session.device
            if device is not None and device.app_id == app_id:
                connection.carry_out(connection.session.end(CloseCode.REVOKED, APP_IS_DELETED))

    def subscribe(
        self, app_id: str, topic: str, connection: Connection, cursor: TopicCursor
    ) -> None:
        if connection.topics is None:
            connection.topics = {}
        connection.topics[topic] = cursor
        self._by_topic.setdefault((app_id, topic), {})[connection] = None

    def unsubscribe(self, app_id: str, topic: str, connection: Connection) -> None:
        if connection.topics is not None:
            connection.topics.pop(topic, None)
        subscribers = self._by_topic.get((app_id, topic))
        if subscribers is not None:
            subscribers.pop(connection, None)
            if not subscribers:
                del self._by_topic[app_id, topic]

    def subscribers(self, app_id: str, topic: str) -> list[Connection]:
        return list(self._by_topic.get((app_id, topic), ()))

    def has_subscribers(self, app_id: str, topic: str) -> bool:
        return (app_id, topic) in self._by_topic

    def _note(self, connection: Connection) -> None:
        device = connection.session.device
        if device is None:
            return
        self._counts[device.app_id] = self._counts.get(device.app_id, 0) + 1
        if device.details.user_id is not None:
            owner = (device.app_id, device.details.user_id)
            self._by_user[owner] = (*self._by_user.get(owner, ()), connection)

    def _forget(self, connection: Connection) -> None:
        device = connection.session.device
        self._unsubscribe_all(connection)
        if device is None:
            return
        self._counts[device.app_id] -= 1
        if not self._counts[device.app_id]:
            del self._counts[device.app_id]
        if device.details.user_id is not None:
            owner = (device.app_id, device.details.user_id)
            left = tuple(each for each in self._by_user[owner] if each is not connection)
            self._by_user[owner] = left
            if not left:
                del self._by_user[owner]

    def _unsubscribe_all(self, connection: Connection) -> None:
        device = connection.session.device
        if device is not None:
            for topic in list(connection.topics or ()):
                self.unsubscribe(device.app_id, topic, connection)


def _replace(connection: Connection) -> None:
    connection.carry_out(connection.session.end(CloseCode.REPLACED, "a newer connection took over"))


def offer(connection: Connection, message: Message, now: int) -> bool:
    """Offer a message that was just stored to a connection; return whether it was taken."""
    is_taken, effects = connection.session.offer(message, now)
    connection.carry_out(effects)
    return is_taken


def read_store(connection: Connection) -> None:
    """Have a connection read stored messages that were not offered to it."""
    connection.carry_out(connection.session.fall_behind())
