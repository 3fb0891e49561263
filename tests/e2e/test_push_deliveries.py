"""Events that reach the devices of a user, through the gateway of a running server."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import (
    ANY_HOUR,
    deliveries,
    draft,
    explain,
    make_type,
    make_user,
    send,
    send_and_wait,
    timeline,
    wait_until,
)

ALWAYS = [True] * 24
LIMIT_S = 100


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def user_id(app: Asker) -> str:
    return make_user(app, quiet_hours=ANY_HOUR)


def register(app: Asker, user_id: str, **fields: Any) -> dict[str, Any]:
    answer = app.post("/v1/devices", {"platform": "clarion", "user_id": user_id, **fields})
    assert answer.status == 201, answer.body
    device: dict[str, Any] = answer.json
    return device


def make_push_type(app: Asker, **fields: Any) -> str:
    name = make_type(app, default_channels=["push"], **fields)
    template = {"subject": "Order", "body": "{{ order }} is ready", "variables": ["order"]}
    assert app.ask("PUT", f"/v1/types/{name}/templates/push", template).status == 200
    return name


def find_push(app: Asker, event_id: str, *statuses: str) -> dict[str, Any]:
    """Wait until the push of an event has one of these statuses, and return its delivery."""

    def look() -> dict[str, Any] | None:
        items = app.get(f"/v1/events/{event_id}/notifications").json["items"]
        for item in items:
            found = deliveries(app, item["id"])["push"]
            if found["status"] in statuses:
                return found | {"notification_id": item["id"]}
        return None

    return wait_until(look)


class Phone:
    """A device that is connected to the gateway."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def read(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                if frame["type"] == kind:
                    return frame

    async def acknowledge(self, message_id: str) -> None:
        await self.socket.send(json.dumps({"type": "ack", "id": message_id}))

    async def receives_nothing(self, for_s: float = 0.5) -> bool:
        try:
            async with asyncio.timeout(for_s):
                await self.socket.recv()
        except TimeoutError:
            return True
        return False


class Connected:
    """Connects a device while a block runs."""

    def __init__(self, server: Server, device: dict[str, Any]) -> None:
        url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
        self._connecting = connect(url, compression=None, ping_interval=None)
        self._device = device

    async def __aenter__(self) -> Phone:
        phone = Phone(await self._connecting.__aenter__())
        hello = {"type": "hello", "token": self._device["token"], "secret": self._device["secret"]}
        await phone.socket.send(json.dumps(hello))
        await phone.read("ready")
        return phone

    async def __aexit__(self, *_error: object) -> None:
        await self._connecting.__aexit__(None, None, None)


async def test_an_event_reaches_a_connected_device_and_its_acknowledgement_delivers_it(
    server: Server, app: Asker, user_id: str
) -> None:
    device, name = register(app, user_id), make_push_type(app, priority="high")
    event = draft(name, user_id=user_id) | {"deeplink": "app://orders/A-7", "ttl_s": 600}
    async with Connected(server, device) as phone:
        event_id = await asyncio.to_thread(send, app, event)
        frame = await phone.read("notification")
        sent = await asyncio.to_thread(find_push, app, event_id, "sent")
        await phone.acknowledge(frame["id"])
        done = await asyncio.to_thread(find_push, app, event_id, "delivered")
    payload = frame["payload"]
    assert payload["aps"]["alert"] == {"title": "Order", "body": "A-7 is ready"}
    assert (payload["deeplink"], payload["data"]) == ("app://orders/A-7", {"order": "A-7"})
    assert payload["notification_id"] == sent["notification_id"]
    assert frame["priority"] == 10
    assert sent["delivered_at"] is None
    (attempt,) = done["attempts"]
    assert (attempt["device_id"], attempt["status"]) == (device["device_id"], "delivered")
    assert (done["provider"], done["attempt_count"]) == ("gateway", 1)
    whats = [each["what"] for each in timeline(app, sent["notification_id"])]
    assert whats[-1] == "delivered"


async def test_all_devices_get_it_also_those_that_connect_later(
    server: Server, app: Asker, user_id: str
) -> None:
    devices = [register(app, user_id) for _ in range(3)]
    event_id = send(app, draft(make_push_type(app), user_id=user_id))
    assert len(find_push(app, event_id, "sent")["attempts"]) == 3
    ids = set()
    for device in devices:
        async with Connected(server, device) as phone:
            frame = await phone.read("notification")
            ids.add(frame["id"])
            await phone.acknowledge(frame["id"])
            await asyncio.to_thread(find_push, app, event_id, "delivered")
    assert len(ids) == 3


async def test_a_push_replaces_the_one_with_its_dedupe_key(
    server: Server, app: Asker, user_id: str
) -> None:
    device, name = register(app, user_id), make_push_type(app)
    events = [
        draft(name, user_id=user_id) | {"dedupe_key": "order A-7", "data": {"order": order}}
        for order in ("old", "new")
    ]
    for event in events:
        # One after the other: of two that are sent at once, either may replace the other.
        find_push(app, send_and_wait(app, event)["event_id"], "sent")
    async with Connected(server, device) as phone:
        frame = await phone.read("notification")
        assert frame["payload"]["data"] == {"order": "new"}
        assert await phone.receives_nothing()


def test_a_device_can_refuse_or_have_quiet_hours_of_its_own(app: Asker, user_id: str) -> None:
    loud, quiet = register(app, user_id), register(app, user_id)
    name = make_push_type(app)
    change: dict[str, Any] = {"preferences": {"quiet_hours": ALWAYS}}
    path = f"/v1/devices/{quiet['device_id']}"
    assert app.ask("PATCH", path, change).status == 200
    event_id = send(app, draft(name, user_id=user_id))
    (attempt,) = find_push(app, event_id, "sent")["attempts"]
    assert attempt["device_id"] == loud["device_id"]
    change = {"preferences": {"enabled": False}}
    assert app.ask("PATCH", f"/v1/devices/{loud['device_id']}", change).status == 200
    verdict = explain(app, draft(name, user_id=user_id))["push"]
    assert (verdict["verdict"], verdict["reason"]) == ("hold", "quiet_hours")
    assert app.ask("PATCH", path, change).status == 200
    verdict = explain(app, draft(name, user_id=user_id))["push"]
    assert (verdict["verdict"], verdict["reason"]) == ("drop", "devices_off")


def test_without_a_device_it_is_dropped(app: Asker, user_id: str) -> None:
    verdict = explain(app, draft(make_push_type(app), user_id=user_id))["push"]
    assert (verdict["verdict"], verdict["reason"]) == ("drop", "no_device")


def test_a_push_that_expires_unseen_is_expired(app: Asker, user_id: str) -> None:
    register(app, user_id)
    event = draft(make_push_type(app), user_id=user_id) | {"ttl_s": 2}
    found = find_push(app, send(app, event), "expired")
    assert found["reason"] == "expired"


def test_a_push_to_a_device_that_is_revoked_has_failed(app: Asker, user_id: str) -> None:
    device = register(app, user_id, label=uuid.uuid4().hex)
    event_id = send(app, draft(make_push_type(app), user_id=user_id))
    find_push(app, event_id, "sent")
    path = f"/v1/devices/{device['device_id']}/invalidate"
    assert app.post(path, {"reason": "uninstalled"}).status == 200
    assert find_push(app, event_id, "failed")["reason"] == "address_gone"
