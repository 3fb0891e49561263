"""The contract of `Statistics`."""

import pytest

from clarion.push.messages import Messages
from clarion.push.model import InvalidationReason, MessageStatus
from clarion.push.sql.devices import Devices
from clarion.push.sql.statistics import Statistics
from clarion.push.sql.topics import Broadcasts
from tests.factories import NOW, make_device, make_message


async def add_devices(devices: Devices, count: int, app_id: str = "app") -> list[str]:
    made = [make_device(app_id) for _ in range(count)]
    for device in made:
        await devices.add(device)
    return [device.id for device in made]


async def test_of_nothing_there_is_nothing(statistics: Statistics) -> None:
    assert await statistics.count_devices("app") == (0, 0)
    assert await statistics.count_messages("app", 0) == {}
    assert await statistics.count_subscribers("app", 9) == ()


async def test_devices_are_counted_by_whether_they_are_valid(
    devices: Devices, statistics: Statistics
) -> None:
    ids = await add_devices(devices, 3)
    await add_devices(devices, 1, "other")
    await devices.invalidate("app", ids[0], InvalidationReason.REVOKED, NOW)
    assert await statistics.count_devices("app") == (2, 1)


async def test_deleted_devices_are_not_counted(devices: Devices, statistics: Statistics) -> None:
    ids = await add_devices(devices, 2)
    await devices.delete("app", ids[0], NOW)
    assert await statistics.count_devices("app") == (1, 0)


@pytest.mark.parametrize("status", MessageStatus)
async def test_messages_are_counted_by_status(
    messages: Messages, statistics: Statistics, status: MessageStatus
) -> None:
    for device_id in ("a", "b"):
        await messages.add(make_message(device_id), status, None)
    await messages.add(make_message("c"), MessageStatus.QUEUED, None)
    await messages.add(make_message("a", app_id="other"), status, None)
    expected = {MessageStatus.QUEUED: 1} | {status: 2 + (status is MessageStatus.QUEUED)}
    assert await statistics.count_messages("app", NOW) == expected


async def test_messages_are_counted_from_a_time_on(
    messages: Messages, statistics: Statistics
) -> None:
    for moment in range(3):
        message = make_message(sequence=(NOW + moment) * 1000, created_at=NOW + moment)
        await messages.add(message, MessageStatus.FAILED, None)
    assert await statistics.count_messages("app", NOW + 1) == {MessageStatus.FAILED: 2}
    assert await statistics.count_messages("app", NOW + 3) == {}


async def test_topics_are_counted_by_valid_devices_most_first(
    devices: Devices, broadcasts: Broadcasts, statistics: Statistics
) -> None:
    ids = await add_devices(devices, 4)
    for topic, subscribers in (("b", ids[:2]), ("a", ids[:2]), ("most", ids), ("gone", ids[3:])):
        for device_id in subscribers:
            await broadcasts.subscribe("app", device_id, topic, NOW)
    await devices.invalidate("app", ids[3], InvalidationReason.REVOKED, NOW)
    expected = (("most", 3), ("a", 2), ("b", 2))
    assert await statistics.count_subscribers("app", 9) == expected
    assert await statistics.count_subscribers("app", 2) == expected[:2]
    assert await statistics.count_subscribers("other", 9) == ()
