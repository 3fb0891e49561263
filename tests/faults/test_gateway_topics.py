"""Messages to topics over a real socket, on a real store."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clarion.push.model import StoragePolicy
from tests.factories import DAY, make_broadcast
from tests.faults.gateway.in_process import PATIENCE_S, Gateway, open_gateway
from tests.faults.gateway.lazy_device import LazyDevice
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

TOPICS = ["harbour", "news"]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with open_gateway(tmp_path) as opened:
        for topic in TOPICS:
            assert await opened.dispatch.topics.subscribe(opened.device, topic)
        yield opened


async def publish(gateway: Gateway, message_id: str, topic: str) -> None:
    now = gateway.clock.now()
    message = make_broadcast(
        topic, id=message_id, app_id=gateway.device.app_id, created_at=now, expires_at=now + DAY
    )
    assert await gateway.dispatch.topics.publish(message, StoragePolicy.ALL) is True


async def receive(device: LazyDevice) -> tuple[str, str]:
    async with asyncio.timeout(PATIENCE_S):
        _, payload = await device.read_frame()
    frame = json.loads(payload)
    await device.send({"type": "ack", "id": frame["id"]})
    return frame["id"], frame["topic"]


async def cursors(gateway: Gateway) -> list[int]:
    return [each.cursor for each in await gateway.broadcasts.subscriptions(gateway.device.id)]


@pytest.mark.parametrize("is_online", [True, False], ids=["online", "later"])
async def test_two_messages_with_one_id_to_two_topics_are_two_messages(
    gateway: Gateway, *, is_online: bool
) -> None:
    device = await LazyDevice.connect(gateway.port)
    if is_online:
        await device.send_hello()
    for topic in TOPICS:
        await publish(gateway, "one-id", topic)
    if not is_online:
        await device.send_hello()
    received = [await receive(device) for _ in TOPICS]
    assert sorted(received) == [("one-id", topic) for topic in TOPICS]
    async with asyncio.timeout(PATIENCE_S):
        while await cursors(gateway) != [1, 1]:  # noqa: ASYNC110 - the store signals nobody
            await asyncio.sleep(0.01)
    device.leave()
