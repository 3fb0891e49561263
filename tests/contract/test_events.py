"""The `Events` port: accept, list, cancel, replay."""

from functools import partial
from typing import Any

import pytest

from clarion.catalog.model import Channel, Priority
from clarion.errors import Conflict, StorageFull
from clarion.events.model import Audience, AudienceKind, DeadLetter, EventStatus, JobOutcome
from clarion.history.model import Actor, Content, Target
from clarion.pages import READ_FOR_PAGE
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.statement import Unit, keys_of, statement
from tests.factories import NOW, make_once, new_app_id
from tests.pipeline import PipelineStore, make_event, make_job

LATER = NOW + 5
DEAD = 2_500
MAKE_DEAD = statement(
    "make_all_dead",
    "UPDATE jobs SET lane = -1, tries = 9 WHERE id IN (SELECT key FROM json_each(:ids))",
)
MAKE_FAILED = statement(
    "make_failed", "UPDATE events SET status = 'failed', retry_count = 5 WHERE id = :id"
)
CONTEXT = f"00-{'a' * 32}-{'1' * 16}-01 vendor=1"


@pytest.fixture
def store(engine: Engine) -> PipelineStore:
    return PipelineStore(engine, new_app_id())


async def test_an_accepted_event_is_read_back_unchanged(store: PipelineStore) -> None:
    content = Content(
        data={"text": "ä📦", "n": 1.5, "list": [None, True]},
        actor=Actor("bo", "Bø"),
        target=Target("p1", "post"),
        channels=(Channel.IN_APP, Channel.STUB),
        deeplink="app://x",
        image_url="https://example.com/x.png",
    )
    event = await store.accept(
        content=content,
        audience=Audience(AudienceKind.USERS, ("ana", "bo")),
        priority=Priority.CRITICAL,
        dedupe_key="k",
        status=EventStatus.SCHEDULED,
        scheduled_at=NOW + 9,
        expires_at=NOW + 99,
    )
    assert await store.events.get(store.app_id, event.id) == event
    assert await store.events.find_many(store.app_id, [event.id, "x"]) == {event.id: event}
    assert await store.events.get(new_app_id(), event.id) is None
    assert await store.events.find_many(new_app_id(), [event.id]) == {}


async def test_the_contexts_of_traced_events_are_found(store: PipelineStore) -> None:
    traced, plain = await store.accept(trace=CONTEXT), await store.accept()
    ids = [traced.id, plain.id, "x"]
    assert await store.events.find_traces(store.app_id, ids) == {traced.id: CONTEXT}
    assert await store.events.find_traces(new_app_id(), ids) == {}
    assert await store.events.get(store.app_id, traced.id) == traced


async def test_events_are_stored_with_their_jobs_or_not_at_all(store: PipelineStore) -> None:
    first = await store.accept()
    again = make_event(store.app_id)
    with pytest.raises(Conflict):
        await store.events.accept([again, first], [make_job(again), make_job(first)])
    assert await store.events.get(store.app_id, again.id) is None
    assert [job.id for job in await store.claim()] == [first.id]


async def test_a_repeated_request_adds_nothing(store: PipelineStore) -> None:
    event, repeat = make_event(store.app_id), make_event(store.app_id)
    once = make_once(store.app_id)
    assert await store.events.accept([event], [make_job(event)], once) is None
    replay = await store.events.accept([repeat], [make_job(repeat)], once)
    assert replay is not None
    assert replay.answer == once.answer
    assert await store.events.get(store.app_id, repeat.id) is None
    assert [job.event_id for job in await store.claim()] == [event.id]


async def test_the_list_is_newest_first_and_in_pages(store: PipelineStore) -> None:
    made = [await store.accept() for _ in range(5)]
    await PipelineStore(store.events._engine, new_app_id()).accept()
    page = await store.events.list(store.app_id, status=None, after=None, limit=3)
    rest = await store.events.list(store.app_id, status=None, after=page.next, limit=3)
    assert [each.id for each in (*page.items, *rest.items)] == [each.id for each in made[::-1]]
    assert rest.next is None


async def test_a_list_by_a_status_without_an_index_goes_on_after_a_bounded_read(
    store: PipelineStore,
) -> None:
    pending = [await store.accept(status=EventStatus.PENDING)]
    for _ in range(READ_FOR_PAGE):
        await store.accept(status=EventStatus.SCHEDULED)
    read = partial(store.events.list, store.app_id, status=EventStatus.PENDING, limit=9)
    first = await read(after=None)
    assert first.items == ()
    assert first.next is not None
    rest = await read(after=first.next)
    assert ([each.id for each in rest.items], rest.next) == ([each.id for each in pending], None)


async def test_the_list_can_be_filtered_by_status(store: PipelineStore) -> None:
    await store.accept()
    scheduled = await store.accept(status=EventStatus.SCHEDULED)
    page = await store.events.list(store.app_id, status=EventStatus.SCHEDULED, after=None, limit=9)
    assert page.items == (scheduled,)


@pytest.mark.parametrize("status", list(EventStatus))
async def test_only_open_events_can_be_cancelled(store: PipelineStore, status: EventStatus) -> None:
    event = await store.accept(status=status)
    is_open = status in {EventStatus.SCHEDULED, EventStatus.PENDING, EventStatus.PROCESSING}
    assert await store.events.cancel(store.app_id, event.id, LATER) is is_open
    assert await store.events.cancel(store.app_id, event.id, LATER) is False
    found = await store.events.get(store.app_id, event.id)
    assert found is not None
    assert (found.status is EventStatus.CANCELLED) is (is_open or status is EventStatus.CANCELLED)


async def test_events_of_another_app_cannot_be_cancelled_or_replayed(
    store: PipelineStore,
) -> None:
    event = await store.accept()
    other = new_app_id()
    assert not await store.events.cancel(other, event.id, LATER)
    assert not await store.events.replay(other, event.id, Priority.LOW, LATER)
    assert await store.events.get(store.app_id, event.id) == event


async def test_a_dead_letter_is_replayed_from_its_first_try(store: PipelineStore) -> None:
    event, job = await store.claimed()
    assert not await store.events.replay(store.app_id, event.id, Priority.LOW, LATER)
    assert await store.write(JobOutcome(job=job, next=DeadLetter(error="broken")), now=LATER) == [
        True
    ]
    assert await store.claim(now=NOW + 10**9) == []
    failed = await store.events.get(store.app_id, event.id)
    assert failed is not None
    assert (failed.status, failed.last_error) == (EventStatus.FAILED, "broken")
    assert await store.events.replay(store.app_id, event.id, Priority.HIGH, LATER)
    (replayed,) = await store.claim(now=LATER)
    assert (replayed.tries, replayed.lane, replayed.due_at) == (0, Priority.HIGH, LATER + 45_000)
    assert replayed.token > job.token


class FillingEngine:
    """The engine of a store whose disk is full after so many writes; it keeps what they changed."""

    def __init__(self, engine: Engine, room: int) -> None:
        self._engine = engine
        self.room = room
        self.changed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def write(self, unit: Unit) -> Rows | None:
        if not self.room:
            raise StorageFull
        self.room -= 1
        done = await self._engine.write(unit)
        self.changed += [
            str(row).count("/dead/")
            for step in unit.steps
            if step.statement.name == "replay_jobs"
            for row in step.rows
        ]
        return done


async def fail_with_dead_letters(store: PipelineStore) -> str:
    """Store an event that failed for many users, and other jobs with ids in between."""
    event, other = make_event(store.app_id), make_event(store.app_id)
    jobs = [
        make_job(each, id=f"{event.id}/dead/{number:05}")
        for number in range(DEAD)
        for each in ((other,) if number % 7 == 3 else (event,))
    ]
    await store.events.accept([event, other], jobs)
    dead = MAKE_DEAD.step(ids=keys_of(job.id for job in jobs if job.event_id == event.id))
    await store.engine.write(Unit("", (dead, MAKE_FAILED.step(id=event.id))))
    return event.id


async def find_state(store: PipelineStore, event_id: str) -> tuple[EventStatus, int, int]:
    """Return the status of an event, its retries, and how many of its jobs are dead letters."""
    event = await store.events.get(store.app_id, event_id)
    assert event is not None
    dead = (await store.queue.count(NOW)).get((store.app_id, -1))
    return event.status, event.retry_count, dead.total if dead else 0


async def test_many_dead_letters_are_replayed_some_at_a_time(
    engine: Engine, store: PipelineStore
) -> None:
    """No other write waits for more than a thousand of them."""
    event_id = await fail_with_dead_letters(store)
    store.events._engine = filling = FillingEngine(engine, room=99)
    assert await store.events.replay(store.app_id, event_id, Priority.LOW, LATER)
    assert await find_state(store, event_id) == (EventStatus.PROCESSING, 0, 0)
    assert max(filling.changed) <= 1_000
    assert sum(filling.changed) == DEAD - len(range(3, DEAD, 7))


async def test_a_replay_that_is_interrupted_goes_on_with_the_next(
    engine: Engine, store: PipelineStore
) -> None:
    """Until the last commit the event is failed: nobody takes a part for all."""
    event_id = await fail_with_dead_letters(store)
    store.events._engine = filling = FillingEngine(engine, room=1)
    with pytest.raises(StorageFull):
        await store.events.replay(store.app_id, event_id, Priority.LOW, LATER)
    status, retries, dead = await find_state(store, event_id)
    assert (status, retries) == (EventStatus.FAILED, 5)
    assert 0 < dead < DEAD - len(range(3, DEAD, 7))
    filling.room = 99
    assert await store.events.replay(store.app_id, event_id, Priority.LOW, LATER)
    assert await find_state(store, event_id) == (EventStatus.PROCESSING, 0, 0)
    assert not await store.events.replay(store.app_id, event_id, Priority.LOW, LATER)


async def test_one_that_is_a_dead_letter_again_leaves_the_event_failed(
    engine: Engine, store: PipelineStore
) -> None:
    """A worker may take the first ones while the others are still replayed."""
    event_id = await fail_with_dead_letters(store)

    class Worker(FillingEngine):
        async def write(self, unit: Unit) -> Rows | None:
            done = await super().write(unit)
            if len(self.changed) == 1:
                again = keys_of([f"{event_id}/dead/00000"])
                await engine.write(Unit("", (MAKE_DEAD.step(ids=again),)))
            return done

    store.events._engine = Worker(engine, room=99)
    assert await store.events.replay(store.app_id, event_id, Priority.LOW, LATER)
    assert await find_state(store, event_id) == (EventStatus.FAILED, 0, 1)
