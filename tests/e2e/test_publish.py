"""One-line publishing on a running server: to devices, to people, and to both at once."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import (
    deliveries,
    draft,
    inbox,
    make_type,
    make_user,
    send_and_wait,
    wait_for_event,
    wait_until,
)

TEXT = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


def publish(
    app: Asker, topic: str, body: bytes = b"Backup done", method: str = "POST", **headers: str
) -> Answer:
    """Publish as curl does; names of headers have an underscore for each hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return app.ask(method, f"/v1/publish/{topic}", body, headers={**TEXT, **named})


def publish_and_wait(app: Asker, topic: str, *arguments: Any, **headers: str) -> dict[str, Any]:
    """Publish, and return the answer when the event is decided for everybody."""
    answer = publish(app, topic, *arguments, **cast("Any", headers))
    assert answer.status == 202, answer.body
    wait_for_event(app, answer.json["event_id"])
    published: dict[str, Any] = answer.json
    return published


def follow(app: Asker, topic: str, **fields: Any) -> str:
    user_id = make_user(app, **fields)
    assert app.ask("PUT", f"/v1/users/{user_id}/topics/{topic}").status == 204
    return user_id


def register(app: Asker, user_id: str | None = None, topic: str | None = None) -> dict[str, Any]:
    device: dict[str, Any] = app.post(
        "/v1/devices", {"platform": "clarion", "user_id": user_id}
    ).json
    if topic is not None:
        path = f"/v1/devices/{device['device_id']}/topics/{topic}"
        assert app.ask("PUT", path).status == 204
    return device


@asynccontextmanager
async def listening(server: Server, device: dict[str, Any]) -> AsyncIterator[ClientConnection]:
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
    async with connect(url, ping_interval=None) as socket:
        hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
        await socket.send(json.dumps(hello))
        assert json.loads(await socket.recv())["type"] == "ready"
        yield socket


async def take(socket: ClientConnection) -> dict[str, Any]:
    """Return the next message, acknowledged."""
    while True:
        frame: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 30))
        if frame["type"] == "notification":
            await socket.send(json.dumps({"type": "ack", "id": frame["id"]}))
            return frame


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_line_reaches_the_devices_and_the_people_of_a_topic(
    server: Server, app: Asker, topic: str, method: str
) -> None:
    device, user_id = register(app, topic=topic), follow(app, topic)
    async with listening(server, device) as socket:
        answer = await asyncio.to_thread(
            publish,
            app,
            topic,
            b"Fertig: 3 Dateien\nkeine Fehler",
            method,
            Title="=?UTF-8?Q?N=C3=A4chtliche_Sicherung?=",
            X_Priority="4",
            Tags="tada,db",
            Click="https://example.com/backups/7",
        )
        assert answer.status == 202, answer.body
        assert set(answer.json) == {"event_id", "message_id", "topic", "created_at"}
        frame = await take(socket)
    assert (frame["id"], frame["topic"], frame["priority"]) == (
        answer.json["message_id"],
        topic,
        10,
    )
    assert frame["payload"] == {
        "aps": {
            "alert": {
                "title": "🎉 Nächtliche Sicherung",
                "body": "Fertig: 3 Dateien\nkeine Fehler",
            },
            "category": "TOPIC_MESSAGE",
            "thread-id": topic,
            "sound": "default",
        },
        "event_id": answer.json["event_id"],
        "type": "TOPIC_MESSAGE",
        "category": "transactional",
        "deeplink": "https://example.com/backups/7",
        "data": {"topic": topic, "tags": ["tada", "db"]},
    }
    wait_for_event(app, answer.json["event_id"])
    (item,) = inbox(app, user_id)
    assert item["title"] == "🎉 Nächtliche Sicherung"
    assert item["body"] == "Fertig: 3 Dateien\nkeine Fehler"
    assert item["deeplink"] == "https://example.com/backups/7"
    assert (item["type"], item["priority"]) == ("TOPIC_MESSAGE", "high")
    assert item["data"]["topic"] == topic


def test_the_title_is_the_topic_unless_there_is_one(app: Asker, topic: str) -> None:
    user_id = follow(app, topic)
    publish_and_wait(app, topic, b"")
    (item,) = inbox(app, user_id)
    assert (item["title"], item["body"]) == (topic, "triggered")


def test_parameters_and_json_work_as_headers_do(app: Asker, topic: str) -> None:
    user_id = follow(app, topic)
    path = f"/v1/publish/{topic}"
    query = app.ask("PUT", f"{path}?title=One&p=min&message=first", b"", headers=TEXT)
    sent = app.post(path, {"title": "Two", "message": "second", "priority": 5, "tags": ["x"]})
    for answer in (query, sent):
        assert answer.status == 202, answer.body
        wait_for_event(app, answer.json["event_id"])
    seen = {(each["title"], each["body"], each["priority"]) for each in inbox(app, user_id)}
    assert seen == {("One", "first", "low"), ("❌ Two", "second", "critical")}


async def test_a_device_of_a_follower_that_is_subscribed_itself_gets_it_once(
    server: Server, app: Asker, topic: str
) -> None:
    user_id = follow(app, topic)
    subscribed, other = register(app, user_id, topic), register(app, user_id)
    async with listening(server, subscribed) as first, listening(server, other) as second:
        published = await asyncio.to_thread(publish_and_wait, app, topic)
        by_topic = await take(first)
        by_push = await take(second)
        # What comes next on the first device is this, and nothing else.
        last = await asyncio.to_thread(publish, app, topic, b"last")
        assert (await take(first))["id"] == last.json["message_id"]
    assert (by_topic["id"], by_topic.get("topic")) == (published["message_id"], topic)
    assert by_push.get("topic") is None
    assert by_push["payload"]["event_id"] == published["event_id"]
    assert app.get(f"/v1/devices/{subscribed['device_id']}/messages").json["items"] == []


def test_a_push_that_the_topic_has_sent_is_dropped_with_the_reason(app: Asker, topic: str) -> None:
    user_id = follow(app, topic)
    register(app, user_id, topic)
    publish_and_wait(app, topic)
    (item,) = inbox(app, user_id)
    push = deliveries(app, item["id"])["push"]
    assert (push["status"], push["reason"]) == ("dropped", "sent_to_topic")


def test_a_device_that_subscribes_later_gets_the_push(app: Asker, topic: str) -> None:
    """Its quiet hours hold the push; meanwhile it subscribes, but not to what was before."""
    user_id = follow(app, topic, quiet_hours=[True] * 24)
    device = register(app, user_id)
    publish_and_wait(app, topic)
    (item,) = inbox(app, user_id)
    assert deliveries(app, item["id"])["push"]["reason"] == "quiet_hours"
    assert app.ask("PUT", f"/v1/devices/{device['device_id']}/topics/{topic}").status == 204
    quiet = {"quiet_hours": [False] * 24}
    assert app.ask("PATCH", f"/v1/users/{user_id}/preferences", quiet).status == 200
    path = f"/v1/devices/{device['device_id']}/messages"
    (message,) = wait_until(lambda: app.get(path).json["items"] or None)
    assert message["status"] == "queued"


def test_people_choose_whether_they_get_it(app: Asker, topic: str) -> None:
    on, off = follow(app, topic), follow(app, topic)
    toggle = {"types": {"TOPIC_MESSAGE": {"in_app": False}}}
    assert app.ask("PATCH", f"/v1/users/{off}/preferences", toggle).status == 200
    publish_and_wait(app, topic)
    assert (len(inbox(app, on)), len(inbox(app, off))) == (1, 0)


def test_a_repeat_gets_the_first_answer_and_publishes_nothing(app: Asker, topic: str) -> None:
    user_id, key = follow(app, topic), uuid.uuid4().hex
    first = publish(app, topic, Title="One", Idempotency_Key=key)
    again = app.ask(
        "PUT",
        f"/v1/publish/{topic}?title=One",
        b"Backup done",
        headers={**TEXT, "Idempotency-Key": key},
    )
    assert (again.status, again.json) == (202, first.json)
    assert again.headers["idempotent-replayed"] == "true"
    other = publish(app, topic, Title="Two", Idempotency_Key=key)
    assert (other.status, other.problem["code"]) == (422, "idempotency_key_reused")
    wait_for_event(app, first.json["event_id"])
    assert len(inbox(app, user_id)) == 1


def test_publishing_creates_the_topic_closed(app: Asker, topic: str) -> None:
    assert publish(app, topic).status == 202
    assert find_topic(app, topic)["open"] is False


def find_topic(app: Asker, topic: str) -> dict[str, Any]:
    """Return a topic from the list of all of them."""
    before = topic[:-1]
    page = app.get(f"/v1/topics?limit=1&after={before}").json
    (found,) = page["items"]
    assert found["topic"] == topic
    listed: dict[str, Any] = found
    return listed


def test_a_topic_that_is_only_followed_is_listed_too(app: Asker, topic: str) -> None:
    follow(app, topic)
    assert find_topic(app, topic)["open"] is False


def test_users_follow_open_topics_only(server: Server, app: Asker, topic: str) -> None:
    ana = InboxUser(server)
    assert app.ask("PUT", f"/v1/users/{ana.id}", {}).status == 201
    path = f"/v1/me/topics/{topic}"
    for _ in range(2):  # there is no such topic, then there is a closed one
        refused = ana.me.ask("PUT", path)
        assert (refused.status, refused.problem["code"]) == (403, "topic_not_open")
        assert app.ask("PUT", f"/v1/topics/{topic}", {"open": False}).status in {200, 201}
    assert app.ask("PUT", f"/v1/topics/{topic}", {"open": True}).status == 200
    assert ana.me.ask("PUT", path).status == 204
    assert ana.me.get("/v1/me/topics").json["items"] == [{"topic": topic}]
    publish_and_wait(app, topic)
    assert len(inbox(app, ana.id)) == 1
    assert app.ask("PUT", f"/v1/topics/{topic}", {"open": False}).status == 200
    assert ana.me.delete(path).status == 204
    assert ana.me.get("/v1/me/topics").json["items"] == []


def test_users_must_not_publish(server: Server, app: Asker, topic: str) -> None:
    assert app.ask("PUT", f"/v1/topics/{topic}", {"open": True}).status == 201
    ana = InboxUser(server)
    assert app.ask("PUT", f"/v1/users/{ana.id}", {}).status == 201
    assert publish(ana.me, topic).status == 403


@pytest.mark.parametrize("scopes", [("topics:write",), ("events:write",)])
def test_publishing_needs_both_scopes(server: Server, topic: str, scopes: tuple[str]) -> None:
    assert publish(server.make_key(*scopes), topic).status == 403
    assert publish(server.make_key("topics:write", "events:write"), topic).status == 202


def test_a_topic_of_another_app_is_another(server: Server, app: Asker, topic: str) -> None:
    user_id = follow(app, topic)
    other = server.with_key(server.make_app()["api_key"])
    publish_and_wait(other, topic)
    assert inbox(app, user_id) == []


@pytest.mark.parametrize(
    ("body", "headers", "fields"),
    [
        (b"\xff\xfe", {}, ["body"]),
        (b"x" * 4097, {}, ["body"]),
        (b"a\0b", {}, ["body"]),
        (b"x", {"Priority": "6"}, ["Priority"]),
        (b"x", {"Title": "=?UTF-8?B?aGkNCkJjYzogeEB5Lno=?="}, ["Title"]),
        (b"x", {"X_Click": "javascript:alert(1)"}, ["X-Click"]),
        (b"x", {"Tags": "," * 5 + "x" * 65}, ["Tags"]),
        (b"x", {"Delay": "30min"}, ["Delay"]),
        (b"x", {"Title": "x" * 300, "Priority": "no"}, ["Title", "Priority"]),
    ],
)
def test_a_fault_is_named_and_nothing_is_published(
    app: Asker, topic: str, body: bytes, headers: dict[str, str], fields: list[str]
) -> None:
    answer = publish(app, topic, body, **headers)
    assert (answer.status, sorted(answer.fields)) == (422, sorted(fields))
    items = app.get(f"/v1/topics?limit=1&after={topic[:-1]}").json["items"]
    assert [each for each in items if each["topic"] == topic] == []


@pytest.mark.parametrize("name", ["a%20b", "x" * 201, "%C3%BC", "a%0Ab"])
def test_a_name_that_no_topic_has_is_refused(app: Asker, name: str) -> None:
    answer = publish(app, name)
    assert (answer.status, answer.fields) == (422, ["topic"])


@pytest.mark.parametrize("path", ["/v1/publish", "/v1/publish/", "/v1/publish/a/b"])
def test_other_paths_are_not_there(app: Asker, path: str) -> None:
    assert app.ask("POST", path, b"x", headers=TEXT).status in {404, 405}


def test_what_is_too_large_for_any_body_is_refused(app: Asker, topic: str) -> None:
    assert publish(app, topic, b"x" * (11 << 20)).status == 413


def test_raw_bytes_in_a_header_are_utf_8(server: Server, app: Asker, topic: str) -> None:
    user_id = follow(app, topic)
    key = server.first["app"]["api_key"]
    head = (
        f"POST /v1/publish/{topic} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        "Title: Grüße 🎉\r\nPriority: u=1, i\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    )
    answer = app.send_raw(head.encode(), ends=False)
    assert b" 202 " in answer.partition(b"\r\n")[0], answer
    event_id = json.loads(answer.partition(b"\r\n\r\n")[2])["event_id"]
    wait_for_event(app, event_id)
    (item,) = inbox(app, user_id)
    assert (item["title"], item["priority"]) == ("Grüße 🎉", "medium")


def test_the_longest_message_fits_into_the_payload_of_a_device(app: Asker, topic: str) -> None:
    user_id = follow(app, topic)
    register(app, user_id, topic)
    publish_and_wait(app, topic, "ü".encode() * 2048, Title="t" * 256, Tags="x," * 20)
    (item,) = inbox(app, user_id)
    assert item["body"] == "ü" * 2048


def test_an_event_of_another_type_for_the_topic_still_goes_to_people_only(
    app: Asker, topic: str
) -> None:
    user_id = follow(app, topic)
    register(app, user_id, topic)
    type_name = make_type(app, default_channels=["in_app", "push"])
    template = {"body": "x", "variables": []}
    assert app.ask("PUT", f"/v1/types/{type_name}/templates/push", template).status == 200
    send_and_wait(app, draft(type_name, topic=topic))
    (item,) = inbox(app, user_id)
    assert deliveries(app, item["id"])["push"]["reason"] == "allowed"
