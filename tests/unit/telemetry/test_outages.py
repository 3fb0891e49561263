"""Outages: one line when something fails first, one when it works again."""

import pytest
import structlog
from structlog.testing import capture_logs

from clarion.errors import ClarionError, InternalError, Overloaded, StorageFull, StoreUnavailable
from clarion.telemetry import logs
from clarion.telemetry.outages import QUIET_S, Outage, Work, log_failure


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def make(clock: Seconds, quiet_s: float = 0) -> Outage:
    return Outage("thing_unavailable", "thing_available", quiet_s=quiet_s, now=clock, host="h:1")


def test_an_outage_is_two_lines_whatever_fails_in_between(clock: Seconds) -> None:
    outage = make(clock)
    with capture_logs() as logged:
        outage.end()
        for _ in range(100):
            outage.begin("It was refused", code="refused")
            clock.now += 0.6
        outage.end()
        outage.end()
    shown = [each for each in logged if each["log_level"] != "debug"]
    assert shown == [
        {
            "event": "thing_unavailable",
            "log_level": "warning",
            "host": "h:1",
            "cause": "It was refused",
            "code": "refused",
        },
        {
            "event": "thing_available",
            "log_level": "warning",
            "host": "h:1",
            "duration_s": 60.0,
            "failures": 100,
        },
    ]
    assert len(logged) == 101


@pytest.mark.parametrize(("process", "level"), [(None, "warning"), (1, "warning"), (2, "info")])
def test_what_processes_share_is_a_warning_of_the_first_alone(
    clock: Seconds, process: int | None, level: str
) -> None:
    shared = Outage("db_unavailable", "db_available", is_shared=True, now=clock)
    logs.configure("debug", "json", process=process)
    try:
        with capture_logs() as lines:
            for outage in (shared, make(clock)):
                outage.begin("lost")
                outage.end()
    finally:
        logs.configure("debug", "json")
        structlog.reset_defaults()
    assert [each["log_level"] for each in lines] == [level, level, "warning", "warning"]


def test_the_next_outage_is_counted_anew(clock: Seconds) -> None:
    outage = make(clock)
    with capture_logs() as logged:
        for _ in range(2):
            outage.begin("lost")
            clock.now += 3
            outage.end()
    ends = [each for each in logged if each["event"] == "thing_available"]
    assert [(each["duration_s"], each["failures"]) for each in ends] == [(3.0, 1), (3.0, 1)]


def test_what_fails_again_soon_has_not_worked_in_between(clock: Seconds) -> None:
    """Its duration ends with the first success after the last failure."""
    outage = make(clock, quiet_s=5)
    with capture_logs() as logged:
        outage.begin("lost")
        for _ in range(4):
            clock.now += 2
            outage.end()  # not yet
            outage.begin("lost")
        clock.now += 2
        outage.end()
        assert outage.is_open
        clock.now += 3
        outage.end()
    assert not outage.is_open
    assert [each["event"] for each in logged if each["log_level"] == "warning"] == [
        "thing_unavailable",
        "thing_available",
    ]
    assert logged[-1]["duration_s"] == 10.0


def test_work_that_fails_by_itself_is_logged_once() -> None:
    work = Work("polling")
    with capture_logs() as logged:
        for _ in range(3):
            with work.attempt():
                raise InternalError("broken")
    assert [each["log_level"] for each in logged] == ["warning", "debug", "debug"]
    assert logged[0] == {
        "event": "work_delayed",
        "log_level": "warning",
        "work": "polling",
        "code": "internal_error",
        "cause": "broken",
    }


@pytest.mark.parametrize("kind", [StoreUnavailable, Overloaded, StorageFull])
def test_what_follows_from_an_outage_is_logged_at_debug(kind: type[ClarionError]) -> None:
    work = Work("polling")
    with capture_logs() as logged:
        with work.attempt():
            raise kind
        with work.attempt():
            pass
        log_failure("push_not_stored", kind(), request_id="r")
        log_failure("push_not_stored", InternalError(), request_id="r")
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("work_delayed", "debug"),
        ("push_not_stored", "debug"),
        ("push_not_stored", "warning"),
    ]


def test_a_fault_of_ours_has_its_stack() -> None:
    with capture_logs() as logged:
        Work("polling").fail(ZeroDivisionError())
    assert (logged[0]["event"], logged[0]["log_level"]) == ("work_failed", "error")
    assert isinstance(logged[0]["exc_info"], ZeroDivisionError)


def test_only_errors_of_ours_are_suppressed() -> None:
    with pytest.raises(ZeroDivisionError), Work("polling").attempt():
        raise ZeroDivisionError
    assert QUIET_S > 0
