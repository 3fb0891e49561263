"""Users and the topics they follow over real HTTP."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import draft, inbox, make_type, send_and_wait

FULL: dict[str, Any] = {
    "name": "Ana Ünï 🚀",
    "email": "ana@example.com",
    "phone": "+49 151 12345678",
    "language": "pt-br",
    "timezone": "America/Sao_Paulo",
    "status": "inactive",
    "tags": ["vip", "beta"],
    "attributes": {"plan": "pro", "nested": {"list": [1, None]}},
}
STORED = FULL | {"phone": "+4915112345678", "language": "pt-BR"}
EMPTY: dict[str, Any] = {
    "name": None,
    "email": None,
    "phone": None,
    "language": "en",
    "timezone": "UTC",
    "status": "active",
    "tags": [],
    "attributes": {},
}
TIMES = {"id", "created_at", "updated_at"}


def new_path() -> str:
    return f"/v1/users/{uuid.uuid4().hex}"


def known(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in TIMES}


@pytest.fixture
def user(server: Server) -> Iterator[str]:
    """The path of a user with all fields."""
    path = new_path()
    assert server.app.ask("PUT", path, FULL).status == 201
    yield path
    assert server.app.ask("PUT", path, {}).status == 200  # the address is free for the next


def test_a_user_is_created_and_read(server: Server, user: str) -> None:
    seen = server.app.get(user)
    assert (seen.status, known(seen.json)) == (200, STORED)
    assert seen.json["id"] == user.rpartition("/")[2]


def test_a_user_can_be_just_an_id(server: Server) -> None:
    made = server.app.ask("PUT", new_path(), {})
    assert (made.status, known(made.json)) == (201, EMPTY)


def test_put_again_replaces_all_that_is_left_out(server: Server, user: str) -> None:
    first = server.app.get(user).json
    again = server.app.ask("PUT", user, {"name": "Other"})
    assert (again.status, known(again.json)) == (200, EMPTY | {"name": "Other"})
    assert again.json["created_at"] == first["created_at"]


def test_patch_updates_what_is_given(server: Server, user: str) -> None:
    changes = {"name": None, "timezone": None, "attributes": {"plan": None, "size": 7}}
    changed = server.app.ask("PATCH", user, changes)
    expected = STORED | {
        "name": None,
        "timezone": "UTC",
        "attributes": {"nested": {"list": [1, None]}, "size": 7},
    }
    assert (changed.status, known(changed.json)) == (200, expected)
    assert server.app.get(user).json == changed.json


def test_null_resets_attributes_and_tags(server: Server, user: str) -> None:
    changed = server.app.ask("PATCH", user, {"attributes": None, "tags": None})
    assert (changed.json["attributes"], changed.json["tags"]) == ({}, [])


def test_merging_no_attributes_changes_none(server: Server, user: str) -> None:
    changed = server.app.ask("PATCH", user, {"attributes": {}})
    assert (changed.status, changed.json["attributes"]) == (200, STORED["attributes"])


BAD: list[tuple[dict[str, object], str]] = [
    ({"colour": "red"}, "colour"),
    ({"name": ""}, "name"),
    ({"name": "a\0b"}, "name"),
    ({"name": 7}, "name"),
    ({"email": "ana"}, "email"),
    ({"email": "ana@example.com\nBcc: x@example.com"}, "email"),
    ({"phone": "12345"}, "phone"),
    ({"language": "english"}, "language"),
    ({"timezone": "Mars/Olympus"}, "timezone"),
    ({"status": "asleep"}, "status"),
    ({"tags": ["x"] * 51}, "tags"),
    ({"tags": [""]}, "tags"),
    ({"tags": "vip"}, "tags"),
    ({"attributes": {"a": "x" * 16_384}}, "attributes"),
    ({"attributes": []}, "attributes"),
]


@pytest.mark.parametrize(("change", "field"), BAD)
def test_a_field_that_is_wrong_is_named_and_nothing_is_stored(
    server: Server, user: str, change: dict[str, object], field: str
) -> None:
    before, nobody = server.app.get(user).json, new_path()
    for method, path in (("PUT", user), ("PATCH", user), ("PUT", nobody)):
        answer = server.app.ask(method, path, change)
        assert answer.status == 422
        assert [name.partition("[")[0] for name in answer.fields] == [field]
    assert server.app.get(user).json == before
    assert server.app.get(nobody).status == 404


def test_all_faults_are_named_at_once(server: Server) -> None:
    answer = server.app.ask("PUT", new_path(), {"email": "x", "phone": "x", "timezone": "x"})
    assert sorted(answer.fields) == ["email", "phone", "timezone"]


def test_attributes_that_grow_too_large_by_merging_are_refused(server: Server, user: str) -> None:
    assert server.app.ask("PATCH", user, {"attributes": {"a": "x" * 12_000}}).status == 200
    answer = server.app.ask("PATCH", user, {"attributes": {"b": "x" * 12_000}})
    assert (answer.status, answer.fields) == (422, ["attributes"])


@pytest.mark.parametrize("text", ["a%20b", "x" * 129, "%C3%BC", "a%0Ab"])
def test_an_invalid_id_is_named(server: Server, text: str) -> None:
    answer = server.app.ask("PUT", f"/v1/users/{text}", {})
    assert (answer.status, answer.fields) == (422, ["id"])
    assert server.app.get(f"/v1/users/{text}").status == 404
    assert server.app.ask("PATCH", f"/v1/users/{text}", {}).status == 404


def test_an_unknown_user_is_404(server: Server) -> None:
    path = new_path()
    for method, tail, body in (
        ("GET", "", None),
        ("PATCH", "", {}),
        ("GET", "/topics", None),
        ("PUT", "/topics/news", None),
        ("GET", "/preferences", None),
        ("PUT", "/preferences", {}),
        ("PATCH", "/preferences", {}),
    ):
        assert server.app.ask(method, path + tail, body).status == 404, (method, tail)


@pytest.mark.parametrize(
    ("method", "tail", "scope"),
    [
        ("GET", "", "users:read"),
        ("PUT", "", "users:write"),
        ("PATCH", "", "users:write"),
        ("GET", "/topics", "users:read"),
        ("PUT", "/topics/news", "users:write"),
        ("DELETE", "/topics/news", "users:write"),
        ("GET", "/preferences", "users:read"),
        ("PUT", "/preferences", "users:write"),
        ("PATCH", "/preferences", "users:write"),
    ],
)
def test_each_needs_its_scope(
    server: Server, user: str, method: str, tail: str, scope: str
) -> None:
    other = "users:read" if scope == "users:write" else "users:write"
    body: dict[str, Any] | None = None if method in {"GET", "DELETE"} else {}
    answer = server.make_key(other).ask(method, user + tail, body)
    assert (answer.status, scope in answer.problem["detail"]) == (403, True)
    assert server.make_key(scope).ask(method, user + tail, body).status < 300


def test_users_of_another_app_are_not_found(server: Server, user: str) -> None:
    other = server.with_key(server.make_app()["api_key"])
    assert other.get(user).status == 404
    assert other.ask("PATCH", user, {"name": "x"}).status == 404
    assert known(server.app.get(user).json) == STORED


def followed(asker: Asker, user: str) -> list[str]:
    page = asker.get(f"{user}/topics?limit=100").json
    assert page["next"] is None
    return [each["topic"] for each in page["items"]]


def test_a_user_follows_and_unfollows_topics(server: Server, user: str) -> None:
    for topic in ("news", "team:7", "news"):
        assert server.app.ask("PUT", f"{user}/topics/{topic}").status == 204
    assert followed(server.app, user) == ["news", "team:7"]
    for _ in range(2):
        assert server.app.delete(f"{user}/topics/news").status == 204
    assert followed(server.app, user) == ["team:7"]


def test_followed_topics_come_in_pages(server: Server, user: str) -> None:
    for topic in ("c", "a", "b"):
        server.app.ask("PUT", f"{user}/topics/{topic}")
    first = server.app.get(f"{user}/topics?limit=2").json
    assert first == {"items": [{"topic": "a"}, {"topic": "b"}], "next": "b"}
    last = server.app.get(f"{user}/topics?limit=2&after={first['next']}").json
    assert last == {"items": [{"topic": "c"}], "next": None}


@pytest.mark.parametrize("topic", ["a%20b", "x" * 201, "%C3%BC"])
def test_an_invalid_topic_is_named(server: Server, user: str, topic: str) -> None:
    for method in ("PUT", "DELETE"):
        answer = server.app.ask(method, f"{user}/topics/{topic}")
        assert (answer.status, answer.fields) == (422, ["topic"])


async def receive(socket: ClientConnection, frame_type: str) -> dict[str, Any]:
    """Return the next frame of this type."""
    while True:
        frame: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 20))
        if frame["type"] == frame_type:
            return frame


def test_an_event_reaches_the_followers_of_its_topic(server: Server) -> None:
    path = new_path()
    assert server.app.ask("PUT", path, {}).status == 201
    assert server.app.ask("PUT", f"{path}/topics/team:42").status == 204
    sent = send_and_wait(server.app, draft(make_type(server.app), topic="team:42"))
    assert sent["recipient"] == {"topic": "team:42"}
    received = inbox(server.app, path.rpartition("/")[2])
    assert [item["type"] for item in received] == [sent["type"]]


async def test_a_message_reaches_the_devices_that_subscribe_to_its_topic(server: Server) -> None:
    device = server.app.post("/v1/devices", {"platform": "clarion"}).json
    subscription = f"/v1/devices/{device['device_id']}/topics/team:42"
    assert server.app.ask("PUT", subscription).status == 204
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
    async with connect(url, ping_interval=None) as socket:
        hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
        await socket.send(json.dumps(hello))
        await receive(socket, "ready")
        message = {"payload": {"aps": {"alert": "hi"}}}
        assert server.app.post("/v1/topics/team:42/messages", message).status == 202
        frame = await receive(socket, "notification")
    assert (frame["topic"], frame["payload"]) == ("team:42", message["payload"])


DEVICE = {"platform": "clarion"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("user_id", "a b"), ("user_id", "x" * 129), ("language", "english"), ("timezone", "Mars/X")],
)
def test_a_device_follows_the_same_rules_as_a_user(server: Server, field: str, value: str) -> None:
    made = server.app.post("/v1/devices", DEVICE | {"language": "pt-br", "timezone": "UTC"}).json
    path = f"/v1/devices/{made['device_id']}"
    assert server.app.get(path).json["language"] == "pt-BR"
    for method, target, body in (("POST", "/v1/devices", DEVICE), ("PATCH", path, {})):
        answer = server.app.ask(method, target, body | {field: value})
        assert (answer.status, answer.fields) == (422, [field])
