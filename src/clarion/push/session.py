"""The protocol of one device connection, without any I/O.

The mailbox is the head of the device's stored messages: when it is full, the rest stays in the
store and is read when acknowledgements have made room.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from clarion.clock import Clock
from clarion.push import frames
from clarion.push.frames import Ack, Frame, Hello, State, encode_once
from clarion.push.model import Device, Message, PushPriority
from clarion.push.topic_batch import TopicBatch
from clarion.sockets.protocol import (
    HEARTBEAT_S,
    Close,
    CloseCode,
    Ping,
    Pong,
    SendFrame,
    Session,
)

# A device that takes longer to acknowledge is disconnected; it gets everything again when it
# reconnects.
ACK_LIMIT_MS = 60_000
MAILBOX_LIMIT = 128
# Messages that may be unacknowledged at a time.
IN_FLIGHT_LIMIT = 128
# More is read from the store when this number or less is waiting or in flight.
LOW_WATER = 32


class Authorise(msgspec.Struct, frozen=True, gc=False):
    """Authenticate the device; then set `device` and call `welcome`, or `refuse`."""

    hello: Hello


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """The device has these messages: record that, then call `settle`."""

    messages: tuple[Message, ...]


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """These will not be sent: they have expired, or a newer one has replaced them."""

    messages: tuple[Message, ...]


class Refill(msgspec.Struct, frozen=True, gc=False):
    """Read more stored messages of this priority and higher, and call `refill`."""

    least: PushPriority


# What identifies a message: one to a topic may have the id of a message to another topic, or to the
# device itself.
MessageKey = tuple[str | None, str]


def key_of(message: Message) -> MessageKey:
    """Return the topic and the id of a message."""
    return message.topic, message.id


DeviceRequest = Authorise | Acknowledged | Dropped | Refill
Effect = SendFrame | Close | DeviceRequest


class ClockOffset:
    """The time of day, at which messages expire, less the reading of the monotonic clock.

    All sessions share it, and it is read every few seconds: the clock may be set. Without a clock
    the two are the same.
    """

    __slots__ = ("_clock", "ms")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.ms = 0
        self.read()

    def read(self) -> None:
        """Compare the clocks again."""
        if self._clock is not None:
            self.ms = self._clock.now() - self._clock.monotonic()

    def has_passed(self, moment: int, now: int) -> bool:
        """Whether a time of day has passed at a reading of the monotonic clock.

        The answer is final for a message, so the clocks are compared again before it is yes: the
        clock may just have been set back.
        """
        if moment > now + self.ms:
            return False
        self.read()
        return moment <= now + self.ms


class DeviceSession(Session[Frame, DeviceRequest]):
    """One connection of a device, from its first frame to its last."""

    __slots__ = (
        "_acking",
        "_backlog_least",
        "_clock_offset",
        "_has_deferred",
        "_has_news",
        "_in_flight",
        "_is_behind",
        "_is_draining",
        "_is_refilling",
        "_mailbox",
        "connected_at",
        "device",
        "is_enabled",
        "is_foreground",
    )

    _decoder = frames.decoder

    def __init__(self, now: int, clock_offset: ClockOffset | None = None) -> None:
        super().__init__(now)
        self._clock_offset = clock_offset or ClockOffset()
        # Set when it has authenticated; `welcome` follows when its topics are read.
        self.device: Device | None = None
        # The time of day, for the metrics: messages accepted before it waited for the connection.
        self.connected_at = 0
        # A device that never sends a state counts as awake.
        self.is_foreground = True
        self.is_enabled = True
        self._is_behind = False
        self._is_draining = False
        self._is_refilling = False
        # Something was stored or requested that the read in progress may not include.
        self._has_news = False
        self._has_deferred = False
        # The lowest priority of the backlog that is being sent; None: what may be sent at once.
        self._backlog_least: PushPriority | None = None
        # Created when first needed: most connections are idle, and there are many of them.
        self._mailbox: list[tuple[int, int, int, str, str, Message]] | None = None
        # By id, as in acknowledgements: of two messages with one id, the second waits.
        self._in_flight: dict[str, tuple[Message, int]] | None = None
        self._acking: set[MessageKey] | None = None

    # From the device.

    def _take(self, frame: Frame, now: int) -> list[Effect]:
        if type(frame) is Ack and self.device is not None:
            return self._take_ack(frame, now)
        if isinstance(frame, Hello):
            return self._take_hello(frame)
        may_wait = self._has_hello and isinstance(frame, Ping | Pong)
        if self.device is None and not may_wait:
            return self.end(CloseCode.BAD_FRAME, "the first frame must be a hello")
        match frame:
            case Ack():
                return self._take_ack(frame, now)
            case State():
                return self._take_state(frame, now)
            case Ping():
                return self._pong()
            case Pong():
                return []

    def _take_hello(self, hello: Hello) -> list[Effect]:
        if self._has_hello:
            return self.end(CloseCode.BAD_FRAME, "the hello was sent before")
        self._has_hello = True
        return [Authorise(hello)]

    def _take_ack(self, ack: Ack, now: int) -> list[Effect]:
        """Acknowledge messages in flight; other ids are ignored, they were acknowledged before."""
        in_flight = self._in_flight
        if not in_flight:
            return []
        ids = ack.all_ids() if ack.topic is None else [*ack.all_ids(), *self._up_to(ack)]
        done = tuple([in_flight.pop(each)[0] for each in ids if each in in_flight])
        if not done:
            return []
        if self._acking is None:
            self._acking = set()
        self._acking.update(map(key_of, done))
        acknowledged = Acknowledged(done)
        if not self._mailbox and not self._is_behind:
            return [acknowledged]
        return [acknowledged, *self._pump(now), *self._ask_for_more()]

    def _up_to(self, ack: Ack) -> list[str]:
        """Return the ids of a message and of those of its topic that were sent before it.

        Those sent after it may have a lower sequence: the device may not have them yet.
        """
        ids = []
        for message_id, (message, _) in (self._in_flight or {}).items():
            if message.topic == ack.topic:
                ids.append(message_id)
                if message.sequence == ack.sequence:
                    return ids
        return []

    def _take_state(self, state: State, now: int) -> list[Effect]:
        was_enabled, was_awake = self.is_enabled, self.is_awake
        if state.foreground is not None:
            self.is_foreground = state.foreground
        if state.enabled is not None:
            self.is_enabled = state.enabled
        if (self.is_enabled and not was_enabled) or (self.is_awake and not was_awake):
            return [*self._pump(now), *self.fall_behind()]
        return self._ask_for_more()

    # From the endpoint and dispatch.

    def welcome(self, pending: int, *, has_missed: bool = True) -> list[Effect]:
        """Answer the hello, and begin to send the stored messages.

        `has_missed` is False if nothing was stored when messages could already be offered to the
        connection: then the store is read only if something has been offered since.
        """
        if self.device is None or self.is_closed:
            return []
        self.is_ready = True
        ready = SendFrame(frames.encode_ready(self.device.id, HEARTBEAT_S, pending))
        if not has_missed and not self._is_behind:
            return [ready]
        self._has_deferred = True
        return [ready, *self.open_window()]

    def refuse(self) -> list[Effect]:
        """Close the connection of a device that has not authenticated."""
        return self.end(CloseCode.NOT_AUTHORISED, "unknown device, or wrong secret")

    def offer(self, message: Message, now: int) -> tuple[bool, list[Effect]]:
        """Accept a message that was just stored; return whether it was taken.

        If not, it is read from the store later; a message that is not stored is lost.
        """
        if self.is_closed or not self.is_ready or self._has(message):
            self._is_behind = self._is_behind or not self.is_ready
            return False, []
        if self._is_draining and message.is_stored:
            return False, []
        dropped = self._collapse(message)
        taken, effects = self._take_offer(message, now)
        return taken, [*dropped, *effects]

    def offer_batch(self, batch: TopicBatch, now: int) -> list[Effect] | None:
        """Take all messages of a batch at once, as they are.

        None if other messages wait, or if one needs a decision: then they are offered one by one.
        """
        is_able = self.is_ready and self.is_enabled and not (self.is_closed or self.is_paused)
        if not is_able or self._is_draining or self._is_behind or self._mailbox:
            return None
        if batch.least < self.least or self._clock_offset.has_passed(batch.expires_at, now):
            return None
        sent = self._in_flight
        if not sent:
            self._in_flight = batch.in_flight.copy()
        elif len(sent) + len(batch.messages) > IN_FLIGHT_LIMIT:
            return None
        elif sent.keys().isdisjoint(batch.in_flight):
            sent.update(batch.in_flight)
        else:
            return None
        return batch.frames

    def _take_offer(self, message: Message, now: int) -> tuple[bool, list[Effect]]:
        if not message.is_stored:
            return self._take_if_room(message, now) if self.is_enabled else (False, [])
        if self.puts_off(message):
            self._has_deferred = True
            return False, []
        if self._is_behind:
            return False, self.fall_behind()
        taken, effects = self._take_if_room(message, now)
        return taken, effects if taken else self.fall_behind()

    def _take_if_room(self, message: Message, now: int) -> tuple[bool, list[Effect]]:
        if len(self._mailbox or ()) >= MAILBOX_LIMIT:
            return False, []
        self._put(message)
        return True, self._pump(now)

    def puts_off(self, message: Message) -> bool:
        """Whether the message waits until the device is awake, or for a window."""
        return message.priority < self.least or not self.is_enabled

    def fall_behind(self) -> list[Effect]:
        """Note that more is stored than was offered.

        Its priority is chosen when it is read: the state of the device may change until then.
        """
        self._is_behind = self._has_deferred = True
        self._has_news = self._is_refilling
        return self._ask_for_more()

    def refill(self, messages: Iterable[Message], now: int, *, is_all: bool) -> list[Effect]:
        """Accept messages from the store; `is_all` if nothing else is stored."""
        is_all = is_all and not self._has_news
        self._is_refilling = self._has_news = False
        self._is_behind = not is_all
        if self._is_draining:
            return []
        if is_all:
            self._backlog_least = None
        dropped: list[Effect] = []
        for message in messages:
            if not self._has(message):
                # It may replace one that was read before it.
                dropped += self._collapse(message)
                self._put(message)
        return [*dropped, *self._pump(now), *self._ask_for_more()]

    def withdraw(self, message_id: str) -> list[Effect]:
        """Drop a message that was cancelled, if it was not sent yet."""
        waiting = (entry[-1] for entry in self._mailbox or ())
        return self._drop([each for each in waiting if each.id == message_id and not each.topic])

    def settle(self, messages: Iterable[Message]) -> list[Effect]:
        """Forget acknowledged messages: they are stored as delivered."""
        if self._acking is not None:
            self._acking.difference_update(map(key_of, messages))
        return self._ask_for_more()

    def drain(self) -> None:
        """Send nothing more that is stored: the next connection of the device gets it."""
        self._is_draining = True
        if self._mailbox:
            self._mailbox = [entry for entry in self._mailbox if not entry[-1].is_stored]
            heapq.heapify(self._mailbox)

    @property
    def is_drained(self) -> bool:
        """Whether all that was sent is acknowledged, and recorded as delivered."""
        return not self._in_flight and not self._acking

    def open_window(self) -> list[Effect]:
        """Send messages of every priority, if some were deferred and the device is enabled."""
        if not self._has_deferred or not self.is_enabled:
            return []
        self._backlog_least = PushPriority.LOW
        effects = self.fall_behind()
        self._has_deferred = False
        return effects

    def resume(self, now: int) -> list[Effect]:
        self.is_paused = False
        return [*self._pump(now), *self._ask_for_more()]

    def tick(self, now: int) -> list[Effect]:
        """Also close the connection of a device that does not acknowledge in time."""
        if self._is_ack_late(now) and not self._is_silent(now):
            return self.end(CloseCode.TOO_SLOW_OR_FAST, "messages were not acknowledged")
        return super().tick(now)

    def _is_ack_late(self, now: int) -> bool:
        if not self._in_flight:
            return False
        _, sent_at = next(iter(self._in_flight.values()))
        return now - sent_at >= ACK_LIMIT_MS

    # State.

    @property
    def is_awake(self) -> bool:
        """Whether the device takes messages that save its battery."""
        return self.is_foreground and self.is_enabled

    @property
    def least(self) -> PushPriority:
        """The lowest priority that may be sent at once."""
        return PushPriority.CONSIDERATE if self.is_foreground else PushPriority.IMMEDIATE

    @property
    def in_hand(self) -> AbstractSet[str]:
        """The ids of messages to the device that must not be read again.

        They wait, are in flight, or are acknowledged. Messages to topics have cursors instead.
        """
        waiting = {entry[3] for entry in self._mailbox or () if entry[-1].topic is None}
        sent = {key for key, (each, _) in (self._in_flight or {}).items() if each.topic is None}
        return waiting | sent | {key for topic, key in self._acking or () if topic is None}

    def _has(self, message: Message) -> bool:
        sent = (self._in_flight or {}).get(message.id)
        if sent is not None and sent[0].topic == message.topic:
            return True
        return key_of(message) in (self._acking or ()) or any(
            entry[3] == message.id and entry[-1].topic == message.topic
            for entry in self._mailbox or ()
        )

    def _put(self, message: Message) -> None:
        if self._mailbox is None:
            self._mailbox = []
        # Each topic has sequences of its own, so time comes first.
        order = (-message.priority, message.created_at, message.sequence)
        heapq.heappush(self._mailbox, (*order, message.id, message.topic or "", message))

    def _collapse(self, message: Message) -> list[Effect]:
        """Drop the messages in the mailbox that this one replaces."""
        if message.collapse_id is None or not self._mailbox:
            return []
        place, order = (message.collapse_id, message.topic), (message.created_at, message.sequence)
        replaced = [
            entry[-1]
            for entry in self._mailbox
            if (entry[-1].collapse_id, entry[-1].topic) == place and entry[1:3] < order
        ]
        return self._drop(replaced)

    def _drop(self, messages: Sequence[Message]) -> list[Effect]:
        if not messages:
            return []
        self._mailbox = [entry for entry in self._mailbox or () if entry[-1] not in messages]
        heapq.heapify(self._mailbox)
        return [Dropped(tuple(messages))]

    def _pump(self, now: int) -> list[Effect]:
        """Send from the mailbox until too many are in flight."""
        effects: list[Effect] = []
        if self.is_closed or self.is_paused or not self.is_enabled or not self._mailbox:
            return effects
        if self._in_flight is None:
            self._in_flight = {}
        waiting: list[Message] = []
        while self._mailbox and len(self._in_flight) < IN_FLIGHT_LIMIT:
            message = heapq.heappop(self._mailbox)[-1]
            if self._clock_offset.has_passed(message.expires_at, now):
                effects.append(Dropped((message,)))
            elif message.id in self._in_flight:
                waiting.append(message)
            else:
                self._in_flight[message.id] = (message, now)
                effects.append(SendFrame(encode_once(message)))
        for message in waiting:
            self._put(message)
        return effects

    def _ask_for_more(self) -> list[Effect]:
        """Request stored messages when few are waiting or in flight."""
        left = len(self._mailbox or ()) + len(self._in_flight or ())
        is_wanted = self._is_behind and self.is_enabled and left <= LOW_WATER
        is_able = self.is_ready and not self.is_paused and not self.is_closed
        is_able = is_able and not self._is_draining
        if not is_wanted or not is_able or self._is_refilling:
            return []
        self._is_refilling = True
        return [Refill(self._backlog_least or self.least)]
