"""The `History` port."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.errors import InvalidFields
from clarion.push.messages import History, Messages
from clarion.push.model import (
    InvalidationReason,
    Message,
    MessageReason,
    MessageRecord,
    MessageStatus,
    PushPriority,
)
from clarion.push.sql.devices import Devices
from tests.factories import NOW, make_device, make_message, new_app_id

DELIVERED = (MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)


async def keep(
    messages: Messages,
    message: Message,
    status: MessageStatus = MessageStatus.DELIVERED,
    reason: MessageReason | None = MessageReason.ACKNOWLEDGED,
) -> MessageRecord:
    assert await messages.add(message, status, reason)
    return MessageRecord(
        id=message.id,
        device_id=message.device_id,
        sequence=message.sequence,
        priority=message.priority,
        collapse_id=message.collapse_id,
        status=status,
        reason=reason,
        created_at=message.created_at,
        expires_at=message.expires_at,
        updated_at=message.created_at,
        payload=message.payload,
    )


async def all_records(
    history: History, device_id: str = "device", app_id: str = "app"
) -> list[MessageRecord]:
    page = await history.list(app_id, device_id=device_id, after=None, limit=100)
    assert page.next is None
    return list(page.items)


@pytest.mark.parametrize("status", MessageStatus)
@pytest.mark.parametrize("reason", [None, MessageReason.DEVICE_OFFLINE])
async def test_a_message_is_shown_with_what_became_of_it(
    messages: Messages, history: History, status: MessageStatus, reason: MessageReason | None
) -> None:
    message = make_message(collapse_id="ä", payload=b'{"\x00\xff":1}')
    record = await keep(messages, message, status, reason)
    assert await history.get("app", "device", message.id) == record
    assert await all_records(history) == [record]


@pytest.mark.parametrize("reason", MessageReason)
async def test_every_reason_can_be_kept(
    messages: Messages, history: History, reason: MessageReason
) -> None:
    record = await keep(messages, make_message(), MessageStatus.FAILED, reason)
    assert await all_records(history) == [record]


async def test_an_unknown_message_is_none(messages: Messages, history: History) -> None:
    record = await keep(messages, make_message())
    assert await history.get("app", "device", "nothing") is None
    assert await history.get("app", "other", record.id) is None


async def test_another_app_sees_nothing(messages: Messages, history: History) -> None:
    record = await keep(messages, make_message())
    assert await history.get("other", "device", record.id) is None
    assert await all_records(history, app_id="other") == []


async def test_messages_of_a_device_are_listed_newest_first(
    messages: Messages, history: History
) -> None:
    records = [await keep(messages, make_message()) for _ in range(3)]
    await keep(messages, make_message("other"))
    assert await all_records(history) == records[::-1]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_the_history_survives_the_device(
    devices: Devices, messages: Messages, history: History, *, is_deleted: bool
) -> None:
    device = make_device()
    await devices.add(device)
    record = await keep(messages, make_message(device.id))
    if is_deleted:
        await devices.delete("app", device.id, NOW)
    else:
        await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
    assert await all_records(history, device.id) == [record]


# Two nodes may accept messages at the same moment, so sequences can be equal.
# What waits and what has ended are read apart.
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(PushPriority), st.sampled_from(MessageStatus)),
        max_size=8,
    ),
    limit=st.integers(1, 9),
)
async def test_pages_hold_every_message_once_newest_first_while_more_are_added(
    messages: Messages,
    history: History,
    given: list[tuple[int, PushPriority, MessageStatus]],
    limit: int,
) -> None:
    device_id, seen, after = new_app_id(), list[MessageRecord](), None
    made = [make_message(device_id, sequence=s, priority=priority) for s, priority, _ in given]
    statuses = [status for *_, status in given]
    records = {
        message: await keep(messages, message, status)
        for message, status in zip(made, statuses, strict=True)
    }
    while True:
        page = await history.list("app", device_id=device_id, after=after, limit=limit)
        assert len(page.items) <= limit
        seen += page.items
        after = page.next
        if after is None:
            break
        await keep(messages, make_message(device_id))
    order = sorted(made, key=lambda message: (message.sequence, message.id), reverse=True)
    assert seen == [records[message] for message in order]


@pytest.mark.parametrize("cursor", ["x", "-", "-1-a", "9" * 30, "²-a", "1-\0"])
async def test_a_cursor_that_is_none_is_refused(history: History, cursor: str) -> None:
    with pytest.raises(InvalidFields):
        await history.list("app", device_id="device", after=cursor, limit=1)


async def test_finished_messages_accepted_before_a_time_are_pruned(
    messages: Messages, history: History
) -> None:
    made = [make_message(sequence=(NOW + n) * 1000, created_at=NOW + n) for n in range(4)]
    records = [await keep(messages, message) for message in made]
    assert await history.prune("app", NOW + 2, limit=9) == 2
    assert await all_records(history) == [records[3], records[2]]
    assert await history.prune("app", NOW + 2, limit=9) == 0


@pytest.mark.parametrize("status", [MessageStatus.PENDING, MessageStatus.QUEUED])
async def test_what_waits_is_not_pruned(
    messages: Messages, history: History, status: MessageStatus
) -> None:
    record = await keep(messages, make_message(sequence=1), status, None)
    assert await history.prune("app", NOW, limit=9) == 0
    assert await all_records(history) == [record]


@pytest.mark.parametrize("status", [s for s in MessageStatus if s not in ("pending", "queued")])
async def test_every_finished_status_is_pruned(
    messages: Messages, history: History, status: MessageStatus
) -> None:
    await keep(messages, make_message(sequence=1), status, None)
    assert await history.prune("app", NOW, limit=9) == 1


async def test_no_more_are_pruned_than_asked_for(messages: Messages, history: History) -> None:
    for _ in range(5):
        await keep(messages, make_message(sequence=1))
    assert [await history.prune("app", NOW, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_messages_of_another_app_are_not_pruned(messages: Messages, history: History) -> None:
    record = await keep(messages, make_message(sequence=1))
    assert await history.prune("other", NOW, limit=9) == 0
    assert await all_records(history) == [record]
