"""The Web Push service of a running server: endpoints, what may be sent, and who gets it."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from clarion.catalog.model import Channel
from clarion.channels.http_clients import HttpClients
from clarion.channels.model import Address, Configuration, Delivered, OutgoingMessage
from clarion.channels.port import SenderContext
from clarion.channels.targets import Targets
from clarion.channels.web_push import WEB_PUSH, WebPushSecrets, WebPushSettings
from clarion.clock import SystemClock
from clarion.push.model.vapid import (
    new_private_key,
    read_base64url,
    read_private_key,
    write_public_key,
)
from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import wait_until
from tests.factories import make_user
from tests.pipeline import make_event, make_notification
from tests.web_push import Browser

LIMIT_S = 100
TTL = {"TTL": "60"}


@pytest.fixture
def device(server: Server) -> dict[str, Any]:
    made: dict[str, Any] = server.app.post("/v1/devices", {"platform": "clarion"}).json
    return made


def make_endpoint(asker: Asker, device: dict[str, Any], **details: Any) -> dict[str, Any]:
    made = asker.post(f"/v1/devices/{device['device_id']}/endpoints", details)
    assert made.status == 201, made.body
    endpoint: dict[str, Any] = made.json
    return endpoint


@pytest.fixture
def endpoint(server: Server, device: dict[str, Any]) -> dict[str, Any]:
    return make_endpoint(server.app, device)


def post(server: Server, url: str, body: bytes = b"text", **headers: str) -> Answer:
    """Send to an endpoint, as anyone can who knows its URL."""
    given = TTL | {name.replace("_", "-"): value for name, value in headers.items()}
    return server.anyone.post(urlsplit(url).path, body, headers=given)


def status_of(server: Server, url: str) -> int:
    return post(server, url).status


@asynccontextmanager
async def listening(server: Server, device: dict[str, Any]) -> AsyncIterator[Any]:
    """Connect a device, and yield what takes the bodies of its messages."""
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
    async with connect(url) as socket:
        hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
        await socket.send(json.dumps(hello))
        assert json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S))["type"] == "ready"

        async def take() -> dict[str, Any]:
            frame = json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S))
            await socket.send(json.dumps({"type": "ack", "id": frame["id"]}))
            received: dict[str, Any] = frame["payload"]["webpush"]
            return received

        yield take


async def test_a_raw_message_arrives_as_it_was_sent(
    server: Server, device: dict[str, Any], endpoint: dict[str, Any]
) -> None:
    bodies = [b"", b"\x00\xff raw", b"x" * 4096]
    async with listening(server, device) as take:
        for body in bodies:
            answer = await asyncio.to_thread(post, server, endpoint["endpoint"], body)
            assert answer.status == 201
            got = await take()
            assert read_base64url(got["body"]) == body
            assert got["endpoint_id"] == endpoint["endpoint_id"]


async def test_what_clarion_sends_to_browsers_it_can_receive_itself(
    server: Server, device: dict[str, Any]
) -> None:
    """The sender and the service agree, also on the signature."""
    secrets = WebPushSecrets(**WEB_PUSH.complete({}))
    settings = WebPushSettings("mailto:ops@example.com")
    public_key = WEB_PUSH.describe(settings, secrets)["public_key"]
    made = make_endpoint(server.app, device, vapid_key=public_key)
    browser, clients = Browser(), HttpClients(Targets(allowed=[ip_network("127.0.0.0/8")]))
    config = Configuration(
        app_id="app",
        channel=Channel.PUSH,
        name="web",
        settings=settings,
        secrets=secrets,
        timeout_s=LIMIT_S,
        concurrency=1,
    )
    context = SenderContext(clock=SystemClock(), http=clients, public_url="")
    address = Address("d1", browser.subscription(made["endpoint"]), "web")
    message = make_outgoing(address)
    async with listening(server, device) as take:
        outcome = await WEB_PUSH.open(config, context).send(message)
        got = await take()
    await clients.close()
    assert outcome == Delivered(response="201")
    assert json.loads(browser.open(got))["body"] == message.body


def make_outgoing(address: Address) -> OutgoingMessage:
    return OutgoingMessage(
        id="n1/push/d1",
        notification=make_notification(make_event()),
        user=make_user(),
        address=address,
        subject="Grüße",
        body="Your order is here 📦",
        count=1,
        attempt=1,
    )


def test_a_message_says_where_it_is_and_how_long_it_is_stored(
    server: Server, device: dict[str, Any], endpoint: dict[str, Any]
) -> None:
    answer = post(server, endpoint["endpoint"])
    assert (answer.status, answer.body, answer.headers["ttl"]) == (201, b"", "60")
    url, _, message_id = answer.headers["location"].rpartition("/")
    assert url == endpoint["endpoint"]
    path = f"/v1/devices/{device['device_id']}/messages/{message_id}"
    assert server.app.get(path).json["status"] == "queued"


async def test_a_message_that_waits_can_be_cancelled(
    server: Server, device: dict[str, Any], endpoint: dict[str, Any]
) -> None:
    first, second = (post(server, endpoint["endpoint"], body) for body in (b"first", b"second"))
    path = urlsplit(first.headers["location"]).path
    other = make_endpoint(server.app, device)
    elsewhere = f"{urlsplit(other['endpoint']).path}/{path.rpartition('/')[2]}"
    assert server.anyone.delete(elsewhere).status == 404
    answers = [server.anyone.delete(path) for _ in range(2)]
    assert [(each.status, each.body != b"") for each in answers] == [(204, False), (404, True)]
    history = f"/v1/devices/{device['device_id']}/messages"
    record = server.app.get(f"{history}/{path.rpartition('/')[2]}").json
    assert (record["status"], record["reason"]) == ("expired", "cancelled")
    async with listening(server, device) as take:
        assert read_base64url((await take())["body"]) == b"second"
    path = urlsplit(second.headers["location"]).path
    # The acknowledgement is not answered.
    kept = f"{history}/{path.rpartition('/')[2]}"
    wait_until(lambda: server.app.get(kept).json["status"] == "delivered" or None)
    assert server.anyone.delete(path).status == 404


def test_a_message_of_another_kind_cannot_be_cancelled_by_who_guesses_its_id(
    server: Server, endpoint: dict[str, Any]
) -> None:
    path = urlsplit(endpoint["endpoint"]).path
    for message_id in (uuid.uuid4().hex, str(uuid.uuid4()), "%00", "a/b", ".."):
        assert server.anyone.delete(f"{path}/{message_id}").status == 404
    for method in ("GET", "POST", "PUT"):
        answer = server.anyone.ask(method, f"{path}/{uuid.uuid4()}")
        assert (answer.status, answer.headers["allow"]) == (405, "DELETE")


def test_who_cancels_a_message_to_a_restricted_endpoint_must_sign(
    server: Server, device: dict[str, Any]
) -> None:
    key = write_public_key(read_private_key(new_private_key()).public_key())
    made = make_endpoint(server.app, device, vapid_key=key)
    path = f"{urlsplit(made['endpoint']).path}/{uuid.uuid4()}"
    answer = server.anyone.delete(path)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "vapid")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"TTL": ""}, 400, "malformed_push"),
        ({"TTL": "-1"}, 400, "malformed_push"),
        ({"Urgency": "urgent"}, 400, "malformed_push"),
        ({"Urgency": "low, high"}, 400, "malformed_push"),
        ({"Topic": "x" * 33}, 400, "malformed_push"),
        ({"Content_Encoding": "gzip"}, 400, "malformed_push"),
        ({"Authorization": "vapid t=a.b.c, k=d"}, 403, "forbidden"),
    ],
)
def test_a_fault_is_named(
    server: Server, endpoint: dict[str, Any], headers: dict[str, Any], status: int, code: str
) -> None:
    answer = post(server, endpoint["endpoint"], **headers)
    assert (answer.status, answer.problem["code"]) == (status, code)


def test_the_time_to_live_must_be_given(server: Server, endpoint: dict[str, Any]) -> None:
    answer = server.anyone.post(urlsplit(endpoint["endpoint"]).path, b"text")
    assert (answer.status, answer.problem["code"]) == (400, "malformed_push")


def test_more_than_4096_bytes_are_refused(server: Server, endpoint: dict[str, Any]) -> None:
    for size in (4097, 100_000):
        assert post(server, endpoint["endpoint"], b"x" * size).status == 413


@pytest.mark.parametrize("path", ["/push/", "/push/unknown", "/push/a/b", "/push/%F0%9F%98%80"])
def test_an_unknown_endpoint_is_not_found(server: Server, path: str) -> None:
    assert server.anyone.post(path, b"text", headers=TTL).status == 404
    assert server.anyone.get(path).status == 404


def test_a_restricted_endpoint_says_what_it_wants(server: Server, device: dict[str, Any]) -> None:
    key = write_public_key(read_private_key(new_private_key()).public_key())
    made = make_endpoint(server.app, device, vapid_key=key + "=")
    answer = post(server, made["endpoint"])
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "vapid")
    shown = server.app.get(f"/v1/devices/{device['device_id']}/endpoints").json["items"]
    assert [each["vapid_key"] for each in shown] == [key]


def test_endpoints_are_listed_without_their_urls_and_deleted(
    server: Server, device: dict[str, Any]
) -> None:
    path = f"/v1/devices/{device['device_id']}/endpoints"
    made = [make_endpoint(server.app, device, label=label) for label in ("chat", "mail")]
    listed = server.app.get(path).json
    assert [each["label"] for each in listed["items"]] == ["chat", "mail"]
    assert all("push/" not in json.dumps(each) for each in listed["items"])
    assert server.app.delete(f"{path}/{made[0]['endpoint_id']}").status == 204
    assert server.app.delete(f"{path}/{made[0]['endpoint_id']}").status == 404
    assert [status_of(server, each["endpoint"]) for each in made] == [404, 201]


def test_an_endpoint_is_gone_with_its_device(
    server: Server, device: dict[str, Any], endpoint: dict[str, Any]
) -> None:
    path = f"/v1/devices/{device['device_id']}"
    assert status_of(server, endpoint["endpoint"]) == 201
    assert server.app.post(f"{path}/invalidate", {}).status == 200
    answer = post(server, endpoint["endpoint"])
    assert (answer.status, answer.problem["code"]) == (410, "endpoint_gone")
    assert server.app.post(f"{path}/endpoints", {}).status == 409
    assert server.app.delete(path).status == 204
    assert status_of(server, endpoint["endpoint"]) in {404, 410}


def test_a_user_has_endpoints_until_the_device_is_another_users(server: Server) -> None:
    ana, bo = InboxUser(server), InboxUser(server)
    device = ana.me.post("/v1/devices", {"platform": "clarion"}).json
    made = make_endpoint(ana.me, device, label="chat")
    assert status_of(server, made["endpoint"]) == 201
    assert bo.me.get(f"/v1/devices/{device['device_id']}/endpoints").status == 404
    path = f"/v1/devices/{device['device_id']}"
    assert server.app.ask("PATCH", path, {"user_id": bo.id}).status == 200
    assert status_of(server, made["endpoint"]) == 410
    assert bo.me.get(f"{path}/endpoints").json["items"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [({"vapid_key": "short"}, "vapid_key"), ({"label": ""}, "label"), ({"more": 1}, "more")],
)
def test_what_is_wrong_with_an_endpoint_is_said(
    server: Server, device: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    answer = server.app.post(f"/v1/devices/{device['device_id']}/endpoints", body)
    assert (answer.status, answer.fields) == (422, [field])


def test_only_devices_that_connect_to_us_have_endpoints(server: Server) -> None:
    token = {"platform": "ios", "token": uuid.uuid4().hex * 2}
    device = server.app.post("/v1/devices", token).json
    assert server.app.post(f"/v1/devices/{device['device_id']}/endpoints", {}).status == 409


def test_a_repeated_request_makes_one_endpoint(server: Server, device: dict[str, Any]) -> None:
    path = f"/v1/devices/{device['device_id']}/endpoints"
    once = {"Idempotency-Key": uuid.uuid4().hex}
    first, again = (server.app.post(path, {}, headers=once) for _ in range(2))
    assert first.json == again.json
    assert len(server.app.get(path).json["items"]) == 1


def test_other_methods_are_not_allowed(server: Server, endpoint: dict[str, Any]) -> None:
    path = urlsplit(endpoint["endpoint"]).path
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = server.anyone.ask(method, path)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_unified_push_finds_out_what_this_is(server: Server, endpoint: dict[str, Any]) -> None:
    path = urlsplit(endpoint["endpoint"]).path
    assert server.anyone.get(f"{path}?up=1").json == {"unifiedpush": {"version": 1}}
    matrix = server.anyone.get("/_matrix/push/v1/notify")
    assert matrix.json == {"unifiedpush": {"gateway": "matrix"}}


async def test_a_distributor_of_unified_push_serves_its_apps(
    server: Server, device: dict[str, Any]
) -> None:
    """As the guide says: an endpoint for each app that registers, found again by its id."""
    key = write_public_key(read_private_key(new_private_key()).public_key())
    chat = make_endpoint(server.app, device, label="chat")
    signed = make_endpoint(server.app, device, label="mail", vapid_key=key)
    assert all(len(each["endpoint"]) <= 1000 for each in (chat, signed))
    assert status_of(server, signed["endpoint"]) == 401
    async with listening(server, device) as take:
        answer = await asyncio.to_thread(post, server, chat["endpoint"], b"\x00encrypted\xff")
        assert (answer.status, "ttl" in answer.headers) == (201, True)
        got = await take()
    assert (got["endpoint_id"], read_base64url(got["body"])) == (
        chat["endpoint_id"],
        b"\x00encrypted\xff",
    )
    path = f"/v1/devices/{device['device_id']}/endpoints/{chat['endpoint_id']}"
    assert server.app.delete(path).status == 204
    assert status_of(server, chat["endpoint"]) == 404


async def test_a_homeserver_of_matrix_notifies(
    server: Server, device: dict[str, Any], endpoint: dict[str, Any]
) -> None:
    keys = [
        endpoint["endpoint"],
        endpoint["endpoint"],
        endpoint["endpoint"] + "x",
        "https://elsewhere.example/push/x",
    ]
    devices = [{"app_id": "im.example", "pushkey": key} for key in keys]
    body = json.dumps({"notification": {"event_id": "$e", "prio": "high", "devices": devices}})
    path = "/_matrix/push/v1/notify"
    async with listening(server, device) as take:
        answer = await asyncio.to_thread(server.anyone.post, path, body.encode())
        assert (answer.status, answer.json) == (200, {"rejected": keys[2:]})
        got = await take()
    assert read_base64url(got["body"]) == body.encode()


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"notification":{}}', b"[" * 4000])
def test_what_is_no_notification_of_matrix_is_refused(server: Server, body: bytes) -> None:
    assert server.anyone.post("/_matrix/push/v1/notify", body).status == 400


def test_an_endpoint_has_a_limit_and_no_log_has_its_secret(tmp_path: Path) -> None:
    installation = Installation(tmp_path, device_messages_per_minute="5", log_requests="all")
    first = installation.initialise()
    with installation:
        server = Server(installation, first)
        device = server.app.post("/v1/devices", {"platform": "clarion"}).json
        urls = [make_endpoint(server.app, device)["endpoint"] for _ in range(2)]
        answers = [post(server, urls[0]) for _ in range(12)]
        assert {each.status for each in answers[:5]} == {201}
        # A minute may end among them, but more than five are in one of the two.
        refused = [each for each in answers if each.status == 429]
        assert refused
        assert 0 < int(refused[0].headers["retry-after"]) <= 60
        assert status_of(server, urls[1]) == 201
    text = installation.log.read_text()
    assert '"/push/…"' in text or "/push/\\u2026" in text
    assert not any(url.rsplit("/", 1)[1] in text for url in urls)
