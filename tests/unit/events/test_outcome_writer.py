"""What is written is counted and told; what failed comes back later, or never."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from clarion.catalog.model import Channel
from clarion.errors import NotFound
from clarion.events.model import Dead, DeliveryStatus, Entry, Later, ReasonCode
from clarion.events.outcome_writer import LONGEST_WAIT_S, TRIES, Recording, back_off
from clarion.telemetry.pipeline_metrics import PipelineMetrics
from tests.factories import NOW, FixedClock
from tests.pipeline import make_delivery, make_event, make_job, make_notification

EVENT = make_event()
JOB = make_job(EVENT)
NOTIFICATION = make_notification(EVENT)


class MemoryLedger:
    """The `Ledger` port: takes every entry but those of jobs that it was told to refuse."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    async def write(self, entries: Sequence[Entry], now: int) -> list[bool]:
        assert now == NOW
        return [entry.job.id not in self.refused for entry in entries]


class Desk:
    """A recording, what it counts, and whose inboxes it says have changed."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.metrics = PipelineMetrics()
        self.changed: list[tuple[str, str]] = []
        self.recording = Recording(
            self.ledger, FixedClock(), self.metrics, lambda *whose: self.changed.append(whose)
        )


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize(("tries", "longest"), [(0, 2), (1, 4), (3, 16), (20, LONGEST_WAIT_S)])
def test_the_pauses_double_up_to_a_limit(tries: int, longest: float) -> None:
    waits = [back_off(tries) for _ in range(100)]
    assert longest / 2 <= min(waits) < max(waits) <= longest


def test_the_last_try_is_the_fifth(desk: Desk) -> None:
    ends = [desk.recording.next_try(replace(JOB, tries=n), "no") for n in range(TRIES)]
    assert [type(each) for each in ends] == [Later] * 4 + [Dead]
    assert ends[-1] == Dead(error="no")


def test_a_channel_may_say_when(desk: Desk) -> None:
    assert desk.recording.next_try(JOB, "no", 7.5) == Later(due_at=NOW + 7_500, error="no")


def test_work_that_breaks_is_an_entry_too(desk: Desk) -> None:
    def work(error: Exception) -> Entry:
        raise error

    told = desk.recording.attempt(JOB, work, NotFound("There is no template."))
    broken = desk.recording.attempt(JOB, work, ZeroDivisionError("a secret"))
    assert isinstance(told.next, Later)
    assert told.next.error == "There is no template."
    # What a program's fault says may hold anything.
    assert isinstance(broken.next, Later)
    assert broken.next.error == "ZeroDivisionError"
    assert desk.recording.attempt(JOB, lambda: Entry(job=JOB)) == Entry(job=JOB)


async def test_who_sees_something_new_is_told_and_who_was_refused_is_not(desk: Desk) -> None:
    refused = make_job(EVENT, id="refused", user_id="bo")
    desk.ledger.refused = {"refused"}
    left = await desk.recording.write(
        [
            Entry(job=JOB, added=NOTIFICATION),
            Entry(job=JOB),
            Entry(job=refused, added=NOTIFICATION, deliveries=(make_delivery(NOTIFICATION),)),
        ]
    )
    assert left == [refused]
    assert desk.changed == [("app", "ana")]
    assert desk.metrics.deliveries == {}
    assert await desk.recording.write([]) == []


async def test_deliveries_are_counted_when_they_take_on_a_status(desk: Desk) -> None:
    queued = make_delivery(NOTIFICATION)
    failed = replace(queued, status=DeliveryStatus.FAILED, reason=ReasonCode.ATTEMPTS_EXHAUSTED)
    again = Later(due_at=NOW, error="no")
    for entry in (
        Entry(job=JOB, deliveries=(queued,)),
        Entry(job=JOB, deliveries=(queued,), next=again),
        Entry(job=JOB, deliveries=(failed,), next=Dead(error="no")),
    ):
        await desk.recording.write([entry])
    assert desk.metrics.deliveries == {
        (Channel.STUB, "queued", "allowed"): 1,
        (Channel.STUB, "failed", "attempts_exhausted"): 1,
    }
    assert desk.metrics.failures == {("decide", False): 1, ("decide", True): 1}
