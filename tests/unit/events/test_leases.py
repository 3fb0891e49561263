"""Leases end by the time of day; a clock that is set forward or back neither doubles nor stalls."""

from clarion.events.leases import STEP_LIMIT_MS, LeaseClock, Leases
from tests.factories import NOW, FixedClock
from tests.pipeline import make_event, make_job
from tests.replacing import replace

STEP = 61_000
JOB = replace(make_job(make_event()), token=1)


def test_a_claim_of_a_job_in_hand_renews_it_and_starts_nothing() -> None:
    leases = Leases()
    again = replace(JOB, token=2)
    assert leases.take([JOB]) == [JOB]
    assert leases.take([again]) == []
    assert leases.is_renewed(JOB)
    assert leases.renew_all([JOB]) == [again]
    leases.release([JOB])
    assert not leases.is_renewed(JOB)
    assert leases.take([again]) == [again]


def test_a_job_is_held_until_its_last_holder_releases_it() -> None:
    leases = Leases()
    leases.take([JOB])
    leases.hold(JOB)
    leases.release([JOB])
    assert leases.take([replace(JOB, token=2)]) == []
    leases.release([JOB])
    assert leases.take([replace(JOB, token=3)]) == [replace(JOB, token=3)]


def test_the_time_goes_forward_with_the_clock() -> None:
    clock = FixedClock()
    time = LeaseClock(clock)
    clock.advance(1_000)
    assert time.now() == NOW + 1_000
    clock.step(STEP)
    assert time.now() == NOW + 1_000 + STEP


def test_the_time_runs_on_at_half_speed_when_the_clock_is_set_back() -> None:
    """So what was due before is due now, and nothing waits for a minute."""
    clock = FixedClock()
    time = LeaseClock(clock)
    clock.step(-STEP)
    assert time.now() == NOW
    clock.advance(10_000)
    assert time.now() == NOW + 5_000
    clock.advance(2 * STEP)
    assert time.now() == clock.now()


def test_a_clock_that_was_far_ahead_counts_at_once() -> None:
    clock = FixedClock()
    time = LeaseClock(clock)
    clock.step(-STEP_LIMIT_MS - 1)
    assert time.now() == clock.now()
