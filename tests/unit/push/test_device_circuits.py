"""A device whose connections keep failing is left alone; one that acknowledges never is."""

import pytest

from clarion.push.device_circuits import (
    CIRCUITS_LIMIT,
    FAILURE_MS,
    LEAST_FAILURES,
    OPEN_MS,
    SHORT_COUNTS_MS,
    SHORT_MS,
    DeviceCircuits,
    Ending,
)
from clarion.sockets.protocol import CloseCode

LONGEST = OPEN_MS[1]
SILENT = Ending(None, 60_000, has_unacknowledged=True)
SHORT = Ending(None, SHORT_MS - 1, has_unacknowledged=False)
QUIET = Ending(None, SHORT_MS, has_unacknowledged=False)


def end_all(circuits: DeviceCircuits, ending: Ending, count: int, now: int = 0) -> list[int]:
    return [circuits.end("a", ending, now) for _ in range(count)]


def open_one(now: int = 0) -> DeviceCircuits:
    circuits = DeviceCircuits()
    *before, for_ms = end_all(circuits, SILENT, LEAST_FAILURES, now)
    assert not any(before)
    assert OPEN_MS[0] <= for_ms <= OPEN_MS[1]
    return circuits


@pytest.mark.parametrize(
    "ending",
    [
        SILENT,
        SHORT,
        Ending(CloseCode.BAD_FRAME, 60_000, has_unacknowledged=False),
        Ending(CloseCode.FRAME_TOO_LARGE, 60_000, has_unacknowledged=False),
        Ending(CloseCode.TOO_SLOW_OR_FAST, 60_000, has_unacknowledged=False),
        Ending(CloseCode.REPLACED, 10, has_unacknowledged=False),
    ],
)
def test_a_device_that_keeps_failing_has_to_wait(ending: Ending) -> None:
    circuits = DeviceCircuits()
    end_all(circuits, ending, LEAST_FAILURES)
    assert OPEN_MS[0] <= circuits.find_wait_ms("a", 0) <= LONGEST
    assert circuits.find_wait_ms("another", 0) == 0
    assert circuits.count_open(0) == 1


@pytest.mark.parametrize(
    "ending",
    [
        QUIET,
        Ending(CloseCode.TIMED_OUT, 90_000, has_unacknowledged=False),
        Ending(CloseCode.REPLACED, 90_000, has_unacknowledged=False),
        Ending(CloseCode.RESTARTING, 10, has_unacknowledged=True),
        Ending(CloseCode.REVOKED, 10, has_unacknowledged=True),
        Ending(CloseCode.NOT_AUTHORISED, 10, has_unacknowledged=True),
    ],
)
def test_a_device_that_only_lost_its_connection_has_not(ending: Ending) -> None:
    circuits = DeviceCircuits()
    assert not any(end_all(circuits, ending, 100))
    assert circuits.find_wait_ms("a", 0) == 0


def test_one_acknowledgement_forgets_all_failures() -> None:
    circuits = DeviceCircuits()
    for _ in range(100):
        assert not any(end_all(circuits, SILENT, LEAST_FAILURES - 1))
        circuits.acknowledge("a")


def test_a_device_that_looks_whether_something_waits_may_do_so_often() -> None:
    circuits, every_ms = DeviceCircuits(), SHORT_COUNTS_MS // (LEAST_FAILURES - 1)
    assert not any(circuits.end("a", SHORT, turn * every_ms) for turn in range(1_000))


def test_one_that_fails_slowly_has_to_wait_too() -> None:
    circuits, every_ms = DeviceCircuits(), 90_000
    assert any(circuits.end("a", SILENT, turn * every_ms) for turn in range(10))


def test_failures_are_forgotten() -> None:
    circuits = DeviceCircuits()
    end_all(circuits, SILENT, LEAST_FAILURES - 1)
    assert not any(end_all(circuits, SILENT, LEAST_FAILURES - 1, now=FAILURE_MS))


def test_after_its_time_one_connection_decides() -> None:
    failing, working, quiet = open_one(), open_one(), open_one()
    assert failing.find_wait_ms("a", LONGEST) == 0
    assert failing.end("a", SHORT, LONGEST) > 0
    assert failing.find_wait_ms("a", LONGEST) > 0
    working.acknowledge("a")
    assert quiet.end("a", QUIET, LONGEST) == 0
    for closed in (working, quiet):
        assert not any(end_all(closed, SHORT, LEAST_FAILURES - 1, now=LONGEST))


def test_a_restart_of_the_server_decides_nothing() -> None:
    circuits = open_one()
    assert (
        circuits.end("a", Ending(CloseCode.RESTARTING, 10, has_unacknowledged=True), LONGEST) == 0
    )
    assert circuits.end("a", SHORT, LONGEST) > 0


def test_an_older_connection_that_ends_while_it_is_open_does_not_lengthen_it() -> None:
    circuits = open_one()
    before = circuits.find_wait_ms("a", 0)
    assert not any(end_all(circuits, SILENT, LEAST_FAILURES, now=1_000))
    assert circuits.find_wait_ms("a", 1_000) == before - 1_000


def test_what_is_put_off_is_announced_when_the_time_is_up() -> None:
    circuits = open_one()
    assert circuits.puts_off("a", 0)
    assert not circuits.puts_off("another", 0)
    assert circuits.take_put_off(0) == []
    assert not circuits.puts_off("a", LONGEST)
    assert circuits.take_put_off(LONGEST) == ["a"]
    assert circuits.take_put_off(LONGEST) == []


def test_what_is_put_off_is_announced_although_the_device_is_forgotten() -> None:
    circuits = open_one()
    assert circuits.puts_off("a", 0)
    circuits.acknowledge("a")
    assert circuits.take_put_off(LONGEST) == ["a"]


def test_memory_is_bounded() -> None:
    circuits = DeviceCircuits(1, limit=3)
    for number in range(10):
        circuits.end(str(number), SILENT, 0)
    assert circuits.count_open(0) == 3
    assert circuits.find_wait_ms("6", 0) == 0
    assert circuits.find_wait_ms("9", 0) > 0
    assert [circuits.puts_off(each, 0) for each in "789"] == [True] * 3
    circuits.end("10", SILENT, 0)
    assert not circuits.puts_off("10", 0)
    assert CIRCUITS_LIMIT == 10_000


def test_it_can_be_turned_off() -> None:
    circuits = DeviceCircuits(0)
    assert not any(end_all(circuits, SILENT, 100))


def test_what_no_longer_counts_is_forgotten() -> None:
    circuits = DeviceCircuits()
    circuits.end("short", SHORT, 0)
    circuits.end("slow", SILENT, 0)
    end_all(circuits, SILENT, LEAST_FAILURES)
    for now, left in ((SHORT_COUNTS_MS, 2), (FAILURE_MS, 1), (FAILURE_MS + LONGEST, 0)):
        circuits.forget_old(now)
        assert len(circuits) == left
