"""The `FeedbackList` port."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.errors import InvalidFields
from clarion.push.model import Device, Feedback, InvalidationReason
from clarion.push.sql.devices import Devices
from clarion.push.sql.feedback import FeedbackList
from clarion.push.tables import FEEDBACK
from clarion.store.engine import Engine
from clarion.store.lifecycle.retention import prune
from tests.factories import NOW, make_device, new_app_id


async def invalidate(devices: Devices, device: Device, now: int) -> Feedback:
    await devices.add(device) or await devices.refresh(device, is_by_app=True)
    invalidated = await devices.invalidate(
        device.app_id, device.id, InvalidationReason.UNINSTALLED, now
    )
    assert invalidated is not None
    return Feedback(
        app_id=device.app_id,
        token_hash=device.token_hash,
        reason=InvalidationReason.UNINSTALLED,
        invalidated_at=now,
    )


async def all_feedback(feedback: FeedbackList, app_id: str, since: int = 0) -> list[Feedback]:
    page = await feedback.list(app_id, since=since, after=None, limit=100)
    assert page.next is None
    return list(page.items)


async def test_a_valid_device_is_not_in_the_feedback(
    devices: Devices, feedback: FeedbackList
) -> None:
    await devices.add(make_device())
    assert await all_feedback(feedback, "app") == []


@pytest.mark.parametrize("reason", InvalidationReason)
async def test_an_invalidated_device_is_in_the_feedback_with_its_reason(
    devices: Devices, feedback: FeedbackList, reason: InvalidationReason
) -> None:
    device = make_device()
    await devices.add(device)
    await devices.invalidate("app", device.id, reason, NOW)
    (entry,) = await all_feedback(feedback, "app")
    assert (entry.token_hash, entry.reason) == (device.token_hash, reason)


async def test_entries_are_those_of_one_app(devices: Devices, feedback: FeedbackList) -> None:
    mine = await invalidate(devices, make_device("app"), NOW)
    await invalidate(devices, make_device("other"), NOW)
    assert await all_feedback(feedback, "app") == [mine]


async def test_entries_are_listed_oldest_first(devices: Devices, feedback: FeedbackList) -> None:
    entries = [await invalidate(devices, make_device(), NOW + moment) for moment in (5, 1, 3)]
    assert await all_feedback(feedback, "app") == [entries[1], entries[2], entries[0]]


async def test_the_list_begins_at_the_time_that_is_asked_for(
    devices: Devices, feedback: FeedbackList
) -> None:
    for first_byte in (b"\x00", b"\x80", b"\xff"):
        await invalidate(devices, make_device(token_hash=first_byte * 32), NOW - 1)
    at = [
        await invalidate(devices, make_device(token_hash=byte * 31), NOW)
        for byte in (b"\x00", b"\xff")
    ]
    assert await all_feedback(feedback, "app", since=NOW) == at
    assert await all_feedback(feedback, "app", since=NOW + 1) == []


async def test_a_device_that_was_invalidated_twice_is_there_twice(
    devices: Devices, feedback: FeedbackList
) -> None:
    device = make_device()
    both = [await invalidate(devices, device, NOW), await invalidate(devices, device, NOW + 1)]
    assert await all_feedback(feedback, "app") == both


async def test_entries_survive_refreshing_and_deleting(
    devices: Devices, feedback: FeedbackList
) -> None:
    refreshed, deleted = make_device(), make_device()
    both = [await invalidate(devices, refreshed, NOW), await invalidate(devices, deleted, NOW + 1)]
    await devices.refresh(refreshed, is_by_app=True)
    await devices.delete("app", deleted.id, NOW + 2)
    assert await all_feedback(feedback, "app") == both


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moments=st.lists(st.integers(0, 3), max_size=8), limit=st.integers(1, 9))
async def test_pages_hold_every_entry_once_in_order_while_more_are_added(
    devices: Devices, feedback: FeedbackList, moments: list[int], limit: int
) -> None:
    app_id = new_app_id()
    made = await asyncio.gather(
        *(invalidate(devices, make_device(app_id), NOW + m) for m in moments)
    )
    expected = sorted(made, key=lambda entry: (entry.invalidated_at, entry.token_hash))
    seen: list[Feedback] = []
    after: str | None = None
    while True:
        page = await feedback.list(app_id, since=NOW, after=after, limit=limit)
        assert len(page.items) <= limit
        seen += page.items
        after = page.next
        if after is None:
            break
        if len(expected) < len(moments) + 3:
            expected.append(await invalidate(devices, make_device(app_id), NOW + len(expected) + 4))
    assert seen == expected


@pytest.mark.parametrize("cursor", ["x", "1-xy", "-", "-1-00", "9" * 30 + "-00", "1-é"])
async def test_a_cursor_that_is_none_is_refused(feedback: FeedbackList, cursor: str) -> None:
    with pytest.raises(InvalidFields):
        await feedback.list("app", since=0, after=cursor, limit=1)


async def test_old_entries_of_all_apps_are_pruned(
    engine: Engine, devices: Devices, feedback: FeedbackList
) -> None:
    await invalidate(devices, make_device("app"), NOW - 1)
    await invalidate(devices, make_device("other"), NOW - 2)
    recent = await invalidate(devices, make_device("app"), NOW)
    assert await prune(engine, FEEDBACK, NOW - 1, 10) == 2
    assert await prune(engine, FEEDBACK, NOW - 1, 10) == 0
    assert await all_feedback(feedback, "app") == [recent]
    assert await all_feedback(feedback, "other") == []


async def test_pruning_feedback_deletes_the_oldest_up_to_a_limit(
    engine: Engine, devices: Devices, feedback: FeedbackList
) -> None:
    entries = [await invalidate(devices, make_device(), NOW + moment) for moment in range(5)]
    assert await prune(engine, FEEDBACK, NOW + 9, 3) == 3
    assert await all_feedback(feedback, "app") == entries[3:]
    assert await prune(engine, FEEDBACK, NOW + 9, 3) == 2
