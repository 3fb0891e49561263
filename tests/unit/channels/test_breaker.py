"""The circuit breaker opens when half of the attempts fail, and closes when one succeeds."""

import pytest

from clarion.channels.breaker import (
    LEAST_ATTEMPTS,
    OPEN_MS,
    WINDOW_MS,
    Breaker,
    BreakerState,
)

LONGEST = OPEN_MS[1]


def open_one(now: int = 0) -> Breaker:
    breaker = Breaker()
    for _ in range(LEAST_ATTEMPTS):
        breaker.fail(now)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_it_opens_after_enough_attempts_of_which_half_failed() -> None:
    breaker = Breaker()
    results = [breaker.fail(0), breaker.fail(0)]
    breaker.succeed(0)
    breaker.succeed(0)
    results += [breaker.allows(0), breaker.fail(0), breaker.allows(0)]
    assert results == [False, False, True, True, False]


def test_it_stays_closed_while_most_succeed() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker.succeed(0)
        breaker.succeed(0)
        assert not breaker.fail(0)
    assert breaker.allows(0)


@pytest.mark.parametrize(("passed", "is_open"), [(WINDOW_MS, True), (3 * WINDOW_MS, False)])
def test_failures_of_long_ago_do_not_count(passed: int, *, is_open: bool) -> None:
    breaker = Breaker()
    for _ in range(LEAST_ATTEMPTS - 1):
        breaker.fail(0)
    assert breaker.fail(passed) is is_open


def test_after_a_while_one_attempt_is_made_and_decides() -> None:
    breaker = open_one()
    assert not breaker.allows(OPEN_MS[0] - 1)
    assert breaker.allows(LONGEST)
    assert not breaker.allows(LONGEST), "one at a time"
    assert breaker.fail(LONGEST)
    assert not breaker.allows(LONGEST + OPEN_MS[0] - 1)
    assert breaker.allows(2 * LONGEST)
    breaker.succeed(2 * LONGEST)
    assert breaker.state is BreakerState.CLOSED
    assert not breaker.fail(2 * LONGEST), "the failures before are forgotten"


def test_an_attempt_that_was_not_made_leaves_it_open_to_the_next() -> None:
    breaker = open_one()
    assert breaker.allows(LONGEST)
    breaker.cancel()
    assert breaker.allows(LONGEST)


def test_it_says_how_long_to_wait() -> None:
    breaker = open_one()
    assert OPEN_MS[0] / 1000 <= breaker.wait_s(0) <= LONGEST / 1000
    assert breaker.wait_s(LONGEST) == 1.0
