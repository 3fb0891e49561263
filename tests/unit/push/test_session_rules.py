"""The session against a store and a device that do what they like: what always holds, and that
everything due arrives in the end.
"""

import json
from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clarion.push.model import Message, PushPriority
from clarion.push.session import (
    ACK_LIMIT_MS,
    IN_FLIGHT_LIMIT,
    MAILBOX_LIMIT,
    Acknowledged,
    Authorise,
    DeviceSession,
    Dropped,
    Effect,
    Refill,
)
from clarion.push.topic_dispatch import CHUNK
from clarion.sockets.protocol import HEARTBEAT_S, SILENCE_LIMIT_MS, Close, CloseCode, SendFrame
from tests.factories import NOW, make_device, make_message

PRIORITIES = st.sampled_from(PushPriority)
DEVICE = make_device()
LONG_MS, SHORT_MS = 10_000_000, 4_000
# A connection that ends too soon shows little.
STEPS_BEFORE_THE_END = 25


@dataclass
class Reading:
    """A read of the store: asked for, perhaps done, not yet handed over."""

    least: PushPriority
    found: list[Message] | None = None
    is_all: bool = False


class Gateway(RuleBasedStateMachine):
    """One device that comes again and again, and the store behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.stored: dict[str, Message] = {}
        self.to_offer: list[Message] = []
        self.connect()

    def connect(self) -> None:
        """Come (again): what was not acknowledged is in the store as before."""
        self.session = DeviceSession(self.now)
        self.reading: Reading | None = None
        self.in_flight: dict[str, Message] = {}
        self.acknowledged: set[str] = set()
        self.to_record: list[Message] = []
        self.replies = Counter[str]()
        self.steps = 0
        self.is_window_open = False

    # What the session says.

    def carry_out(self, effects: list[Effect]) -> None:
        sent: list[Message] = []
        for effect in effects:
            match effect:
                case SendFrame(data):
                    self.send(json.loads(data), sent)
                case Close(code):
                    assert code in CloseCode
                    assert effect is effects[-1]
                case Acknowledged(messages):
                    self.to_record += messages
                case Dropped(messages):
                    assert all(self.is_over(message) for message in messages)
                case Refill(least):
                    self.ask(least)
                case Authorise():
                    self.session.device = DEVICE
        self.check_order(sent)

    def send(self, frame: dict[str, str], sent: list[Message]) -> None:
        assert not self.session.is_closed
        self.replies[frame["type"]] += 1
        if frame["type"] != "notification":
            return
        message = known(frame["id"])
        assert self.session.is_ready
        assert self.session.is_enabled, "nothing to a disabled device"
        assert not self.session.is_paused
        assert message.expires_at > self.now
        assert message.id not in self.in_flight, "sent twice"
        assert message.id not in self.acknowledged, "sent again after its acknowledgement"
        self.in_flight[message.id] = message
        assert len(self.in_flight) <= IN_FLIGHT_LIMIT
        sent.append(message)

    def ask(self, least: PushPriority) -> None:
        assert self.reading is None, "one read at a time"
        assert self.session.is_ready
        assert self.session.is_enabled
        if least is PushPriority.LOW:
            assert self.is_window_open, "low priority only in windows"
        else:
            assert least is self.session.least
        self.reading = Reading(least)

    def check_order(self, sent: list[Message]) -> None:
        """What goes out is the most important of what is in hand, and of that the oldest."""
        order = [(-message.priority, message.sequence) for message in sent]
        assert order == sorted(order)
        left = [(-m.priority, m.sequence) for m in self.mailbox]
        assert not sent or not left or order[-1] <= min(left)

    def is_over(self, message: Message) -> bool:
        return message.expires_at <= self.now or message.id not in self.stored

    @property
    def mailbox(self) -> list[Message]:
        return [entry[-1] for entry in self.session._mailbox or ()]

    def receive(self, **frame: object) -> None:
        data = json.dumps(frame).encode()
        self.carry_out(self.session.receive(data, is_text=True, now=self.now))

    # A connection begins and ends.

    @initialize(is_welcome=st.booleans())
    def say_hello(self, *, is_welcome: bool) -> None:
        self.receive(type="hello", token="t", secret="s")
        assert self.session.device is DEVICE
        if is_welcome:
            self.welcome()
            self.read()
            self.refill()

    @precondition(lambda self: not self.session.is_ready)
    @rule()
    def welcome(self) -> None:
        self.is_window_open = self.session.is_enabled
        self.carry_out(self.session.welcome(len(self.stored)))
        assert self.replies["ready"] == (not self.session.is_closed)

    @precondition(lambda self: self.steps > STEPS_BEFORE_THE_END)
    @rule(code=st.none() | st.sampled_from(CloseCode))
    def end(self, code: CloseCode | None) -> None:
        """End it from outside, or by a second hello."""
        was_closed = self.session.is_closed
        if code is None:
            self.receive(type="hello", token="t", secret="s")
        else:
            assert self.session.end(code, "") == ([] if was_closed else [Close(code, "")])
        assert self.session.is_closed

    @precondition(lambda self: self.session.is_closed)
    @rule()
    def come_again(self) -> None:
        self.connect()
        self.say_hello(is_welcome=False)

    # Messages come in: stored first, offered then.

    @rule(
        priority=PRIORITIES,
        collapse_id=st.sampled_from([None, None, "c", "d"]),
        is_stored=st.sampled_from([True, True, True, False]),
        life_ms=st.sampled_from([SHORT_MS, LONG_MS, LONG_MS]),
    )
    def push(
        self, priority: PushPriority, collapse_id: str | None, life_ms: int, *, is_stored: bool
    ) -> None:
        """Store a message; it may be a while until it is offered."""
        message = make(
            priority=priority,
            collapse_id=collapse_id,
            is_stored=is_stored,
            created_at=self.now,
            expires_at=self.now + life_ms,
        )
        if collapse_id:
            same = [m for m in self.stored.values() if m.collapse_id == collapse_id]
            for older in same:
                del self.stored[older.id]
        if is_stored:
            self.stored[message.id] = message
        self.to_offer.append(message)

    @rule(priority=PRIORITIES, count=st.sampled_from([1, 20, 100, 300]), is_stored=st.booleans())
    def push_many(self, priority: PushPriority, count: int, *, is_stored: bool) -> None:
        for _ in range(count):
            self.push(priority, None, LONG_MS, is_stored=is_stored)
        self.offer(1_000)

    @precondition(lambda self: self.to_offer)
    @rule(count=st.sampled_from([1, 1_000]))
    def offer(self, count: int) -> None:
        offered, self.to_offer = self.to_offer[:count], self.to_offer[count:]
        for message in offered:
            least, had = self.session.least, self.session.in_hand
            taken, effects = self.session.offer(message, self.now)
            self.carry_out(effects)
            if taken:
                assert message.id not in had
                assert message.priority >= least or not message.is_stored

    @rule()
    def remind(self) -> None:
        self.carry_out(self.session.fall_behind())

    # The store is read and written.

    @precondition(lambda self: self.reading)
    @rule(is_slow=st.booleans())
    def go_on_reading(self, *, is_slow: bool) -> None:
        assert self.reading
        if self.reading.found is not None:
            self.refill()
            return
        self.read()
        if not is_slow:
            self.refill()

    def read(self) -> None:
        assert self.reading
        skip, least = self.session.in_hand, self.reading.least
        waiting = [m for m in self.stored.values() if m.id not in skip and m.priority >= least]
        waiting = [m for m in waiting if m.expires_at > self.now]
        waiting.sort(key=lambda m: (-m.priority, m.sequence))
        self.reading.found, self.reading.is_all = waiting[:CHUNK], len(waiting) < CHUNK

    def refill(self) -> None:
        reading, self.reading = self.reading, None
        assert reading
        had_news = self.session._has_news
        effects = self.session.refill(reading.found or [], self.now, is_all=reading.is_all)
        if reading.is_all and not had_news:
            self.is_window_open = False
        self.carry_out(effects)

    @precondition(lambda self: self.reading)
    @rule()
    def fail_to_read(self) -> None:
        self.reading = None
        self.carry_out(self.session.refill([], self.now, is_all=False))

    @precondition(lambda self: self.to_record)
    @rule()
    def record(self) -> None:
        # Commits are answered in their order: what was stored before is offered by now.
        self.offer(len(self.to_offer))
        recorded, self.to_record = self.to_record, []
        for message in recorded:
            self.stored.pop(message.id, None)
        self.carry_out(self.session.settle(recorded))

    # The device does something.

    @precondition(lambda self: self.session.device and not self.session.is_closed)
    @rule(
        count=st.sampled_from([1, 3, 200]),
        is_newest_first=st.booleans(),
        others=st.lists(st.sampled_from(["foreign", "", "0"]), max_size=2),
    )
    def acknowledge(self, count: int, others: list[str], *, is_newest_first: bool) -> None:
        ids = list(self.in_flight)[:: -1 if is_newest_first else 1][:count]
        for name in ids:
            del self.in_flight[name]
        self.acknowledged.update(ids)
        before = len(self.to_record)
        self.receive(type="ack", ids=[*others, *ids, *ids])
        assert [message.id for message in self.to_record[before:]] == ids

    @precondition(lambda self: self.session.device and not self.session.is_closed)
    @rule(
        foreground=st.sampled_from([None, True, False]),
        enabled=st.sampled_from([None, True, True, False]),
    )
    def change_state(self, *, foreground: bool | None, enabled: bool | None) -> None:
        self.receive(type="state", foreground=foreground, enabled=enabled)
        assert foreground in (None, self.session.is_foreground)
        assert enabled in (None, self.session.is_enabled)

    @precondition(lambda self: self.session.device and not self.session.is_closed)
    @rule()
    def ping(self) -> None:
        pongs = self.replies["pong"]
        self.receive(type="ping")
        # A client that does not read gets no pongs: it could make the server keep any number.
        assert self.replies["pong"] == pongs + (not self.session.is_paused)

    @rule()
    def pause(self) -> None:
        self.session.is_paused = True

    @rule()
    def resume(self) -> None:
        self.carry_out(self.session.resume(self.now))

    # Time passes.

    @precondition(lambda self: self.session.is_ready)
    @rule()
    def open_window(self) -> None:
        self.is_window_open = self.is_window_open or self.session.is_enabled
        self.carry_out(self.session.open_window())

    @precondition(lambda self: self.steps > STEPS_BEFORE_THE_END)
    @rule(ms=st.sampled_from([HEARTBEAT_S * 1_000, SILENCE_LIMIT_MS]))
    def stand_still(self, ms: int) -> None:
        self.tick(ms)

    @rule(ms=st.sampled_from([1, 1_000, 5_000]))
    def tick(self, ms: int) -> None:
        self.now += ms
        was_closed, pings = self.session.is_closed, self.replies["ping"]
        late = [at for _, at in (self.session._in_flight or {}).values()]
        is_late = any(self.now - at >= ACK_LIMIT_MS for at in late)
        silence = self.now - self.session.received_at
        self.carry_out(self.session.tick(self.now))
        if not was_closed:
            assert self.session.is_closed is (silence >= SILENCE_LIMIT_MS or is_late)
        assert self.replies["ping"] <= pings + (silence >= HEARTBEAT_S * 1_000)

    # What holds at any time.

    @invariant()
    def the_mailbox_has_a_limit(self) -> None:
        self.steps += 1
        assert len(self.mailbox) <= MAILBOX_LIMIT + CHUNK
        assert len({message.id for message in self.mailbox}) == len(self.mailbox)

    @invariant()
    def of_one_collapse_id_the_newest_is_in_the_mailbox(self) -> None:
        kept = Counter(m.collapse_id for m in self.mailbox if m.collapse_id and m.is_stored)
        assert max(kept.values(), default=0) <= 1

    @invariant()
    def the_session_knows_what_is_in_hand(self) -> None:
        assert list(self.session._in_flight or ()) == list(self.in_flight)
        kept = {message.id for message in (*self.mailbox, *self.to_record)}
        assert self.session.in_hand == kept | self.in_flight.keys()

    # In the end everything due has arrived.

    def teardown(self) -> None:
        if self.session.is_closed:
            self.come_again()
        if not self.session.is_ready:
            self.welcome()
        self.session.received_at = self.now
        self.receive(type="state", enabled=True)
        self.resume()
        self.deliver()
        due = [m for m in self.stored.values() if m.priority >= self.session.least]
        assert not [m for m in due if m.expires_at > self.now], "due, and not delivered"
        self.open_window()
        self.deliver()
        assert not [m for m in self.stored.values() if m.expires_at > self.now]

    def deliver(self) -> None:
        """Let store and device do their part until nothing is left to do."""
        turns = 20 + len(self.stored)
        while self.to_offer or self.reading or self.in_flight or self.to_record:
            turns -= 1
            assert turns, "it goes round in circles"
            if self.to_offer:
                self.offer(1_000)
            if self.reading:
                self.go_on_reading(is_slow=False)
            if self.in_flight:
                self.acknowledge(200, [], is_newest_first=False)
            if self.to_record:
                self.record()


MADE: dict[str, Message] = {}


def make(**changes: object) -> Message:
    message = make_message(DEVICE.id, **changes)
    MADE[message.id] = message
    return message


def known(message_id: str) -> Message:
    return MADE[message_id]


TestSession = Gateway.TestCase
TestSession.settings = settings(max_examples=100, stateful_step_count=60)
