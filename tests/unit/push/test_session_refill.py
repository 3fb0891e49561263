"""What waits in the store is asked for in time, and never forgotten while it is being read."""

import json

import pytest

from clarion.push.model import PushPriority
from clarion.push.session import LOW_WATER, DeviceSession, Effect, Refill
from clarion.sockets.protocol import Close, CloseCode, SendFrame
from tests.factories import NOW, make_device, make_message


def reading_session() -> DeviceSession:
    """A session that has just become ready and waits for its first read."""
    session = DeviceSession(NOW)
    session.device = make_device()
    assert refills(session.welcome(pending=0)) == [Refill(PushPriority.LOW)]
    return session


def caught_up_session() -> DeviceSession:
    session = reading_session()
    assert session.refill([], NOW, is_all=True) == []
    return session


def receive(session: DeviceSession, frame: object) -> list[Effect]:
    return session.receive(json.dumps(frame).encode(), is_text=True, now=NOW)


def refills(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Refill)]


def test_nothing_is_asked_for_before_the_device_is_ready() -> None:
    session = DeviceSession(NOW)
    session.device = make_device()
    assert session.fall_behind() == []


def test_what_is_stored_while_a_read_is_under_way_is_read_after_it() -> None:
    session = reading_session()
    assert session.offer(make_message(), NOW) == (False, [])
    assert refills(session.refill([], NOW, is_all=True)) == [Refill(PushPriority.LOW)]


def test_what_such_a_read_has_found_already_is_not_asked_for_for_ever() -> None:
    session, message = reading_session(), make_message()
    session.offer(message, NOW)
    session.refill([message], NOW, is_all=True)
    assert refills(session.refill([], NOW, is_all=True)) == []
    taken, _ = session.offer(make_message(), NOW)
    assert taken


def test_a_window_that_opens_while_a_read_is_under_way_is_not_lost() -> None:
    session = caught_up_session()
    session.offer(make_message(priority=PushPriority.LOW), NOW)
    assert session.fall_behind() == [Refill(PushPriority.CONSIDERATE)]
    assert session.open_window() == []
    assert session.refill([], NOW, is_all=True) == [Refill(PushPriority.LOW)]


def test_a_device_that_wakes_during_a_read_gets_what_was_put_off() -> None:
    session = caught_up_session()
    receive(session, {"type": "state", "foreground": False})
    assert session.fall_behind() == [Refill(PushPriority.IMMEDIATE)]
    assert receive(session, {"type": "state", "foreground": True}) == []
    assert session.refill([], NOW, is_all=True) == [Refill(PushPriority.CONSIDERATE)]


@pytest.mark.parametrize(("in_hand", "asks"), [(LOW_WATER, 1), (LOW_WATER + 1, 0)])
def test_more_is_asked_for_when_little_is_left_in_hand(in_hand: int, asks: int) -> None:
    session = reading_session()
    effects = session.refill([make_message() for _ in range(in_hand)], NOW, is_all=False)
    assert len(refills(effects)) == asks


def test_a_closed_session_sends_nothing_more() -> None:
    """The socket may still take what was written before: that is no call for more."""
    session = caught_up_session()
    session.is_paused = True
    assert session.offer(make_message(), NOW) == (True, [])
    assert session.end(CloseCode.TOO_SLOW_OR_FAST, "reads too slowly") == [
        Close(CloseCode.TOO_SLOW_OR_FAST, "reads too slowly")
    ]
    assert session.resume(NOW) == []
    assert session.refill([make_message()], NOW, is_all=True) == []


def test_a_paused_session_goes_on_when_it_is_resumed() -> None:
    session = caught_up_session()
    session.is_paused = True
    session.offer(make_message(), NOW)
    assert [type(effect) for effect in session.resume(NOW)] == [SendFrame]
