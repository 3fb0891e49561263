"""The `Events` port: accept, list, cancel, replay."""

from functools import partial

import pytest

from clarion.catalog.model import Channel, Priority
from clarion.errors import Conflict
from clarion.events.model import (
    Actor,
    Audience,
    AudienceKind,
    Content,
    DeadLetter,
    EventStatus,
    JobOutcome,
    Target,
)
from clarion.pages import READ_FOR_PAGE
from clarion.store.engine import Engine
from tests.factories import NOW, make_once, new_app_id
from tests.pipeline import PipelineStore, make_event, make_job

LATER = NOW + 5
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
