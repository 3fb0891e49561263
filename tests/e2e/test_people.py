"""Users and the topics they follow over real HTTP."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.sync.client import connect as connect_sync

from clarion.admin.pages.table import PAGES
from clarion.people.model import Consent, User
from clarion.people.sql import Users
from clarion.store.opening import open_engine
from tests.conftest import run_apart
from tests.e2e.administrators import sign_in
from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import draft, inbox, make_type, send_and_wait, wait_until
from tests.factories import make_user

FULL: dict[str, Any] = {
    "name": "Ana Ünï 🚀",
    "email": "ana@example.com",
    "phone": "+49 151 12345678",
    "language": "pt-br",
    "timezone": "America/Sao_Paulo",
    "status": "inactive",
    "tags": ["vip", "beta"],
    "attributes": {"plan": "pro", "nested": {"list": [1, None]}},
    "metadata": {"crm": {"id": 7}, "notes": ["a", None]},
    "consent": {
        "newsletter": {"granted": True, "at": "2026-01-31T13:00:00+01:00", "source": "form"}
    },
    "billing_address": {"line1": "Hauptstraße 1", "city": "Köln", "country": "DE"},
    "business": {"vat_number": "DE123456789", "subscription_status": "active"},
    "growth": {"referral_code": "ANA7", "nps": 9},
    "enterprise": {"team_id": "t1", "integrations": {"slack": "U1"}, "webhook_ids": ["w1"]},
    "backup": {"auto_backup": True, "frequency": "daily", "retention_days": 30},
    "intelligence": {"credits": 2.5, "churn_risk": 0.1, "billing_history": ["in_1"]},
    "last_login_at": "2026-02-01T00:00:00.5Z",
}
STORED = FULL | {
    "phone": "+4915112345678",
    "language": "pt-BR",
    "consent": {
        "newsletter": {
            "granted": True,
            "at": "2026-01-31T12:00:00.000Z",
            "source": "form",
            "version": None,
        }
    },
    "last_login_at": "2026-02-01T00:00:00.500Z",
}
EMPTY: dict[str, Any] = {
    "name": None,
    "email": None,
    "phone": None,
    "language": "en",
    "timezone": "UTC",
    "status": "active",
    "tags": [],
    "attributes": {},
    "metadata": {},
    "consent": {},
    "last_login_at": None,
}
TIMES = {"id", "created_at", "updated_at", "last_seen_at"}


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
    expected = EMPTY | {"name": "Other", "last_login_at": first["last_login_at"]}
    assert (again.status, known(again.json)) == (200, expected)
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
    merged = ("attributes", "metadata", "consent")
    changed = server.app.ask("PATCH", user, {name: {} for name in merged})
    assert changed.status == 200
    assert {name: changed.json[name] for name in merged} == {name: STORED[name] for name in merged}


def test_patch_merges_by_name_and_replaces_a_group(server: Server, user: str) -> None:
    changes = {
        "metadata": {"notes": None, "more": {"a": None}},
        "consent": {"newsletter": None, "terms": {"granted": False, "version": "3"}},
        "billing_address": {"city": "Bonn"},
        "growth": None,
        "last_login_at": None,
    }
    changed = server.app.ask("PATCH", user, changes).json
    assert changed["metadata"] == {"crm": {"id": 7}, "more": {"a": None}}
    assert set(changed["consent"]) == {"terms"}
    terms = changed["consent"]["terms"]
    assert (terms["granted"], terms["version"], terms["source"]) == (False, "3", None)
    assert terms["at"] == changed["updated_at"]
    assert changed["billing_address"] == {"city": "Bonn"}
    assert "growth" not in changed  # a group that is not set is left out
    assert (changed["business"], changed["last_login_at"]) == (STORED["business"], None)


def test_an_address_of_another_user_is_refused_and_named(server: Server, user: str) -> None:
    other = new_path()
    for method, path in (("PUT", other), ("PUT", user)):
        expected = 409 if path == other else 200
        answer = server.app.ask(method, path, {"email": "ANA@Example.com"})
        assert answer.status == expected
    assert server.app.get(other).status == 404
    assert server.app.ask("PUT", other, {}).status == 201
    refused = server.app.ask("PATCH", other, {"email": "ana@example.com"})
    assert (refused.status, refused.json["code"], refused.fields) == (409, "email_taken", ["email"])
    assert user.rpartition("/")[2] not in refused.body.decode()


def test_a_user_is_found_by_the_address_in_any_capitals(server: Server, user: str) -> None:
    found = server.app.get("/v1/users?email=ANA@EXAMPLE.COM").json
    assert found == {"items": [server.app.get(user).json], "next": None}
    assert server.app.get("/v1/users?email=nobody@example.com").json["items"] == []


def test_users_are_listed_in_pages(server: Server) -> None:
    mark = uuid.uuid4().hex
    paths = [f"/v1/users/{mark}-{n}" for n in range(5)]
    for n, path in enumerate(paths):
        body = {"tags": [mark], "language": "nl" if n % 2 else "de"}
        assert server.app.ask("PUT", path, body).status == 201
    first = server.app.get(f"/v1/users?tag={mark}&limit=3").json
    rest = server.app.get(f"/v1/users?tag={mark}&limit=3&after={first['next']}").json
    assert [each["id"] for each in (*first["items"], *rest["items"])] == [
        path.rpartition("/")[2] for path in paths
    ]
    assert rest["next"] is None
    both = server.app.get(f"/v1/users?tag={mark}&language=NL&status=active").json["items"]
    assert [each["id"][-1] for each in both] == ["1", "3"]
    made = first["items"][0]["created_at"]
    later = server.app.get(f"/v1/users?tag={mark}&created_after={made}").json["items"]
    assert len(later) == 5
    assert server.app.get(f"/v1/users?tag={mark}&created_before={made}").json["items"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=asleep", "status"),
        ("language=english", "language"),
        ("created_after=yesterday", "created_after"),
        ("last_seen_before=2026-01-01T00:00:00", "last_seen_before"),
        ("created_after=2026-01-01T00:00:00Z&after=x", "after"),
        ("limit=101", "limit"),
        ("name=%20", "name"),
        (f"name={'x' * 201}", "name"),
        ("ids=", "ids"),
        ("ids=a,,b", "ids"),
        ("ids=" + ",".join("a" * 101), "ids"),
    ],
)
def test_a_faulty_filter_is_named(server: Server, query: str, field: str) -> None:
    answer = server.app.get(f"/v1/users?{query}")
    assert (answer.status, answer.fields) == (422, [field])


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
    ({"metadata": {"a": "x" * 16_384}}, "metadata"),
    ({"metadata": 7}, "metadata"),
    ({"consent": {"a b": {"granted": True}}}, "consent"),
    ({"consent": {f"c{n}": {"granted": True} for n in range(51)}}, "consent"),
    ({"consent": {"terms": {"granted": True, "at": "2026-01-01T00:00:00"}}}, "consent.terms.at"),
    ({"consent": {"terms": {}}}, "consent.terms.granted"),
    ({"billing_address": {"country": "Germany"}}, "billing_address.country"),
    ({"billing_address": {"planet": "Mars"}}, "billing_address.planet"),
    ({"business": {"subscription_status": "rich"}}, "business.subscription_status"),
    ({"growth": {"nps": 11}}, "growth.nps"),
    ({"enterprise": {"webhook_ids": ["x"] * 101}}, "enterprise.webhook_ids"),
    ({"enterprise": {"integrations": {f"{n}": "x" * 200 for n in range(100)}}}, "enterprise"),
    (
        {"consent": {f"c{n}": {"granted": True, "source": "ü" * 200} for n in range(50)}},
        "consent",
    ),
    ({"backup": {"retention_days": 0}}, "backup.retention_days"),
    ({"intelligence": {"churn_risk": 1.5}}, "intelligence.churn_risk"),
    ({"last_login_at": "2026-01-01T00:00:00"}, "last_login_at"),
    ({"last_seen_at": "2026-01-01T00:00:00Z"}, "last_seen_at"),
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


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_wrong_status_is_explained_and_hides_no_other_fault(
    server: Server, user: str, method: str
) -> None:
    body = {"status": "asleep", "email": "ana", "language": "english"}
    answer = server.app.ask(method, user, body)
    reasons = {fault["field"]: fault["reason"] for fault in answer.json["errors"]}
    assert set(reasons) == set(body)
    assert reasons["status"] == "must be one of active, inactive"


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


def test_a_batch_creates_and_updates_and_a_bad_one_does_not_spoil_the_rest(server: Server) -> None:
    mark = uuid.uuid4().hex
    old = {"name": "Old", "email": f"{mark}@example.com", "attributes": {"a": 1, "b": 2}}
    assert server.app.ask("PUT", f"/v1/users/{mark}-1", old).status == 201
    sent: list[Any] = [
        {"id": f"{mark}-0", "name": "New", "tags": [mark], "growth": {"nps": 3}},
        {"id": f"{mark}-1", "attributes": {"a": None, "c": 3}, "consent": {"x": {"granted": True}}},
        {"id": "a b", "phone": "x"},
        {"id": f"{mark}-2", "email": f"{mark}@EXAMPLE.com"},
        {"id": f"{mark}-0", "name": "Again"},
        {"name": "nobody"},
        7,
    ]
    answer = server.app.post("/v1/users/batch", {"users": sent})
    assert answer.status == 200
    results = answer.json["results"]
    assert [each["status"] for each in results] == ["created", "updated", *["refused"] * 5]
    assert [each.get("id") for each in results[:2]] == [f"{mark}-0", f"{mark}-1"]
    assert [[fault["field"] for fault in each["errors"]] for each in results[2:]] == [
        ["id", "phone"],
        ["email"],
        ["id"],
        ["id"],
        ["body"],
    ]
    assert (results[3]["id"], results[3]["code"]) == (f"{mark}-2", "email_taken")
    first, second = (server.app.get(f"/v1/users/{mark}-{n}").json for n in range(2))
    assert (first["name"], first["tags"], first["growth"]) == ("New", [mark], {"nps": 3})
    assert (second["name"], second["attributes"]) == ("Old", {"b": 2, "c": 3})
    assert server.app.get(f"/v1/users/{mark}-2").status == 404


def test_a_batch_of_a_thousand_is_written_whole(server: Server) -> None:
    mark = uuid.uuid4().hex
    sent = [
        {"id": f"{mark}-{n:03}", "phone": "+49 151 12345678", "tags": [mark]} for n in range(1000)
    ]
    answer = server.app.post("/v1/users/batch", json.dumps(sent).encode())
    assert {each["status"] for each in answer.json["results"]} == {"created"}
    assert [each["id"] for each in answer.json["results"]] == [each["id"] for each in sent]
    page = server.app.get(f"/v1/users?tag={mark}&limit=100").json
    assert [each["id"] for each in page["items"]] == [each["id"] for each in sent[:100]]
    too_many = server.app.post("/v1/users/batch", {"users": [*sent, {"id": "x"}]})
    assert (too_many.status, too_many.fields) == (422, ["users"])
    assert server.app.post("/v1/users/batch", {"users": []}).status == 422


def test_a_repeated_batch_gets_the_first_response(server: Server) -> None:
    key, user_id = {"Idempotency-Key": uuid.uuid4().hex}, uuid.uuid4().hex
    body = {"users": [{"id": user_id, "name": "One"}]}
    first = server.app.post("/v1/users/batch", body, headers=key)
    assert server.app.ask("PATCH", f"/v1/users/{user_id}", {"name": "Two"}).status == 200
    again = server.app.post("/v1/users/batch", body, headers=key)
    assert (again.json, again.headers["idempotent-replayed"]) == (first.json, "true")
    assert server.app.get(f"/v1/users/{user_id}").json["name"] == "Two"
    other = server.app.post("/v1/users/batch", {"users": [{"id": user_id}]}, headers=key)
    assert (other.status, other.json["code"]) == (422, "idempotency_key_reused")


def test_a_user_made_inactive_by_a_batch_cannot_use_a_token(server: Server) -> None:
    user_id = uuid.uuid4().hex
    me = InboxUser(server, user_id).me
    assert me.get("/v1/caller").status == 200
    body = {"users": [{"id": user_id, "status": "inactive"}]}
    assert server.app.post("/v1/users/batch", body).status == 200
    assert me.get("/v1/caller").status == 401


def test_a_user_who_calls_or_listens_is_seen(server: Server) -> None:
    caller, listener, neither = (InboxUser(server) for _ in range(3))
    for user in (caller, listener, neither):
        assert server.app.ask("PUT", f"/v1/users/{user.id}", {}).status == 201
    before = server.app.get(f"/v1/users/{neither.id}").json["created_at"]
    assert caller.me.get("/v1/me/unread-count").status == 200
    with connect_sync(
        f"{server.first['urls']['gateway']}/v1/me/socket",
        additional_headers={"Authorization": f"Bearer {listener.token}"},
    ):
        for user in (caller, listener):
            assert wait_until(partial(last_seen, server, user.id)) >= before
    assert last_seen(server, neither.id) is None
    seen = server.app.get(f"/v1/users?last_seen_after={before}&limit=100").json["items"]
    assert {caller.id, listener.id} <= {each["id"] for each in seen}


def last_seen(server: Server, user_id: str) -> str | None:
    moment: str | None = server.app.get(f"/v1/users/{user_id}").json["last_seen_at"]
    return moment


@pytest.mark.parametrize("moment", [-(2**63), 2**63 - 1])
def test_no_view_fails_for_a_stored_time(server: Server, moment: int) -> None:
    """The most extreme ones of a column of either engine, in each time that a user has."""
    app_id, mark = server.first["app"]["id"], uuid.uuid4().hex
    user = make_user(
        mark,
        app_id=app_id,
        tags=(mark,),
        timezone="Pacific/Kiritimati",
        consent={"newsletter": Consent(granted=True, at=moment)},
        **dict.fromkeys(("last_login_at", "last_seen_at", "created_at", "updated_at"), moment),
    )
    store(server, user)
    for path in (f"/v1/users?tag={mark}", *(f"/v1/users/{mark}{more}" for more in ("", "/export"))):
        answer = server.app.get(path)
        assert (answer.status, mark.encode() in answer.body) == (200, True), answer.body
    browser = sign_in(server.installation)
    for page in PAGES:
        if page.method == "GET" and page.path.startswith("/admin/apps/{app_id}/people"):
            answer = browser.get(page.path.format(app_id=app_id, user_id=mark) + f"?tag={mark}")
            assert (answer.status, mark.encode() in answer.body) == (200, True), page.path


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_no_explanation_fails_for_its_time(server: Server, zone: str) -> None:
    """In its own zone a user may have another year than 1 to 9999."""
    user_id = uuid.uuid4().hex
    name = make_type(server.app, category="social", default_channels=["stub"])
    fields = {"timezone": zone, "attributes": {"stub": "delivered"}}
    assert server.app.ask("PUT", f"/v1/users/{user_id}", fields).status == 201
    browser, event = sign_in(server.installation), draft(name, user_id=user_id)
    for moment in ("0001-01-01T00:00", "9999-12-31T23:59"):
        answer = server.app.post("/v1/explain", event | {"at": f"{moment}:00Z"})
        assert answer.status == 200, answer.body
        query = urlencode({"user_id": user_id, "type": name, "at": moment, "data": "{}"})
        page = browser.get(f"/admin/apps/{server.first['app']['id']}/explain?{query}")
        assert page.status == 200, moment


def store(server: Server, user: User) -> None:
    """Write a user as it is, beside the server."""

    async def run() -> None:
        url = server.installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            await Users(engine).put(user)
        finally:
            await engine.close()

    run_apart(run())


def test_a_page_of_the_largest_users_does_not_block_the_server(server: Server) -> None:
    """A server whose loop was blocked fails the test."""
    mark = uuid.uuid4().hex
    large = {
        "tags": [mark, *(f"{n}{'ü' * 60}" for n in range(49))],
        "attributes": {"a": "x" * 16_000},
        "metadata": {"a": ["x"] * 4_000},
        "consent": {f"c{n}": {"granted": True, "source": "x" * 200} for n in range(50)},
        "enterprise": {"integrations": {f"{n:03}": "x" * 120 for n in range(100)}},
    }
    for start in range(0, 100, 10):
        users = [{"id": f"{mark}-{n}", **large} for n in range(start, start + 10)]
        results = server.app.post("/v1/users/batch", {"users": users}).json["results"]
        assert {each["status"] for each in results} == {"created"}
    answer = server.app.get(f"/v1/users?tag={mark}&status=active&limit=100")
    assert (len(answer.json["items"]), len(answer.body) > 5_000_000) == (100, True)
