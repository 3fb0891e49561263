"""The `Ledger` port: open rows without a job are lost, and no others."""

from collections.abc import Sequence

import pytest

from clarion.access.sql import Apps
from clarion.catalog.model import Channel
from clarion.events.model import (
    Audience,
    AudienceKind,
    DeadLetter,
    Event,
    EventStatus,
    JobKind,
    JobOutcome,
)
from clarion.events.sql.ledger import SqlLedger
from clarion.history.model import DeliveryStatus
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.contract.test_retention import id_at
from tests.factories import NOW, make_app, make_provider_key
from tests.pipeline import PipelineStore, make_delivery, make_event, make_job, make_notification

DELETE_JOB = statement("lose_job", "DELETE FROM jobs WHERE id = :id")
SINCE, UNTIL = NOW - 60_000, NOW + 60_000


@pytest.fixture
async def store(engine: Engine, apps: Apps) -> PipelineStore:
    app = make_app()
    await apps.create(app, make_provider_key(app))
    return PipelineStore(engine, app.id)


@pytest.fixture
def ledger(engine: Engine) -> SqlLedger:
    return SqlLedger(engine)


async def lose(engine: Engine, *job_ids: str) -> None:
    steps = tuple(DELETE_JOB.step(id=each) for each in job_ids)
    await engine.write(Unit("", steps))


async def accept(store: PipelineStore, kind: AudienceKind = AudienceKind.USER) -> Event:
    audience = Audience(kind, ("ana",) if kind is AudienceKind.USER else ())
    event = make_event(store.app_id, id=id_at(NOW), audience=audience)
    job_kind = JobKind.DECIDE if kind is AudienceKind.USER else JobKind.EXPAND
    await store.events.accept([event], [make_job(event, id=event.id, kind=job_kind)])
    return event


async def notify(store: PipelineStore, statuses: Sequence[DeliveryStatus]) -> str:
    """Store a notification with deliveries of these statuses, and their jobs; return its id."""
    event = await accept(store)
    (job,) = [each for each in await store.claim() if each.event_id == event.id]
    made = make_notification(event, id=id_at(NOW))
    channels = [Channel.STUB, Channel.EMAIL, Channel.SMS, Channel.WEBHOOK]
    deliveries = tuple(
        make_delivery(
            made,
            channel=channel,
            status=status,
            digest="digest-1" if status is DeliveryStatus.COLLECTED else None,
        )
        for channel, status in zip(channels, statuses, strict=False)
    )
    ids = {
        DeliveryStatus.QUEUED: f"{made.id}/{Channel.STUB}",
        DeliveryStatus.HELD: f"{made.id}/held",
        DeliveryStatus.COLLECTED: "digest-1",
    }
    jobs = tuple(make_job(event, id=ids[each]) for each in statuses if each in ids)
    outcome = JobOutcome(
        job=job,
        final_status=EventStatus.COMPLETED,
        notification=made,
        deliveries=deliveries,
        jobs=jobs,
    )
    assert await store.write(outcome) == [True]
    return made.id


async def test_an_event_with_its_job_is_not_lost_and_one_without_is(
    store: PipelineStore, ledger: SqlLedger, engine: Engine
) -> None:
    kept, gone = await accept(store), await accept(store)
    assert await ledger.find_lost(SINCE, UNTIL, 10) == frozenset()
    await lose(engine, gone.id)
    assert await ledger.find_lost(SINCE, UNTIL, 10) == {gone.id}
    assert await ledger.is_lost(gone.id)
    assert not await ledger.is_lost(kept.id)


async def test_only_what_was_made_in_the_time_is_found_up_to_the_limit(
    store: PipelineStore, ledger: SqlLedger, engine: Engine
) -> None:
    gone = [(await accept(store)).id for _ in range(3)]
    await lose(engine, *gone)
    assert await ledger.find_lost(UNTIL, UNTIL + 60_000, 10) == frozenset()
    assert await ledger.find_lost(SINCE - 60_000, SINCE, 10) == frozenset()
    assert len(await ledger.find_lost(SINCE, UNTIL, 2)) == 2


async def test_an_expanded_audience_is_in_progress_while_one_of_its_users_has_a_job(
    store: PipelineStore, ledger: SqlLedger, engine: Engine
) -> None:
    event = await accept(store, AudienceKind.ALL)
    (job,) = await store.claim()
    children = [make_job(event, id=f"{event.id}/{user}", user_id=user) for user in ("ana", "ben")]
    assert await store.queue.expand(job, children, None, NOW)
    await lose(engine, children[0].id)
    assert await ledger.find_lost(SINCE, UNTIL, 10) == frozenset()
    await lose(engine, children[1].id)
    assert await ledger.find_lost(SINCE, UNTIL, 10) == {event.id}


async def test_a_dead_letter_is_not_lost(store: PipelineStore, ledger: SqlLedger) -> None:
    await accept(store)
    (job,) = await store.claim()
    assert await store.write(JobOutcome(job=job, next=DeadLetter(error="no"))) == [True]
    assert await ledger.find_lost(SINCE, UNTIL, 10) == frozenset()


@pytest.mark.parametrize(
    ("status", "job"),
    [
        (DeliveryStatus.QUEUED, f"{{}}/{Channel.STUB}"),
        (DeliveryStatus.HELD, "{}/held"),
        (DeliveryStatus.COLLECTED, "digest-1"),
    ],
)
async def test_an_open_delivery_without_its_job_is_lost(
    store: PipelineStore, ledger: SqlLedger, engine: Engine, status: DeliveryStatus, job: str
) -> None:
    notification_id = await notify(store, [status])
    assert await ledger.find_lost(SINCE, UNTIL, 10) == frozenset()
    await lose(engine, job.format(notification_id))
    assert await ledger.find_lost(SINCE, UNTIL, 10) == {notification_id}
    assert await ledger.is_lost(notification_id)


async def test_a_delivery_that_is_finished_or_handed_over_needs_no_job(
    store: PipelineStore, ledger: SqlLedger
) -> None:
    await notify(store, [DeliveryStatus.DELIVERED, DeliveryStatus.SENT, DeliveryStatus.DROPPED])
    assert await ledger.find_lost(SINCE, UNTIL, 10) == frozenset()
