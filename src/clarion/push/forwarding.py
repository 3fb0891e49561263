"""Messages to devices that are connected to another node.

A message is stored before it is forwarded. The node that has the device's connection offers it as
if it had accepted it itself; if the device has disconnected by then, the message is still stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from clarion.clock import Clock
from clarion.nodes.bus import Bus, NoBus
from clarion.push.connections import Connections, offer, read_store
from clarion.push.model import Message
from clarion.telemetry.logs import get_logger

MESSAGE = "push.message"
WAITING = "push.waiting"
WITHDRAWN = "push.withdrawn"
encode = msgspec.msgpack.Encoder().encode
decode_message = msgspec.msgpack.Decoder(Message).decode
decode_pair = msgspec.msgpack.Decoder(tuple[str, str]).decode
_decode_id = msgspec.msgpack.Decoder(str).decode
T = TypeVar("T")


class Forwarding:
    """Forwards messages to the node that has the connection of a device, and receives others."""

    def __init__(self, bus: Bus, connections: Connections, clock: Clock) -> None:
        self.bus = bus
        # Then messages are not encoded at all.
        self._is_alone = isinstance(bus, NoBus)
        self._connections = connections
        self._clock = clock
        # Called for a message that this node cannot read.
        self.on_unreadable: Callable[[], None] = lambda: None
        bus.subscribe(MESSAGE, self._take_messages)
        bus.subscribe(WAITING, self._take_waiting)
        bus.subscribe(WITHDRAWN, self._take_withdrawn)
        bus.on_replaced(connections.end_replaced)

    def forward(self, message: Message) -> None:
        """Have a stored message offered by the node that its device is connected to, if any."""
        if not self._is_alone:
            self.bus.send_to_holder(MESSAGE, message.device_id, encode(message))

    def announce_waiting(self, device_id: str) -> None:
        """Let a device's connection on another node read the stored messages."""
        self.bus.send_to_holder(WAITING, device_id, encode(device_id))

    def withdraw(self, device_id: str, message_id: str) -> None:
        """Have a cancelled message dropped by the node where it waits to be sent."""
        self.bus.send_to_holder(WITHDRAWN, device_id, encode((device_id, message_id)))

    def _take_messages(self, several: Sequence[bytes]) -> None:
        now = self._clock.monotonic()
        for message in self.read(MESSAGE, several, decode_message):
            if connection := self._connections.get(message.device_id):
                offer(connection, message, now)

    def _take_waiting(self, several: Sequence[bytes]) -> None:
        for device_id in self.read(WAITING, several, _decode_id):
            if connection := self._connections.get(device_id):
                read_store(connection)

    def _take_withdrawn(self, several: Sequence[bytes]) -> None:
        for device_id, message_id in self.read(WITHDRAWN, several, decode_pair):
            if connection := self._connections.get(device_id):
                connection.carry_out(connection.session.withdraw(message_id))

    def read(
        self, subject: str, several: Sequence[bytes], decode: Callable[[bytes], T]
    ) -> Iterator[T]:
        """Yield decoded messages; those of nodes with another version may be unreadable."""
        for data in several:
            try:
                yield decode(data)
            except msgspec.DecodeError:
                get_logger().warning("unknown_message_of_node", subject=subject)
                self.on_unreadable()
