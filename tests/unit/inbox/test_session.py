"""The protocol of a user socket, step by step, and what holds for any steps."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.inbox.feed import Update, UpdateType
from clarion.inbox.model import InboxAction
from clarion.inbox.session import ACTIONS_LIMIT, Apply, Authorise, Effect, Pull, UserSession
from clarion.sockets.protocol import (
    FRAME_LIMIT_BYTES,
    HEARTBEAT_S,
    SILENCE_LIMIT_MS,
    Close,
    CloseCode,
    SendFrame,
)
from tests.factories import NOW

STATE = Update(UpdateType.STATE, 3, 7)
CHANGE = Update(UpdateType.COUNT, 4, 8)


def receive(session: UserSession, *, now: int = NOW, **frame: Any) -> list[Effect]:
    return session.receive(json.dumps(frame).encode(), is_text=True, now=now)


def sent(effects: list[Effect]) -> list[Any]:
    return [json.loads(each.data) for each in effects if isinstance(each, SendFrame)]


def code_of(effects: list[Effect]) -> CloseCode:
    (close,) = effects
    assert isinstance(close, Close)
    assert close.reason
    return close.code


@pytest.fixture
def session() -> UserSession:
    return UserSession(NOW)


@pytest.fixture
def ready(session: UserSession) -> UserSession:
    session.present("token", None)
    session.welcome(STATE, None)
    session.take([], is_all=True)
    return session


def test_a_hello_is_authorised_and_welcomed(session: UserSession) -> None:
    assert receive(session, type="hello", token="t", after=5) == [Authorise("t", 5)]
    effects = session.welcome(STATE, None)
    assert sent(effects) == [{"type": "state", "unread_count": 3, "sequence": 7}]
    assert effects[-1] == Pull()


def test_there_is_one_hello(ready: UserSession) -> None:
    assert code_of(receive(ready, type="hello", token="t")) is CloseCode.BAD_FRAME


def test_a_second_hello_does_not_wait_for_the_first(session: UserSession) -> None:
    session.present("t", None)
    assert code_of(receive(session, type="hello", token="t")) is CloseCode.BAD_FRAME
    assert session.welcome(STATE, None) == []


@pytest.mark.parametrize("frame_type", ["ping", "pong"])
def test_before_a_hello_nothing_else_is_taken(session: UserSession, frame_type: str) -> None:
    assert code_of(receive(session, type=frame_type)) is CloseCode.BAD_FRAME


def test_an_action_waits_for_the_state(session: UserSession) -> None:
    session.present("t", None)
    assert receive(session, type="pong") == []
    assert code_of(receive(session, type="read", id="n")) is CloseCode.BAD_FRAME


@pytest.mark.parametrize("action", InboxAction)
def test_an_action_is_asked_for_and_settled(ready: UserSession, action: InboxAction) -> None:
    assert receive(ready, type=action.value, id="n1") == [Apply(action, "n1")]
    assert ready.settle("n1", None) == []
    receive(ready, type=action.value, id="n2")
    refused = ready.settle("n2", "not_found")
    assert sent(refused) == [{"type": "error", "id": "n2", "code": "not_found"}]


def test_there_is_a_limit_to_actions_in_progress(ready: UserSession) -> None:
    for _ in range(ACTIONS_LIMIT):
        assert isinstance(receive(ready, type="read", id="n")[0], Apply)
    ready.settle("n", None)
    assert isinstance(receive(ready, type="read", id="n")[0], Apply)
    assert code_of(receive(ready, type="read", id="n")) is CloseCode.TOO_SLOW_OR_FAST
    assert ready.settle("n", "not_found") == []


def test_changes_are_read_once_at_a_time(ready: UserSession) -> None:
    assert ready.wake() == [Pull()]
    assert ready.wake() == []
    effects = ready.take([CHANGE], is_all=True)
    assert sent(effects) == [{"type": "count", "unread_count": 4, "sequence": 8}]
    assert effects[-1] == Pull()
    assert ready.take([], is_all=True) == []


def test_more_is_read_until_that_is_all(ready: UserSession) -> None:
    ready.wake()
    assert ready.take([CHANGE], is_all=False)[-1] == Pull()
    assert ready.take([], is_all=True) == []


def test_a_full_socket_reads_nothing_until_it_has_room(ready: UserSession) -> None:
    ready.is_paused = True
    assert ready.wake() == []
    assert ready.resume(NOW) == [Pull()]
    ready.is_paused = True
    assert ready.take([CHANGE], is_all=False) != [Pull()]
    assert ready.resume(NOW) == [Pull()]


def test_a_ping_is_answered(ready: UserSession) -> None:
    assert sent(receive(ready, type="ping")) == [{"type": "pong"}]


def test_a_quiet_client_is_pinged_and_a_silent_one_disconnected(ready: UserSession) -> None:
    assert ready.tick(NOW + HEARTBEAT_S * 1000 - 1) == []
    assert sent(ready.tick(NOW + HEARTBEAT_S * 1000)) == [{"type": "ping"}]
    assert ready.tick(NOW + SILENCE_LIMIT_MS - 1) == []
    assert code_of(ready.tick(NOW + SILENCE_LIMIT_MS)) is CloseCode.TIMED_OUT
    assert ready.tick(NOW + SILENCE_LIMIT_MS) == []


def test_the_token_ends_the_session(session: UserSession) -> None:
    session.present("t", None)
    session.welcome(STATE, NOW + 1000)
    assert session.tick(NOW + 999) == []
    assert code_of(session.tick(NOW + 1000)) is CloseCode.NOT_AUTHORISED


def test_a_client_without_a_hello_is_timed_out(session: UserSession) -> None:
    assert code_of(session.time_out_hello()) is CloseCode.TIMED_OUT
    assert session.end(CloseCode.RESTARTING, "x") == []


def test_a_client_that_has_sent_its_hello_is_not(ready: UserSession) -> None:
    assert ready.time_out_hello() == []


@pytest.mark.parametrize(
    ("data", "is_text", "code"),
    [
        (b"x" * (FRAME_LIMIT_BYTES + 1), True, CloseCode.FRAME_TOO_LARGE),
        (b"{}", False, CloseCode.BAD_FRAME),
        (b"{}", True, CloseCode.BAD_FRAME),
        (b"\xff", True, CloseCode.BAD_FRAME),
        (b"[" * 60_000, True, CloseCode.BAD_FRAME),
        (b'{"type":"read","id":""}', True, CloseCode.BAD_FRAME),
        (b'{"type":"read","id":"a b"}', True, CloseCode.BAD_FRAME),
        (b'{"type":"read","id":"\\u0000"}', True, CloseCode.BAD_FRAME),
        (b'{"type":"hello","token":"t","after":9223372036854775808}', True, CloseCode.BAD_FRAME),
    ],
)
def test_a_bad_frame_has_its_code(
    ready: UserSession, data: bytes, code: CloseCode, *, is_text: bool
) -> None:
    assert code_of(ready.receive(data, is_text=is_text, now=NOW)) is code


def test_what_was_read_for_a_closed_one_is_not_sent(ready: UserSession) -> None:
    ready.wake()
    ready.end(CloseCode.RESTARTING, "x")
    assert ready.take([CHANGE], is_all=False) == []


STEPS = st.sampled_from(["wake", "pause", "resume", "all", "some"])


@given(st.lists(STEPS, max_size=40))
def test_changes_are_never_forgotten_and_read_once_at_a_time(steps: list[str]) -> None:
    session = UserSession(NOW)
    session.present("t", None)
    pulling, has_changes = session.welcome(STATE, None)[-1:] == [Pull()], False
    for step in steps:
        effects: list[Effect] = []
        match step:
            case "wake":
                has_changes = True
                effects = session.wake()
            case "pause":
                session.is_paused = True
            case "resume":
                effects = session.resume(NOW)
            case "all" | "some" if pulling:
                pulling, has_changes = False, has_changes or step == "some"
                effects = session.take([CHANGE], is_all=step == "all")
        if Pull() in effects:
            assert not pulling
            pulling, has_changes = True, False
        assert session.is_paused or pulling or not has_changes
