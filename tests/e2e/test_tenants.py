"""Two apps that use the same names for everything: neither sees, blocks or uses up anything of the
other's, in caches, limits, keys, topics, logs and metrics.
"""

import asyncio
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import jwt
import pytest
from websockets.asyncio.client import connect

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.sending import ANY_HOUR, draft, inbox, send_and_wait, set_preferences, wait_until

LIMIT_S = 100
TYPE, USER, TOPIC = "SAME_TYPE", "same-user", "same-topic"


@dataclass(frozen=True)
class Tenant:
    """An app with a user, a type and a device, whose names the other app has too."""

    server: Server
    card: dict[str, Any]
    mark: str

    @property
    def app(self) -> Asker:
        return self.server.with_key(self.card["api_key"])

    @property
    def me(self) -> Asker:
        claims = {"sub": USER, "aud": self.card["id"], "exp": time.time() + 600}
        return self.server.with_key(jwt.encode(claims, self.card["user_secret"], "HS256"))

    def set_up(self) -> None:
        app = self.app
        assert app.ask("PUT", f"/v1/users/{USER}", {"name": self.mark}).status == 201
        set_preferences(app, USER, quiet_hours=ANY_HOUR)
        made = {"dedupe": {"window_s": 3600, "mode": "drop"}, "display_name": self.mark}
        assert app.ask("PUT", f"/v1/types/{TYPE}", made).status in {200, 201}
        template = {"body": f"{self.mark} {{{{ order }}}}", "variables": ["order"]}
        answer = app.ask("PUT", f"/v1/types/{TYPE}/templates/in_app", template)
        assert answer.status == 200, answer.body


@pytest.fixture
def pair(server: Server) -> tuple[Tenant, Tenant]:
    tenants = [Tenant(server, server.make_app(), uuid.uuid4().hex) for _ in range(2)]
    for each in tenants:
        each.set_up()
    return tenants[0], tenants[1]


def test_an_idempotency_key_a_dedupe_key_and_a_template_are_of_one_app(
    pair: tuple[Tenant, Tenant],
) -> None:
    """The second app's event is accepted, decided and rendered as if the first had sent nothing."""
    event = draft(TYPE, user_id=USER) | {"dedupe_key": "same"}
    seen = set()
    for tenant in pair:
        headers = {"Idempotency-Key": "same-key"}
        accepted = tenant.app.ask("POST", "/v1/events", event, headers=headers)
        assert (accepted.status, "idempotent-replayed" in accepted.headers) == (202, False)
        seen.add(accepted.json["event_id"])

        def find(tenant: Tenant = tenant) -> dict[str, Any] | None:
            return next(iter(inbox(tenant.app, USER)), None)

        item = wait_until(find)
        assert item["body"].startswith(tenant.mark)
    assert len(seen) == 2
    again = pair[0].app.ask("POST", "/v1/events", event, headers={"Idempotency-Key": "same-key"})
    assert again.headers["idempotent-replayed"] == "true"


def test_a_change_in_one_app_is_not_cached_for_the_other(pair: tuple[Tenant, Tenant]) -> None:
    first, second = pair
    for tenant in pair:  # everything is in the caches
        send_and_wait(tenant.app, draft(TYPE, user_id=USER))
        assert tenant.me.get("/v1/me/notifications").status == 200
    assert first.app.ask("PATCH", f"/v1/users/{USER}", {"status": "inactive"}).status == 200
    assert first.app.ask("DELETE", f"/v1/types/{TYPE}").status == 204
    refused = wait_until(lambda: True if first.me.get("/v1/caller").status == 401 else None)
    assert refused
    assert second.me.get("/v1/caller").status == 200
    event = send_and_wait(second.app, draft(TYPE, user_id=USER))
    assert event["status"] == "completed"


def test_an_inbox_action_reaches_the_inbox_of_one_app(pair: tuple[Tenant, Tenant]) -> None:
    for tenant in pair:
        send_and_wait(tenant.app, draft(TYPE, user_id=USER))
    assert pair[0].me.post("/v1/me/notifications/read-all").status == 200
    counts = [each.me.get("/v1/me/unread-count").json["unread_count"] for each in pair]
    assert counts == [0, 1]


async def test_a_topic_message_reaches_the_devices_of_one_app(pair: tuple[Tenant, Tenant]) -> None:
    first, second = pair
    devices = []
    for tenant in pair:
        made = tenant.app.post("/v1/devices", {"platform": "clarion", "user_id": USER}).json
        path = f"/v1/devices/{made['device_id']}/topics/{TOPIC}"
        assert tenant.app.ask("PUT", path).status == 204
        devices.append(made)
    url = f"ws://127.0.0.1:{first.server.installation.gateway_port}/v1/gateway"
    async with connect(url) as socket:
        hello = {"type": "hello", "token": devices[1]["token"], "secret": devices[1]["secret"]}
        await socket.send(json.dumps(hello))
        assert json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S))["type"] == "ready"
        for tenant in pair:  # the first app's is sent before, and must not come
            body = {"payload": {"aps": {"alert": tenant.mark}}}
            posted = tenant.app.post(f"/v1/topics/{TOPIC}/messages", body)
            assert posted.status in {200, 201, 202}, posted.body
        frame = json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S))
        assert second.mark in json.dumps(frame)


async def test_a_live_client_sees_the_changes_of_its_own_app(pair: tuple[Tenant, Tenant]) -> None:
    first, second = pair
    send_and_wait(first.app, draft(TYPE, user_id=USER))
    found = second.me.get("/v1/me/notifications").json
    assert (found["items"], found["unread_count"], found["sequence"]) == ([], 0, 0)


def test_a_user_who_uses_up_a_limit_leaves_that_of_the_same_name(tmp_path: Any) -> None:
    installation = Installation(tmp_path, user_requests_per_minute="5")
    first = installation.initialise()
    with installation:
        server = Server(installation, first)
        pair = [Tenant(server, server.make_app(), "x") for _ in range(2)]
        statuses = [pair[0].me.get("/v1/caller").status for _ in range(12)]
        assert 429 in statuses
        assert pair[1].me.get("/v1/caller").status == 200


def test_nothing_of_an_app_is_in_the_metrics_or_the_log(
    server: Server, pair: tuple[Tenant, Tenant]
) -> None:
    """Neither names nor ids of apps and users: a label would grow with each, and show them."""
    for tenant in pair:
        send_and_wait(tenant.app, draft(TYPE, user_id=USER))
        tenant.app.get(f"/v1/users/{tenant.mark}-unknown")
        tenant.app.get(f"/v1/{tenant.mark}")
    metrics = server.read_metrics()
    log = server.installation.log.read_text()
    for tenant in pair:
        for planted in (tenant.mark, tenant.card["api_key"], tenant.card["user_secret"]):
            assert planted not in metrics
            assert planted not in log
        assert tenant.card["id"] not in metrics
    assert USER not in metrics
    assert USER not in log
