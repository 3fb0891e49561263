"""One event over five channels, to real servers of each protocol; also over SIGKILL."""

import asyncio
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import pytest

from tests.conftest import run_apart, run_sql
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import ANY_HOUR, deliveries, send, set_preferences, timeline
from tests.leases import shorten_leases
from tests.peers.mail_servers import PASSWORD, USERNAME, Authority, MailServer
from tests.peers.twilio import ACCOUNT, TOKEN, Twilio, sign
from tests.peers.webhooks import WebhookReceiver

CHANNELS = ["in_app", "push", "email", "sms", "webhook"]
KILLS = 3
EVENTS = 8  # before each kill
LIMIT_S = 100


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.rest)])
def flags(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[dict[str, str]]:
    allowed = {"allow_private_targets": "127.0.0.0/8"}
    if request.param == "sqlite":
        yield allowed
        return
    name = f"five_{uuid.uuid4().hex}"
    run_apart(run_sql(postgres_url, f"CREATE DATABASE {name}"))
    yield {**allowed, "database": urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))}
    run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@dataclass
class World:
    """An installation with a provider for each channel, and a user with all addresses."""

    installation: Installation
    app: Asker
    mail: MailServer
    twilio: Twilio
    hook: WebhookReceiver
    device: dict[str, Any]

    @property
    def event(self) -> dict[str, Any]:
        return {
            "type": "ORDER",
            "recipient": {"user_id": "ana"},
            "channels": CHANNELS,
            "data": {"order": uuid.uuid4().hex},
        }

    def find(self, event_id: str) -> tuple[str, dict[str, dict[str, Any]]] | None:
        items = self.app.get(f"/v1/events/{event_id}/notifications").json["items"]
        return (items[0]["id"], deliveries(self.app, items[0]["id"])) if items else None

    def wait(self, event_id: str) -> tuple[str, dict[str, dict[str, Any]]]:
        """Wait until all deliveries of an event are sent or delivered.

        On PostgreSQL what a killed server had claimed is done again when its lease has run out.
        """
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            found = self.find(event_id)
            if found and {each["status"] for each in found[1].values()} <= {"sent", "delivered"}:
                return found
            time.sleep(0.05)
        raise AssertionError(f"not done in {LIMIT_S} s: {self.find(event_id)}")


@pytest.fixture
async def world(tmp_path: Path, flags: dict[str, str]) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        authority = Authority(tmp_path / "authority")
        mail = await stack.enter_async_context(MailServer(authority))
        twilio = await stack.enter_async_context(Twilio())
        hook = await stack.enter_async_context(WebhookReceiver())
        installation = Installation(tmp_path, **flags)
        first = await asyncio.to_thread(installation.initialise)
        await asyncio.to_thread(installation.start)
        app = Asker(installation.port, first["app"]["api_key"])
        try:
            device = await asyncio.to_thread(set_up, app, mail, twilio, hook)
            yield World(installation, app, mail, twilio, hook, device)
        finally:
            await asyncio.to_thread(installation.stop)


def set_up(app: Asker, mail: MailServer, twilio: Twilio, hook: WebhookReceiver) -> dict[str, Any]:
    """Create the providers, the type, the user and their device; return the device."""
    smtp = {
        "kind": "smtp",
        "settings": {
            "host": "localhost",
            "port": mail.port,
            "username": USERNAME,
            "from": "Shop <shop@example.com>",
            "ca_path": mail.authority.ca_path,
        },
        "secrets": {"password": PASSWORD},
    }
    sms = {
        "kind": "twilio",
        "settings": {"base_url": twilio.url, "account_sid": ACCOUNT, "from": "+15005550006"},
        "secrets": {"auth_token": TOKEN},
    }
    webhook = {"kind": "webhook", "settings": {"url": hook.url}}
    for path, body in (("email/main", smtp), ("sms/main", sms), ("webhook/main", webhook)):
        made = app.ask("PUT", f"/v1/providers/{path}", body)
        assert made.status == 201, made.body
        assert "password" not in made.body.decode().replace('"password"', "")
        hook.secret = made.json.get("secret") or hook.secret
    assert app.ask("PUT", "/v1/types/ORDER", {"category": "transactional"}).status == 200
    for channel in CHANNELS:
        template = {"body": "Order {{ order }}", "variables": ["order"]}
        if channel == "email":
            template["subject"] = "Your order"
        put = app.ask("PUT", f"/v1/types/ORDER/templates/{channel}", template)
        assert put.status == 200, put.body
    user = {"name": "Ana", "email": "ana@example.com", "phone": "+4915112345678"}
    assert app.ask("PUT", "/v1/users/ana", user).status == 201
    set_preferences(app, "ana", quiet_hours=ANY_HOUR, types={"ORDER": {"sms": True}})
    device: dict[str, Any] = app.post("/v1/devices", {"platform": "clarion", "user_id": "ana"}).json
    return device


async def test_one_event_goes_over_five_channels(world: World) -> None:
    event = world.event
    event_id = await asyncio.to_thread(send, world.app, event)
    notification_id, found = await asyncio.to_thread(world.wait, event_id)
    assert {channel: each["status"] for channel, each in found.items()} == {
        "in_app": "delivered",
        "push": "sent",
        "email": "delivered",
        "sms": "sent",
        "webhook": "delivered",
    }
    text = f"Order {event['data']['order']}"
    (mail,) = world.mail.messages
    assert (mail["subject"], mail["to"]) == ("Your order", "Ana <ana@example.com>")
    assert text in mail.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "List-Unsubscribe" in mail
    (sms,) = world.twilio.accepted
    assert (sms["Body"], sms["To"]) == (text, "+4915112345678")
    assert world.hook.faults == []
    ((hook_id, body),) = world.hook.bodies
    assert body["data"]["notification_id"] == notification_id
    assert hook_id == f"{notification_id}/webhook/main"
    for channel in ("push", "email", "sms", "webhook"):
        (attempt,) = found[channel]["attempts"]
        assert attempt["number"] == 1
    lines = await asyncio.to_thread(timeline, world.app, notification_id)
    assert {each["channel"] for each in lines} >= set(CHANNELS)
    await asyncio.to_thread(report_delivered, sms["StatusCallback"])
    _, found = await asyncio.to_thread(world.wait, event_id)
    assert found["sms"]["status"] == "delivered"
    metrics = await asyncio.to_thread(lambda: Asker(world.installation.port).get("/metrics").body)
    for kind, outcome in (("smtp", "delivered"), ("twilio", "sent"), ("webhook", "delivered")):
        channel = {"smtp": "email", "twilio": "sms", "webhook": "webhook"}[kind]
        line = f'channel="{channel}",kind="{kind}",outcome="{outcome}"}} 1.0'
        assert line in metrics.decode()


def report_delivered(url: str) -> None:
    """Call back as Twilio does; a report with another signature is refused."""
    form = {"MessageSid": "SM1", "MessageStatus": "delivered"}
    for signature, status in (("AAAA", 403), (sign(url, form), 204)):
        request = urllib.request.Request(  # noqa: S310 - our own server
            url, urlencode(form).encode(), {"X-Twilio-Signature": signature}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                got = answer.status
        except urllib.error.HTTPError as error:
            got = error.code
        assert got == status


async def test_every_channel_gets_it_although_the_server_is_killed(world: World) -> None:
    """At least once, with the same id each time."""
    event_ids: list[str] = []
    for _ in range(KILLS):
        event_ids += await asyncio.to_thread(
            lambda: [send(world.app, world.event) for _ in range(EVENTS)]
        )
        process = world.installation.process
        assert process is not None
        process.kill()
        await asyncio.to_thread(process.wait)
        if (url := world.installation.database_url).startswith("postgres"):
            await shorten_leases(url)
        await asyncio.to_thread(world.installation.start)
    for event_id in event_ids:
        notification_id, found = await asyncio.to_thread(world.wait, event_id)
        assert set(found) == set(CHANNELS)
    ids = [item[0] for item in world.hook.bodies]
    assert len(set(ids)) == len(event_ids)
    assert len(ids) <= len(event_ids) + KILLS * EVENTS
    assert len({mail["message-id"] for mail in world.mail.messages}) == len(event_ids)
    assert len({sms["StatusCallback"] for sms in world.twilio.accepted}) == len(event_ids)
    stored = await asyncio.to_thread(list_messages, world)
    assert len(stored) == len(event_ids)
    assert world.hook.faults == []
    assert notification_id


def list_messages(world: World) -> list[dict[str, Any]]:
    path = f"/v1/devices/{world.device['device_id']}/messages?limit=100"
    answer = world.app.get(path)
    assert answer.status == 200, answer.body
    items: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return items
