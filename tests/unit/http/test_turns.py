"""Requests that wait for the loop: whoever sends a few is not behind whoever sends thousands."""

from collections.abc import Callable

from clarion.http.listeners import ConnectionTurns

LIMIT, STREAMS = 5_000, 1_000


def take(turns: ConnectionTurns, has_room: Callable[[str], bool]) -> object:
    taken = turns.take(has_room)
    return taken and taken[1]


def anyone(_connection: str) -> bool:
    return True


def all_but(name: str) -> Callable[[str], bool]:
    return lambda connection: connection != name


def test_connections_take_turns_and_keep_their_order() -> None:
    turns = ConnectionTurns()
    for number in range(3):
        turns.add("busy", f"busy {number}")
    turns.add("quiet", "quiet")
    taken = [take(turns, anyone) for _ in range(4)]
    assert taken == ["busy 0", "quiet", "busy 1", "busy 2"]
    assert take(turns, anyone) is None
    assert turns.count == 0


def test_a_connection_without_room_is_passed_over_and_keeps_its_order() -> None:
    turns = ConnectionTurns()
    turns.add("blocked", 1)
    turns.add("blocked", 2)
    turns.add("free", 3)
    assert take(turns, all_but("blocked")) == 3
    assert take(turns, all_but("blocked")) is None
    assert [take(turns, anyone), take(turns, anyone)] == [1, 2]


def test_a_connection_has_as_many_waiting_as_streams() -> None:
    turns = ConnectionTurns()
    added = [turns.add("one", number) for number in range(STREAMS + 1)]
    assert added == [True] * STREAMS + [False]
    assert turns.add("another", 0)


def test_a_full_queue_takes_those_who_have_less_than_their_share() -> None:
    turns = ConnectionTurns()
    for connection in "abcde":
        for number in range(STREAMS):
            assert turns.add(connection, number)
    assert turns.count == LIMIT
    assert not turns.add("a", 0)
    assert turns.add("f", 0)
    assert [take(turns, anyone) for _ in range(6)] == [0] * 6
    assert turns.count == LIMIT - 5
