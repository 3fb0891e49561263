"""Outcomes are written, counted and reported; failed jobs are retried, or become dead letters."""

from collections.abc import Sequence

import pytest

from clarion.catalog.model import Channel
from clarion.errors import (
    ClarionError,
    InternalError,
    NotFound,
    Overloaded,
    StorageFull,
    StoreUnavailable,
    TooManyRequests,
)
from clarion.events.leases import Leases
from clarion.events.metrics import PipelineMetrics
from clarion.events.model import DeadLetter, Job, JobOutcome, Reschedule
from clarion.events.outcome_writer import LONGEST_WAIT_S, TRIES, OutcomeWriter, back_off
from clarion.history.model import DeliveryStatus, ReasonCode
from tests.factories import NOW, FixedClock
from tests.pipeline import make_delivery, make_event, make_job, make_notification
from tests.replacing import replace

EVENT = make_event()
JOB = make_job(EVENT)
NOTIFICATION = make_notification(EVENT)


class MemoryOutcomes:
    """The `Outcomes` port: refuses the outcomes of some jobs, and is away for some writes."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.failures: list[ClarionError] = []
        self.loses_answers = False
        self.writes = 0

    async def write(self, outcomes: Sequence[JobOutcome], now: int) -> list[bool | ClarionError]:
        assert now == NOW
        self.writes += 1
        if not self.failures:
            return [each.job.id not in self.refused for each in outcomes]
        if self.loses_answers:
            self.refused |= {each.job.id for each in outcomes}
        return [self.failures.pop(0)] * len(outcomes)


class HeldJobs:
    """The part of the `Queue` port that a writer uses: which claims hold."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.failures: list[ClarionError] = []

    async def renew(self, jobs: Sequence[Job], until: int) -> set[str]:
        assert until > NOW
        if self.failures:
            raise self.failures.pop()
        return {job.id for job in jobs} & self.held


class Writing:
    """A writer, its metrics, and the inboxes that it reports as changed."""

    def __init__(self) -> None:
        self.outcomes = MemoryOutcomes()
        self.metrics = PipelineMetrics()
        self.changed: list[tuple[str, str]] = []
        self.due: list[tuple[str, str]] = []
        self.leases, self.queue = Leases(), HeldJobs()
        self.writer = OutcomeWriter(
            self.outcomes,
            FixedClock(),
            self.metrics,
            lambda *whose: self.changed.append(whose),
            lambda *whose: self.due.append(whose),
            self.leases,
            self.queue,  # type: ignore[arg-type]  # as much of it as is used
        )


@pytest.fixture
def writing() -> Writing:
    return Writing()


@pytest.mark.parametrize(("tries", "longest"), [(0, 2), (1, 4), (3, 16), (20, LONGEST_WAIT_S)])
def test_the_pauses_double_up_to_a_limit(tries: int, longest: float) -> None:
    waits = [back_off(tries) for _ in range(100)]
    assert longest / 2 <= min(waits) < max(waits) <= longest


def test_the_last_try_is_the_fifth(writing: Writing) -> None:
    ends = [writing.writer.retry(replace(JOB, tries=n), "no") for n in range(TRIES)]
    assert [type(each) for each in ends] == [Reschedule] * 4 + [DeadLetter]
    assert ends[-1] == DeadLetter(error="no")


def test_a_provider_may_set_the_time_of_the_next_try(writing: Writing) -> None:
    assert writing.writer.retry(JOB, "no", 7.5) == Reschedule(due_at=NOW + 7_500, error="no")


async def fail_with(error: Exception) -> JobOutcome:
    raise error


async def succeed() -> JobOutcome:
    return JobOutcome(job=JOB)


async def test_an_error_becomes_an_outcome(writing: Writing) -> None:
    failed = await writing.writer.run_safely(JOB, fail_with, NotFound("There is no template."))
    broken = await writing.writer.run_safely(JOB, fail_with, ZeroDivisionError("a secret"))
    assert isinstance(failed.next, Reschedule)
    assert failed.next.error == "There is no template."
    # The text of an unexpected error may contain anything.
    assert isinstance(broken.next, Reschedule)
    assert broken.next.error == "ZeroDivisionError"
    assert await writing.writer.run_safely(JOB, succeed) == JobOutcome(job=JOB)


async def test_a_job_whose_app_has_used_its_time_waits_and_does_not_fail(writing: Writing) -> None:
    last = replace(JOB, tries=TRIES - 1)
    outcome = await writing.writer.run_safely(last, fail_with, TooManyRequests(30, "Used up."))
    assert isinstance(outcome.next, Reschedule)
    assert (outcome.next.error, outcome.next.is_failure) == ("Used up.", False)
    assert NOW + 30_000 <= outcome.next.due_at <= NOW + 40_000
    await writing.writer.write([outcome])
    assert writing.writer.metrics.failures == {}


async def test_who_sees_something_new_is_told_and_who_was_refused_is_not(
    writing: Writing,
) -> None:
    refused = make_job(EVENT, id="refused", user_id="bo")
    writing.outcomes.refused = {"refused"}
    left = await writing.writer.write(
        [
            JobOutcome(job=JOB, notification=NOTIFICATION),
            JobOutcome(job=JOB),
            JobOutcome(
                job=refused, notification=NOTIFICATION, deliveries=(make_delivery(NOTIFICATION),)
            ),
        ]
    )
    assert left == [refused]
    assert writing.changed == [("app", "ana")]
    assert writing.metrics.deliveries == {}
    assert await writing.writer.write([]) == []


async def test_deliveries_are_counted_when_they_take_on_a_status(writing: Writing) -> None:
    queued = make_delivery(NOTIFICATION)
    failed = replace(queued, status=DeliveryStatus.FAILED, reason=ReasonCode.ATTEMPTS_EXHAUSTED)
    again = Reschedule(due_at=NOW, error="no")
    for outcome in (
        JobOutcome(job=JOB, deliveries=(queued,)),
        JobOutcome(job=JOB, deliveries=(queued,), next=again),
        JobOutcome(job=JOB, deliveries=(failed,), next=DeadLetter(error="no")),
    ):
        await writing.writer.write([outcome])
    assert writing.metrics.deliveries == {
        (Channel.STUB, "queued", "allowed"): 1,
        (Channel.STUB, "failed", "attempts_exhausted"): 1,
    }
    assert writing.metrics.failures == {("decide", False): 1, ("decide", True): 1}


@pytest.mark.parametrize("error", [StoreUnavailable(), Overloaded(), StorageFull()])
async def test_an_outcome_is_written_again_until_the_store_has_it(
    writing: Writing, error: ClarionError
) -> None:
    writing.outcomes.failures = [error, error]
    outcome = JobOutcome(job=JOB, notification=NOTIFICATION)
    assert await writing.writer.write([outcome]) == []
    assert writing.outcomes.writes == 3
    assert writing.changed == [("app", "ana")]


async def test_an_error_that_does_not_pass_is_raised_at_once(writing: Writing) -> None:
    writing.outcomes.failures = [InternalError()]
    with pytest.raises(InternalError):
        await writing.writer.write([JobOutcome(job=JOB)])
    assert writing.outcomes.writes == 1


@pytest.mark.parametrize("failures", [0, 2])
async def test_an_outcome_whose_answer_was_lost_is_announced_and_not_done_again(
    writing: Writing, failures: int
) -> None:
    """Also if the store is away again when it is asked what is still held."""
    writing.outcomes.failures, writing.outcomes.loses_answers = [StoreUnavailable()], True
    writing.queue.failures = [StoreUnavailable()] * failures
    outcome = JobOutcome(job=JOB, notification=NOTIFICATION, jobs=(make_job(EVENT, id="next"),))
    assert await writing.writer.write([outcome]) == []
    assert writing.changed == [("app", "ana")]
    assert writing.due == [("", "app")]


async def test_an_outcome_that_is_refused_after_a_failure_is_done_again_while_it_is_held(
    writing: Writing,
) -> None:
    """Another job took its key while the store was away: it is not stored."""
    writing.outcomes.failures = [StoreUnavailable()]
    writing.outcomes.refused, writing.queue.held = {JOB.id}, {JOB.id}
    assert await writing.writer.write([JobOutcome(job=JOB, notification=NOTIFICATION)]) == [JOB]
    assert writing.changed == []
