"""Connections: the newest of a device wins, a late close removes no other; cursors of topics."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from clarion.push.connections import Connections, TopicCursor
from clarion.push.model import Device, DeviceDetails, Message, PushPriority
from clarion.push.session import DeviceSession, Effect
from clarion.sockets.protocol import Close, CloseCode
from tests.factories import NOW, make_broadcast, make_device


class Wire:
    """A `Connection` that records its effects."""

    def __init__(self, device: Device) -> None:
        self.session = DeviceSession(NOW)
        self.session.device = device
        self.topics: dict[str, TopicCursor] | None = None
        self.effects: list[Effect] = []

    def carry_out(self, effects: Iterable[Effect]) -> None:
        self.effects += effects


def connected(connections: Connections, device: Device, *topics: str) -> Wire:
    wire = Wire(device)
    connections.add(device.id, wire)
    for topic in topics:
        connections.subscribe("app", topic, wire, TopicCursor(0, 0))
    return wire


def test_a_device_is_found_while_it_is_connected() -> None:
    connections, device = Connections(), make_device()
    assert connections.get(device.id) is None
    wire = connected(connections, device)
    assert connections.get(device.id) is wire
    assert (len(connections), list(connections)) == (1, [wire])
    assert connections.remove(wire) is True
    assert (connections.get(device.id), len(connections)) == (None, 0)


def test_the_newest_connection_of_a_device_wins() -> None:
    connections, device = Connections(), make_device()
    older, newer = connected(connections, device), connected(connections, device)
    assert connections.get(device.id) is newer
    (close,) = older.effects
    assert isinstance(close, Close)
    assert close.code is CloseCode.REPLACED
    assert (len(connections), newer.effects) == (1, [])


def test_the_late_close_of_the_older_does_not_remove_the_newer() -> None:
    connections, device = Connections(), make_device()
    older, newer = (connected(connections, device, "news") for _ in range(2))
    assert connections.remove(older) is False
    assert connections.get(device.id) is newer
    assert connections.subscribers("app", "news") == [newer]


def test_devices_are_counted_by_app() -> None:
    connections = Connections()
    device = make_device()
    wires = [connected(connections, each) for each in (device, make_device(), make_device("b"))]
    newer = connected(connections, device)
    assert connections.remove(wires[0]) is False
    assert [connections.count(app_id) for app_id in ("app", "b", "c")] == [2, 1, 0]
    for wire in (newer, *wires[1:]):
        assert connections.remove(wire) is True
    assert [connections.count(app_id) for app_id in ("app", "b", "c")] == [0, 0, 0]


def test_the_devices_of_a_user_are_disconnected_and_no_others() -> None:
    connections, ana, bo = Connections(), DeviceDetails(user_id="ana"), DeviceDetails(user_id="bo")
    first, second = (connected(connections, make_device(details=ana)) for _ in range(2))
    others = [
        connected(connections, each)
        for each in (make_device(details=bo), make_device("b", details=ana), make_device())
    ]
    left = connected(connections, make_device(details=ana))
    connections.remove(left)
    connections.disconnect_user("app", "ana")
    connections.disconnect_user("app", "nobody")
    for wire in (first, second):
        assert wire.effects == [Close(CloseCode.NOT_AUTHORISED, "the user is inactive or erased")]
        connections.remove(wire)
    assert [wire.effects for wire in (*others, left)] == [[], [], [], []]
    connections.disconnect_user("app", "ana")
    assert len(connections) == 3


def test_a_connection_without_a_hello_can_be_removed() -> None:
    connections, wire = Connections(), Wire(make_device())
    wire.session.device = None
    assert connections.remove(wire) is False


def test_adding_a_connection_again_does_not_end_it() -> None:
    connections, device = Connections(), make_device()
    wire = connected(connections, device)
    connections.add(device.id, wire)
    assert wire.effects == []


def test_a_replaced_connection_is_unsubscribed() -> None:
    connections, device = Connections(), make_device()
    older = connected(connections, device, "news")
    newer = connected(connections, device)
    assert connections.subscribers("app", "news") == []
    assert (older.topics, newer.topics) == ({}, None)


def test_subscribers_are_found_by_app_and_topic_until_they_unsubscribe() -> None:
    connections = Connections()
    both = [connected(connections, make_device(), "news") for _ in range(2)]
    assert set(connections.subscribers("app", "news")) == set(both)
    assert connections.subscribers("other", "news") == []
    connections.unsubscribe("app", "news", both[0])
    connections.unsubscribe("app", "unknown", both[0])
    assert connections.subscribers("app", "news") == both[1:]
    connections.remove(both[1])
    assert connections._by_topic == {}


def test_connections_may_be_added_and_removed_during_iteration() -> None:
    connections = Connections()
    wires = [connected(connections, make_device()) for _ in range(3)]
    seen = []
    for wire in connections:
        seen.append(wire)
        connections.remove(wires[-1])
        connected(connections, make_device())
    assert seen == wires


def acknowledge(cursor: TopicCursor, sequence: int) -> bool:
    """Acknowledge a message as `Acknowledgements` does; return whether the cursor moved."""
    cursor.outstanding.discard(sequence)
    return cursor.advance()


def test_a_cursor_moves_when_everything_before_it_is_acknowledged() -> None:
    cursor = TopicCursor(5, 8, {6, 7, 8})
    assert acknowledge(cursor, 7) is False
    assert acknowledge(cursor, 6) is True
    assert cursor.acknowledged == 7
    assert acknowledge(cursor, 8) is True
    assert cursor.acknowledged == 8


def test_what_is_acknowledged_twice_or_was_never_sent_moves_nothing() -> None:
    cursor = TopicCursor(5, 6, {6})
    assert acknowledge(cursor, 6) is True
    assert acknowledge(cursor, 6) is False
    assert acknowledge(cursor, 99) is False
    assert cursor.acknowledged == 6


ACTS = st.lists(
    st.tuples(st.sampled_from(["send", "skip", "acknowledge"]), st.integers(1, 30)), max_size=60
)


@given(start=st.integers(0, 5), acts=ACTS)
def test_a_cursor_never_passes_an_unacknowledged_message(
    start: int, acts: list[tuple[str, int]]
) -> None:
    cursor, unacknowledged = TopicCursor(start, start), set[int]()
    for act, number in acts:
        before = cursor.acknowledged
        if act == "acknowledge":
            unacknowledged.discard(number)
            assert acknowledge(cursor, number) is (cursor.acknowledged > before)
        else:
            cursor.read += 1 if act == "send" else number  # the sequences of a topic have holes
            cursor.outstanding.add(cursor.read)
            unacknowledged.add(cursor.read)
        assert before <= cursor.acknowledged < min(unacknowledged, default=cursor.read + 1)


# Few short lists defer anything, so there are no short ones.
READS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "read"]), st.sampled_from(PushPriority)),
        st.tuples(st.sampled_from(["remove", "acknowledge"]), st.integers(0, 9)),
    ),
    min_size=20,
    max_size=60,
)


class Topic:
    """The messages of a topic, and what a device was sent of them."""

    CHUNK = 3

    def __init__(self) -> None:
        self.cursor = TopicCursor(0, 0)
        self.kept: list[Message] = []
        self.sent: list[int] = []
        self.open: set[int] = set()
        self.highest = 0

    def write(self, priority: PushPriority) -> None:
        self.highest += 1
        self.kept.append(make_broadcast(sequence=self.highest, priority=priority))
        self.open.add(self.highest)

    def remove(self, sequence: int) -> None:
        self.kept = [message for message in self.kept if message.sequence != sequence]
        if sequence not in self.sent:
            self.open.discard(sequence)

    def acknowledge(self, number: int) -> None:
        if self.sent:
            sequence = self.sent[number % len(self.sent)]
            self.open.discard(sequence)
            acknowledge(self.cursor, sequence)

    def read(self, least: PushPriority) -> bool:
        """Read once; return whether there may be more."""
        due = self.cursor.due(least)
        behind = [m for m in self.kept if m.sequence > self.cursor.start(due)]
        found, is_all = behind[: self.CHUNK], len(behind) < self.CHUNK
        taken = self.cursor.take(found, due, least, is_all=is_all)
        assert all(message.priority >= least for message in taken)
        self.sent += [message.sequence for message in taken]
        return not is_all or bool(self.cursor.due(least))


@given(acts=READS)
def test_every_message_of_a_topic_is_taken_once_and_none_is_passed(
    acts: list[tuple[str, PushPriority | int]],
) -> None:
    topic = Topic()
    for act, value in acts:
        getattr(topic, act)(value)
        assert topic.cursor.acknowledged < min(topic.open, default=topic.highest + 1)
    while topic.read(PushPriority.LOW):
        pass
    assert len(topic.sent) == len(set(topic.sent))
    assert set(topic.sent) >= topic.open
    for number in range(len(topic.sent)):
        topic.acknowledge(number)
    assert topic.cursor.deferred == {}
    assert topic.cursor.acknowledged >= max(topic.sent, default=0)


def test_a_cursor_wants_deferred_messages_of_at_least_a_priority() -> None:
    cursor = TopicCursor(0, 3, deferred={2: PushPriority.LOW}, is_behind=False)
    assert not cursor.wants(PushPriority.CONSIDERATE)
    assert cursor.wants(PushPriority.LOW)
    cursor.is_behind = True
    assert cursor.wants(PushPriority.IMMEDIATE)
