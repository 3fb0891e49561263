"""Leases: a job that this process works on is never started twice."""

from clarion.events.leases import Leases
from tests.pipeline import make_event, make_job
from tests.replacing import replace

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


def test_a_job_that_made_progress_is_begun_again_and_what_is_under_way_is_not_renewed() -> None:
    """Its user has changed their preferences: what is decided by those from before is void."""
    leases = Leases()
    woken, later = replace(JOB, token=1_001), replace(JOB, token=1_002)
    leases.take([JOB])
    assert leases.take([woken]) == [woken]
    assert leases.take([later]) == []
    assert not leases.is_renewed(JOB)
    assert leases.renew_all([JOB, woken]) == [JOB, later]
    leases.release([JOB])
    assert leases.renew(woken) == later
    leases.release([woken])
    assert not leases
