"""The protocol of one connection, step by step. What holds for any steps: `test_session_rules`."""

import json
from typing import Any

import pytest

from clarion.push.model import Message, PushPriority
from clarion.push.session import (
    ACK_LIMIT_MS,
    IN_FLIGHT_LIMIT,
    LOW_WATER,
    MAILBOX_LIMIT,
    Acknowledged,
    Authorise,
    ClockOffset,
    DeviceSession,
    Dropped,
    Effect,
    Refill,
)
from clarion.sockets.protocol import (
    HEARTBEAT_S,
    PONG,
    SILENCE_LIMIT_MS,
    Close,
    CloseCode,
    SendFrame,
)
from tests.factories import NOW, FixedClock, make_broadcast, make_device, make_message

DEVICE = make_device()
HELLO: dict[str, Any] = {"type": "hello", "token": "t", "secret": "s"}
HIGH, MIDDLE, LOW = PushPriority


def receive(session: DeviceSession, *, now: int = NOW, **frame: Any) -> list[Effect]:
    return session.receive(json.dumps(frame).encode(), is_text=True, now=now)


def acknowledge(session: DeviceSession, *messages: Message) -> list[Effect]:
    return receive(session, type="ack", ids=[message.id for message in messages])


def offer(session: DeviceSession, *messages: Message, now: int = NOW) -> list[Effect]:
    return [effect for message in messages for effect in session.offer(message, now)[1]]


def refill(session: DeviceSession, *messages: Message, is_all: bool = True) -> list[Effect]:
    return session.refill(messages, NOW, is_all=is_all)


def sent(effects: list[Effect]) -> list[str]:
    """Return the ids of the messages that go out."""
    out = [json.loads(effect.data) for effect in effects if isinstance(effect, SendFrame)]
    return [frame["id"] for frame in out if frame["type"] == "notification"]


def ids(*messages: Message) -> list[str]:
    return [message.id for message in messages]


def code_of(effects: list[Effect]) -> CloseCode:
    (close,) = effects
    assert isinstance(close, Close)
    return close.code


def many(count: int, **changes: Any) -> list[Message]:
    return [make_message(**changes) for _ in range(count)]


@pytest.fixture
def new() -> DeviceSession:
    """A connection that has sent nothing yet."""
    return DeviceSession(NOW)


@pytest.fixture
def session() -> DeviceSession:
    """A connection that is ready; nothing is stored for it."""
    session = DeviceSession(NOW)
    receive(session, **HELLO)
    session.device = DEVICE
    assert session.welcome(0)[1:] == [Refill(LOW)]
    assert refill(session) == []
    return session


# The hello, and who is refused.


def test_a_hello_is_to_be_authorised_once(new: DeviceSession) -> None:
    (effect,) = receive(new, **HELLO)
    assert isinstance(effect, Authorise)
    assert code_of(receive(new, **HELLO)) is CloseCode.BAD_FRAME


def test_a_second_hello_ends_a_connection_that_is_ready(session: DeviceSession) -> None:
    assert code_of(receive(session, **HELLO)) is CloseCode.BAD_FRAME


def test_the_answer_to_a_hello_has_how_much_is_stored(new: DeviceSession) -> None:
    receive(new, **HELLO)
    new.device = DEVICE
    ready, more = new.welcome(7)
    assert isinstance(ready, SendFrame)
    assert json.loads(ready.data) == {
        "type": "ready",
        "device_id": DEVICE.id,
        "heartbeat_s": HEARTBEAT_S,
        "pending": 7,
    }
    assert more == Refill(LOW)


def test_an_unknown_device_is_refused(new: DeviceSession) -> None:
    receive(new, **HELLO)
    assert code_of(new.refuse()) is CloseCode.NOT_AUTHORISED


def test_a_closed_session_does_not_become_ready(new: DeviceSession) -> None:
    assert new.welcome(0) == []
    new.device = DEVICE
    new.end(CloseCode.REPLACED, "")
    assert new.welcome(0) == []


def test_a_device_without_a_hello_is_timed_out(new: DeviceSession) -> None:
    assert code_of(new.time_out_hello()) is CloseCode.TIMED_OUT


def test_a_device_that_is_ready_is_not_timed_out(new: DeviceSession) -> None:
    receive(new, **HELLO)
    new.device = DEVICE
    new.welcome(0)
    assert new.time_out_hello() == []


def test_a_device_that_is_not_answered_in_time_comes_back(new: DeviceSession) -> None:
    receive(new, **HELLO)
    new.device = DEVICE
    (close,) = new.time_out_hello()
    assert isinstance(close, Close)
    assert close.code is CloseCode.RESTARTING


def test_before_it_is_ready_a_device_gets_nothing(new: DeviceSession) -> None:
    receive(new, **HELLO)
    new.device = DEVICE
    assert new.offer(make_message(), NOW) == (False, [])
    assert receive(new, type="state", foreground=False) == []
    assert receive(new, type="state", foreground=True) == []
    assert new.fall_behind() == []


# Sending and acknowledging.


def test_a_message_goes_out_at_once(session: DeviceSession) -> None:
    message = make_message()
    taken, effects = session.offer(message, NOW)
    assert taken is True
    assert sent(effects) == [message.id]


def test_a_message_in_hand_is_not_taken_again(session: DeviceSession) -> None:
    message = make_message()
    session.offer(message, NOW)
    assert session.offer(message, NOW) == (False, [])
    acknowledge(session, message)
    assert session.offer(message, NOW) == (False, [])
    assert refill(session, message) == []


def test_a_device_may_answer_a_ping_before_it_is_welcome() -> None:
    session = DeviceSession(NOW)
    receive(session, type="hello", token="t", secret="s")
    assert receive(session, type="pong") == []
    assert receive(session, type="ping") == [SendFrame(PONG)]
    (close,) = receive(session, type="state", foreground=False)
    assert isinstance(close, Close)


def test_of_two_messages_with_one_id_the_second_waits_for_the_first(
    session: DeviceSession,
) -> None:
    direct = make_message(id="one", created_at=NOW)
    others = [make_broadcast(topic, id="one", sequence=7) for topic in ("harbour", "news")]
    assert [session.offer(message, NOW)[0] for message in (direct, *others)] == [True] * 3
    assert session.in_hand == {"one"}
    for message, after in zip((direct, *others), (*others, None), strict=True):
        acknowledged, *effects = acknowledge(session, message)
        assert acknowledged == Acknowledged((message,))
        assert sent(effects) == ([after.id] if after else [])
        session.settle([message])
    assert session.in_hand == set()


def test_an_acknowledgement_is_passed_on_once(session: DeviceSession) -> None:
    message = make_message()
    session.offer(message, NOW)
    assert acknowledge(session, message) == [Acknowledged((message,))]
    assert acknowledge(session, message) == []


def test_an_acknowledgement_of_something_else_is_ignored(session: DeviceSession) -> None:
    session.offer(make_message(), NOW)
    assert acknowledge(session, make_message()) == []
    assert receive(session, type="ack") == []


def test_what_is_acknowledged_stays_in_hand_until_the_store_knows(session: DeviceSession) -> None:
    message = make_message()
    session.offer(message, NOW)
    acknowledge(session, message)
    assert session.in_hand == {message.id}
    session.settle([message])
    assert session.in_hand == set()


def test_so_many_may_be_unacknowledged_and_the_rest_waits(session: DeviceSession) -> None:
    messages = many(IN_FLIGHT_LIMIT + 2)
    assert sent(offer(session, *messages)) == ids(*messages[:IN_FLIGHT_LIMIT])
    effects = acknowledge(session, messages[5])
    assert sent(effects) == ids(messages[IN_FLIGHT_LIMIT])


def test_what_waits_goes_by_priority_then_oldest_first(session: DeviceSession) -> None:
    flying = many(IN_FLIGHT_LIMIT)
    waiting = [make_message(priority=p) for p in (MIDDLE, HIGH, MIDDLE, HIGH)]
    offer(session, *flying, *waiting)
    effects = acknowledge(session, *flying)
    assert sent(effects) == ids(waiting[1], waiting[3], waiting[0], waiting[2])


def test_when_the_mailbox_is_full_the_rest_stays_in_the_store(session: DeviceSession) -> None:
    messages = many(IN_FLIGHT_LIMIT + MAILBOX_LIMIT)
    offer(session, *messages)
    assert session.offer(make_message(), NOW) == (False, [])
    assert session.offer(make_message(is_stored=False), NOW) == (False, [])
    left = acknowledge(session, *messages[: IN_FLIGHT_LIMIT + MAILBOX_LIMIT - LOW_WATER])
    assert not [effect for effect in left if isinstance(effect, Refill)]
    assert acknowledge(session, *messages[IN_FLIGHT_LIMIT:])[-1] == Refill(MIDDLE)


def test_a_device_that_is_behind_gets_new_messages_from_the_store(session: DeviceSession) -> None:
    assert session.fall_behind() == [Refill(MIDDLE)]
    message = make_message()
    assert session.offer(message, NOW) == (False, [])
    assert sent(refill(session, message)) == [message.id]


def test_what_is_stored_while_the_store_is_read_makes_it_read_again(session: DeviceSession) -> None:
    session.fall_behind()
    session.offer(make_message(), NOW)
    assert refill(session) == [Refill(MIDDLE)]
    assert refill(session) == []


def test_as_long_as_there_is_more_the_store_is_read_again(session: DeviceSession) -> None:
    session.fall_behind()
    first, second = many(LOW_WATER), many(1)
    assert refill(session, *first, is_all=False)[-1] == Refill(MIDDLE)
    assert sent(refill(session, *second, is_all=True)) == ids(*second)


def test_more_is_read_when_little_is_left_in_hand(session: DeviceSession) -> None:
    session.fall_behind()
    messages = many(LOW_WATER + 1)
    assert sent(refill(session, *messages, is_all=False)) == ids(*messages)
    assert acknowledge(session, messages[0])[-1] == Refill(MIDDLE)


def test_a_message_that_has_expired_is_dropped_and_not_sent(session: DeviceSession) -> None:
    session.is_paused = True
    message = make_message(expires_at=NOW + 5)
    assert offer(session, message) == []
    assert session.resume(NOW + 5) == [Dropped((message,))]


def test_a_message_is_sent_that_has_expired_only_by_a_clock_that_was_just_set_back() -> None:
    """Seed 11302 of the simulator: it stayed pending for an hour, though the device was there."""
    clock = FixedClock()
    session = DeviceSession(clock.monotonic(), ClockOffset(clock))
    session.device = DEVICE
    session.welcome(0, has_missed=False)
    clock.step(-3_600_000)
    message = make_message(created_at=clock.now(), expires_at=clock.now() + 60_000)
    assert sent(offer(session, message, now=clock.monotonic())) == ids(message)


def test_one_attempt_is_made_even_for_a_device_that_is_behind(session: DeviceSession) -> None:
    session.fall_behind()
    once = make_message(is_stored=False, priority=LOW)
    assert sent(offer(session, once)) == [once.id]


# Collapsing.


def test_a_newer_message_takes_the_place_of_the_older_in_the_mailbox(
    session: DeviceSession,
) -> None:
    session.is_paused = True
    older, newer = many(2, collapse_id="c")
    offer(session, older)
    assert offer(session, newer) == [Dropped((older,))]
    assert sent(session.resume(NOW)) == [newer.id]


def test_what_has_gone_out_is_not_replaced(session: DeviceSession) -> None:
    older, newer = many(2, collapse_id="c")
    assert sent(offer(session, older, newer)) == ids(older, newer)


def test_only_the_same_collapse_id_of_the_same_topic_is_replaced(session: DeviceSession) -> None:
    session.is_paused = True
    others = [make_message(collapse_id=c) for c in (None, "d")]
    broadcast = make_broadcast(collapse_id="c", sequence=1)
    assert offer(session, *others, broadcast, make_message(collapse_id="c")) == []


def test_a_message_that_was_cancelled_is_not_sent(session: DeviceSession) -> None:
    session.is_paused = True
    kept, cancelled = many(2)
    broadcast = make_broadcast(sequence=1)
    session.refill([kept, cancelled, broadcast], NOW, is_all=True)
    assert session.withdraw(cancelled.id) == [Dropped((cancelled,))]
    assert session.withdraw(cancelled.id) == session.withdraw(broadcast.id) == []
    session.is_paused = False
    sent = [each for each in session.resume(NOW) if isinstance(each, SendFrame)]
    assert len(sent) == 2


def test_what_is_read_replaces_what_was_read_before(session: DeviceSession) -> None:
    session.is_paused = True
    older, newer = many(2, collapse_id="c")
    session.refill([older], NOW, is_all=False)
    assert session.refill([newer], NOW, is_all=True) == [Dropped((older,))]


def test_what_was_read_too_early_does_not_replace_what_is_newer(session: DeviceSession) -> None:
    session.is_paused = True
    older, newer = many(2, collapse_id="c", is_stored=False)
    offer(session, newer)
    assert refill(session, older) == []
    assert sent(session.resume(NOW)) == ids(older, newer)


# What the device is doing, and priorities.


@pytest.mark.parametrize(("priority", "is_sent"), [(HIGH, True), (MIDDLE, True), (LOW, False)])
def test_a_device_in_front_gets_all_but_the_lowest(
    session: DeviceSession, priority: PushPriority, *, is_sent: bool
) -> None:
    assert session.offer(make_message(priority=priority), NOW)[0] is is_sent


@pytest.mark.parametrize(("priority", "is_sent"), [(HIGH, True), (MIDDLE, False), (LOW, False)])
def test_a_device_in_the_background_gets_the_highest_alone(
    session: DeviceSession, priority: PushPriority, *, is_sent: bool
) -> None:
    receive(session, type="state", foreground=False)
    assert session.offer(make_message(priority=priority), NOW)[0] is is_sent


def test_when_it_comes_to_the_front_it_gets_what_was_put_off(session: DeviceSession) -> None:
    receive(session, type="state", foreground=False)
    assert session.offer(make_message(priority=MIDDLE), NOW) == (False, [])
    assert receive(session, type="state", foreground=True) == [Refill(MIDDLE)]


def test_in_a_window_every_priority_has_its_turn(session: DeviceSession) -> None:
    assert session.open_window() == []
    session.offer(make_message(priority=LOW), NOW)
    assert session.open_window() == [Refill(LOW)]
    refill(session)
    assert session.open_window() == []


def test_a_window_lasts_until_what_waited_is_given(session: DeviceSession) -> None:
    session.offer(make_message(priority=LOW), NOW)
    session.open_window()
    assert refill(session, is_all=False) == [Refill(LOW)]
    refill(session)
    assert session.fall_behind() == [Refill(MIDDLE)]


def test_a_window_that_opens_while_the_store_is_read_is_not_missed(session: DeviceSession) -> None:
    session.offer(make_message(priority=LOW), NOW)
    assert session.fall_behind() == [Refill(MIDDLE)]
    assert session.open_window() == []
    assert refill(session) == [Refill(LOW)]


def test_what_waited_when_a_device_went_to_the_background_comes_in_the_window(
    session: DeviceSession,
) -> None:
    session.is_paused = True
    session.fall_behind()
    assert session.offer(make_message(priority=MIDDLE), NOW) == (False, [])
    receive(session, type="state", foreground=False)
    assert session.resume(NOW) == [Refill(HIGH)]
    refill(session)
    assert session.open_window() == [Refill(LOW)]


def test_what_found_no_room_before_it_went_to_the_background_comes_in_the_window(
    session: DeviceSession,
) -> None:
    messages = many(IN_FLIGHT_LIMIT + MAILBOX_LIMIT)
    offer(session, *messages, make_message(priority=MIDDLE))
    receive(session, type="state", foreground=False)
    assert acknowledge(session, *messages[:IN_FLIGHT_LIMIT])
    assert acknowledge(session, *messages[IN_FLIGHT_LIMIT:])[-1] == Refill(HIGH)
    refill(session)
    assert session.open_window() == [Refill(LOW)]


def test_a_disabled_device_gets_nothing(session: DeviceSession) -> None:
    receive(session, type="state", enabled=False)
    for is_stored in (True, False):
        assert session.offer(make_message(is_stored=is_stored), NOW) == (False, [])
    assert session.fall_behind() == []
    assert session.open_window() == []


def test_a_window_that_opens_while_it_is_disabled_is_not_kept_for_later(
    session: DeviceSession,
) -> None:
    session.offer(make_message(priority=LOW), NOW)
    receive(session, type="state", enabled=False)
    assert session.open_window() == []
    assert receive(session, type="state", enabled=True) == [Refill(MIDDLE)]


def test_what_is_in_hand_of_a_disabled_device_waits(session: DeviceSession) -> None:
    messages = many(IN_FLIGHT_LIMIT + 1)
    offer(session, *messages)
    receive(session, type="state", enabled=False)
    assert sent(acknowledge(session, messages[0])) == []
    assert sent(receive(session, type="state", enabled=True)) == ids(messages[-1])


@pytest.mark.parametrize("is_in_front", [True, False])
def test_when_it_is_enabled_again_it_gets_what_was_put_off(
    session: DeviceSession, *, is_in_front: bool
) -> None:
    receive(session, type="state", foreground=is_in_front, enabled=False)
    session.offer(make_message(), NOW)
    least = MIDDLE if is_in_front else HIGH
    assert receive(session, type="state", enabled=True) == [Refill(least)]
    refill(session)
    assert session.open_window() == [Refill(LOW)]


def test_what_is_left_out_of_a_state_stays(session: DeviceSession) -> None:
    receive(session, type="state", foreground=False)
    receive(session, type="state", enabled=False)
    receive(session, type="state")
    assert (session.is_foreground, session.is_enabled) == (False, False)


# The socket, the clock, the end.


def test_while_the_socket_takes_nothing_nothing_is_written_or_read(session: DeviceSession) -> None:
    session.is_paused = True
    message = make_message()
    assert session.offer(message, NOW) == (True, [])
    assert session.fall_behind() == []
    effects = session.resume(NOW)
    assert sent(effects) == [message.id]
    assert effects[-1] == Refill(MIDDLE)


def test_a_ping_is_answered(session: DeviceSession) -> None:
    (pong,) = receive(session, type="ping")
    assert isinstance(pong, SendFrame)
    assert json.loads(pong.data) == {"type": "pong"}
    assert receive(session, type="pong") == []


def test_a_quiet_device_is_pinged_once_each_heart_beat(session: DeviceSession) -> None:
    beat = HEARTBEAT_S * 1000
    assert session.tick(NOW + beat - 1) == []
    (ping,) = session.tick(NOW + beat)
    assert isinstance(ping, SendFrame)
    assert json.loads(ping.data) == {"type": "ping"}
    assert session.tick(NOW + beat + 1) == []


def test_a_silent_device_is_disconnected(session: DeviceSession) -> None:
    assert not session.is_closed
    assert code_of(session.tick(NOW + SILENCE_LIMIT_MS)) is CloseCode.TIMED_OUT


def test_any_frame_is_a_sign_of_life(session: DeviceSession) -> None:
    receive(session, now=NOW + SILENCE_LIMIT_MS - 1, type="pong")
    assert session.tick(NOW + SILENCE_LIMIT_MS) == []


def test_a_device_that_does_not_acknowledge_is_disconnected(session: DeviceSession) -> None:
    first, second = many(2)
    offer(session, first)
    offer(session, second, now=NOW + 5)
    receive(session, now=NOW + ACK_LIMIT_MS - 1, type="pong")
    assert session.tick(NOW + ACK_LIMIT_MS - 1) == []
    acknowledge(session, first)
    receive(session, now=NOW + ACK_LIMIT_MS, type="pong")
    assert session.tick(NOW + ACK_LIMIT_MS) == []
    assert code_of(session.tick(NOW + ACK_LIMIT_MS + 5)) is CloseCode.TOO_SLOW_OR_FAST


@pytest.mark.parametrize("code", CloseCode)
def test_an_end_from_outside_has_its_code_and_comes_once(
    session: DeviceSession, code: CloseCode
) -> None:
    assert session.end(code, "why") == [Close(code, "why")]
    assert session.end(code, "why") == []


def test_after_the_end_nothing_is_sent(session: DeviceSession) -> None:
    session.is_paused = True
    session.offer(make_message(), NOW)
    session.end(CloseCode.REPLACED, "")
    assert session.offer(make_message(), NOW) == (False, [])
    for effects in (
        refill(session, make_message()),
        session.resume(NOW),
        session.tick(NOW + SILENCE_LIMIT_MS),
        session.tick(NOW + HEARTBEAT_S * 1000),
        session.settle([]),
        session.refuse(),
        session.fall_behind(),
    ):
        assert effects == []


def test_a_session_that_is_idle_holds_next_to_nothing(session: DeviceSession) -> None:
    assert (session._mailbox, session._in_flight, session._acking) == (None, None, None)


def test_a_session_that_drains_is_drained_when_all_is_recorded(session: DeviceSession) -> None:
    sent_before = make_message()
    offer(session, sent_before)
    session.drain()
    assert not session.is_drained
    acknowledge(session, sent_before)
    assert not session.is_drained
    session.settle((sent_before,))
    assert session.is_drained


def test_a_session_that_drains_sends_nothing_that_the_next_one_can(session: DeviceSession) -> None:
    waiting = many(IN_FLIGHT_LIMIT + 1)
    offer(session, *waiting)
    once = make_message(is_stored=False)
    session.fall_behind()
    session.drain()
    session.drain()
    assert session.offer(make_message(), NOW) == (False, [])
    assert refill(session, make_message(), is_all=False) == []
    assert sent(acknowledge(session, *waiting[:-1])) == []
    assert sent(offer(session, once)) == ids(once)
    assert session.resume(NOW) == []
