"""What one user, one app or one stranger must not get or do, over real HTTP and real sockets."""

import asyncio
import base64
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.live_clients import InboxUser
from tests.e2e.provider import push
from tests.e2e.sending import make_type, make_user
from tests.lanes import limit_s

# Within this time a token is refused and a connection closed.
END_LIMIT_S = limit_s(5)


@pytest.fixture
def ana(server: Server) -> InboxUser:
    return InboxUser(server)


@pytest.fixture
def bo(server: Server) -> InboxUser:
    return InboxUser(server)


def new_token() -> str:
    return uuid.uuid4().hex * 2


def register(asker: Asker, **fields: Any) -> dict[str, Any]:
    answer = asker.post("/v1/devices", {"platform": "clarion"} | fields)
    assert answer.status == 201, answer.body
    device: dict[str, Any] = answer.json
    return device


@asynccontextmanager
async def listening(gateway_port: int, device: dict[str, Any]) -> AsyncIterator[ClientConnection]:
    """Connect a device; yields when it is ready."""
    hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
    url = f"ws://127.0.0.1:{gateway_port}/v1/gateway"
    async with connect(url, ping_interval=None) as socket:
        await socket.send(json.dumps(hello))
        assert json.loads(await asyncio.wait_for(socket.recv(), 15))["type"] == "ready"
        yield socket


async def close_code(socket: ClientConnection, within_s: float = END_LIMIT_S) -> int | None:
    """Return the code with which the server closes; fails if it does not."""
    async with asyncio.timeout(within_s):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None


# Devices.


def test_a_user_cannot_take_the_device_of_another(ana: InboxUser, bo: InboxUser) -> None:
    device = register(ana.me, token=new_token())
    again = {"platform": "clarion", "token": device["token"]}
    for wrong in ({}, {"secret": "a guess"}):
        answer = bo.me.post("/v1/devices", again | wrong)
        assert (answer.status, answer.problem["code"]) == (409, "device_of_another_user")
    assert ana.me.get(f"/v1/devices/{device['device_id']}").json["user_id"] == ana.id
    assert bo.me.get(f"/v1/devices/{device['device_id']}").status == 404


def test_a_device_changes_its_user_with_its_secret_or_by_the_app(
    server: Server, ana: InboxUser, bo: InboxUser
) -> None:
    device = register(ana.me, token=new_token())
    again = {"platform": "clarion", "token": device["token"]}
    answer = bo.me.post("/v1/devices", again | {"secret": device["secret"]})
    assert (answer.status, answer.json["device_id"]) == (200, device["device_id"])
    # The user before knows the old secret, and must not connect as this device any more.
    assert answer.json["secret"] != device["secret"]
    assert "secret" not in bo.me.post("/v1/devices", again).json
    assert bo.me.get(f"/v1/devices/{device['device_id']}").json["user_id"] == bo.id
    assert server.app.post("/v1/devices", again | {"user_id": ana.id}).status == 200
    assert ana.me.get(f"/v1/devices/{device['device_id']}").json["user_id"] == ana.id


def test_a_device_without_a_user_is_taken_with_its_secret_alone(
    server: Server, bo: InboxUser
) -> None:
    device = register(server.app, token=new_token())
    again = {"platform": "clarion", "token": device["token"]}
    assert bo.me.post("/v1/devices", again).status == 409
    assert bo.me.post("/v1/devices", again | {"secret": device["secret"]}).status == 200


async def test_a_device_that_changes_its_user_has_to_reconnect(
    server: Server, ana: InboxUser, bo: InboxUser
) -> None:
    device = register(ana.me)
    async with listening(server.installation.gateway_port, device) as socket:
        path, body = f"/v1/devices/{device['device_id']}", {"user_id": bo.id}
        assert (await asyncio.to_thread(server.app.ask, "PATCH", path, body)).status == 200
        assert await close_code(socket) == 1012
    async with listening(server.installation.gateway_port, device):
        pass


async def test_a_device_that_a_user_took_over_has_a_new_secret(
    server: Server, ana: InboxUser, bo: InboxUser
) -> None:
    device, port = register(ana.me), server.installation.gateway_port
    body = {"platform": "clarion", "token": device["token"], "secret": device["secret"]}
    async with listening(port, device) as socket:
        taken = await asyncio.to_thread(bo.me.post, "/v1/devices", body)
        assert await close_code(socket) == 4410
    with pytest.raises(ConnectionClosed):
        async with listening(port, device):
            pass
    async with listening(port, device | taken.json):
        pass


async def test_a_renewed_secret_ends_the_old_connection(server: Server, ana: InboxUser) -> None:
    device = register(ana.me)
    async with listening(server.installation.gateway_port, device) as socket:
        path = f"/v1/devices/{device['device_id']}/secret"
        renewed = await asyncio.to_thread(ana.me.post, path)
        assert await close_code(socket) == 4410
    async with listening(server.installation.gateway_port, device | renewed.json):
        pass


def test_a_token_that_another_app_has_is_registered_as_any_other(server: Server) -> None:
    other = server.with_key(server.make_app()["api_key"])
    token = new_token()
    ours, theirs = register(server.app, token=token), register(other, token=token)
    assert ours["device_id"] != theirs["device_id"]
    assert other.delete(f"/v1/devices/{theirs['device_id']}").status == 204
    assert server.app.get(f"/v1/devices/{ours['device_id']}").json["is_valid"] is True


async def test_devices_of_two_apps_with_one_token_are_told_apart_by_their_secrets(
    server: Server,
) -> None:
    app = await asyncio.to_thread(server.make_app)
    token, port = new_token(), server.installation.gateway_port
    ours = register(server.app, token=token)
    theirs = register(server.with_key(app["api_key"]), token=token)
    async with listening(port, ours), listening(port, theirs):
        pass


# Topics.


def test_a_user_subscribes_to_open_topics_only(server: Server, ana: InboxUser) -> None:
    device, topic = register(ana.me)["device_id"], f"t-{uuid.uuid4().hex}"
    path = f"/v1/devices/{device}/topics/{topic}"
    refused = ana.me.ask("PUT", path)
    assert (refused.status, refused.problem["code"]) == (403, "topic_not_open")
    assert f"/v1/topics/{topic}" in refused.problem["detail"]
    assert server.app.ask("PUT", path).status == 204
    assert ana.me.ask("DELETE", path).status == 204
    assert ana.me.ask("PUT", path).status == 403
    opened = server.app.ask("PUT", f"/v1/topics/{topic}", {"open": True})
    assert (opened.status, opened.json["open"]) == (200, True)
    assert ana.me.ask("PUT", path).status == 204


def test_a_topic_is_private_unless_it_is_opened(server: Server) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    made = server.app.ask("PUT", f"/v1/topics/{topic}", {})
    assert (made.status, made.json["topic"], made.json["open"]) == (201, topic, False)
    for is_open in (True, False):
        answer = server.app.ask("PUT", f"/v1/topics/{topic}", {"open": is_open})
        assert (answer.status, answer.json["open"]) == (200, is_open)


def test_users_neither_create_nor_open_topics(ana: InboxUser) -> None:
    answer = ana.me.ask("PUT", f"/v1/topics/t-{uuid.uuid4().hex}", {"open": True})
    assert answer.status == 403


# Users who may no longer do anything.


def set_status(app: Asker, user: InboxUser, status: str) -> None:
    assert app.ask("PUT", f"/v1/users/{user.id}", {"status": status}).status in {200, 201}


def test_the_token_of_an_inactive_user_is_refused_until_they_are_active(
    server: Server, ana: InboxUser
) -> None:
    set_status(server.app, ana, "active")
    assert ana.me.get("/v1/me/unread-count").status == 200
    set_status(server.app, ana, "inactive")
    refused = ana.me.get("/v1/me/unread-count")
    assert (refused.status, refused.problem["code"]) == (401, "unauthenticated")
    assert "inactive" in refused.problem["detail"]
    set_status(server.app, ana, "active")
    assert ana.me.get("/v1/me/unread-count").status == 200


async def check_that_an_inactive_user_is_disconnected(
    app: Asker, user: InboxUser, gateway_port: int
) -> None:
    """Open a stream, a socket and a device; all must end when the user becomes inactive."""
    set_status(app, user, "active")
    device = register(user.me)
    async with user.listen() as socket, listening(gateway_port, device) as phone:
        await socket.take()
        with user.watch() as stream:
            await asyncio.to_thread(stream.take)
            started = time.monotonic()
            await asyncio.to_thread(set_status, app, user, "inactive")
            events = asyncio.to_thread(lambda: list(iter(stream.next, None))[-1].name)
            codes = await asyncio.gather(close_code(socket.connection), close_code(phone), events)
            assert time.monotonic() - started < END_LIMIT_S
    assert codes[2] == "end"
    with pytest.raises(ConnectionClosed) as refused:
        async with listening(gateway_port, device):
            pass
    assert refused.value.rcvd is not None
    assert refused.value.rcvd.code == 4401


async def test_the_open_connections_of_a_user_end_when_they_become_inactive(
    server: Server, ana: InboxUser
) -> None:
    port = server.installation.gateway_port
    await check_that_an_inactive_user_is_disconnected(server.app, ana, port)


@pytest.fixture
def two_nodes(tmp_path: Path, postgres_database: str) -> Iterator[tuple[Server, Server]]:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = Installation(tmp_path / "one", database=postgres_database)
    first = one.initialise()
    two = Installation(tmp_path / "two", database=postgres_database, data=str(one.data))
    with one, two:
        yield Server(one, first), Server(two, first)


async def test_another_node_disconnects_a_user_too(two_nodes: tuple[Server, Server]) -> None:
    one, two = two_nodes
    user = InboxUser(two)
    await check_that_an_inactive_user_is_disconnected(one.app, user, two.installation.gateway_port)
    assert user.me.get("/v1/me/unread-count").status == 401


async def test_another_node_disconnects_devices_that_were_changed(
    two_nodes: tuple[Server, Server],
) -> None:
    one, two = two_nodes
    changes = {
        4410: ("POST", "/secret", None),
        1012: ("PATCH", "", {"user_id": "bo"}),
        -4410: ("DELETE", "", None),
    }
    for code, (method, path, body) in changes.items():
        device = register(two.app, user_id="ana")
        async with listening(two.installation.gateway_port, device) as socket:
            url = f"/v1/devices/{device['device_id']}{path}"
            answer = await asyncio.to_thread(one.app.ask, method, url, body)
            assert answer.status in {200, 204}
            assert await close_code(socket) == abs(code)


def test_a_user_that_was_never_created_may_use_a_token(ana: InboxUser) -> None:
    assert ana.me.get("/v1/me/unread-count").status == 200


def test_a_user_token_that_is_valid_for_too_long_is_refused(server: Server, ana: InboxUser) -> None:
    day = 24 * 3600
    assert server.with_key(ana.make_token(day)).get("/v1/caller").status == 200
    refused = server.with_key(ana.make_token(day + 600)).get("/v1/caller")
    assert refused.status == 401
    assert "24 hours" in refused.problem["detail"]


# Keys.


def test_a_key_cannot_revoke_a_key_that_may_do_more(server: Server) -> None:
    low = server.make_key("keys:write", "keys:read")
    higher = server.make_key("keys:write", "events:write")
    refused = low.delete(f"/v1/keys/{higher.get('/v1/caller').json['key_id']}")
    assert (refused.status, refused.problem["code"]) == (403, "forbidden")
    assert "events:write" in refused.problem["detail"]
    assert higher.get("/v1/caller").status == 200
    assert low.delete(f"/v1/keys/{low.get('/v1/caller').json['key_id']}").status == 200


def test_a_key_cannot_create_one_that_outlives_it(server: Server) -> None:
    body = {"label": "short", "scopes": ["*"], "expires_at": "2040-01-01T00:00:00Z"}
    short = server.with_key(server.app.post("/v1/keys", body).json["api_key"])
    refused = short.post("/v1/keys", body | {"expires_at": "2040-01-01T00:00:01Z"})
    assert (refused.status, refused.fields) == (422, ["expires_at"])
    for expires_at in (None, body["expires_at"]):
        made = short.post("/v1/keys", body | {"expires_at": expires_at})
        assert (made.status, made.json["expires_at"]) == (201, "2040-01-01T00:00:00.000Z")


# Rate limits.


@pytest.fixture
def limited(tmp_path: Path) -> Callable[..., Any]:
    def make(**flags: str) -> tuple[Installation, dict[str, Any]]:
        installation = Installation(tmp_path, tls_listen="off", **flags)
        return installation, installation.initialise()

    return make


def test_a_user_token_has_a_lower_limit_that_spares_the_app(limited: Callable[..., Any]) -> None:
    installation, first = limited(user_requests_per_minute="5", app_requests_per_minute="20")
    with installation:
        user = InboxUser(Server(installation, first))
        answers = [user.me.get("/v1/caller") for _ in range(30)]
        assert sorted({each.status for each in answers}) == [200, 429]
        assert answers[0].headers["ratelimit-limit"] == "5"
        app = Asker(installation.port, first["app"]["api_key"])
        assert app.get("/v1/caller").status == 200


def test_the_keys_of_an_app_share_a_limit(limited: Callable[..., Any]) -> None:
    installation, first = limited(app_requests_per_minute="10")
    with installation:
        app = Asker(installation.port, first["app"]["api_key"])
        keys = []
        for _ in range(3):
            made = app.post("/v1/keys", {"label": "a", "scopes": ["*"]})
            keys.append(Asker(installation.port, made.json["api_key"]))
        answers = [key.get("/v1/caller") for key in keys for _ in range(8)]
        # A minute may begin in between: more than ten of these are in one of the two.
        refused = [each for each in answers if each.status == 429]
        assert {each.status for each in answers} == {200, 429}
        assert "app" in refused[0].problem["detail"]
        other = Server(installation, first).make_app()
        assert Asker(installation.port, other["api_key"]).get("/v1/caller").status == 200


def test_a_user_registers_only_so_many_devices_an_hour(ana: InboxUser) -> None:
    # An hour may begin in between: one more than two hours allow is refused in any case.
    answers = [ana.me.post("/v1/devices", {"platform": "clarion"}) for _ in range(41)]
    assert 20 <= [each.status for each in answers].count(201) <= 40
    refused = next(each for each in answers if each.status != 201)
    assert (refused.status, refused.problem["code"]) == (429, "too_many_requests")
    assert 0 < int(refused.headers["retry-after"]) <= 3600
    listed = ana.me.get("/v1/me/devices?limit=100").json["items"]
    assert len(listed) <= 3 + 10, "revoked devices pile up"


# Links.

REFUSED_LINKS = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "\tjavascript:alert(1)",
    "java\nscript:alert(1)",
    "java\tscript:alert(1)",
    "\u0001javascript:alert(1)",
    "javascript:alert(1)\u0085",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "file:///etc/passwd",
    "blob:https://example.com/1",
]


def link_event(**links: str) -> dict[str, Any]:
    return {"type": "SECURITY_NEW_DEVICE", "recipient": {"user_id": "ana"}} | links


@pytest.mark.parametrize("link", REFUSED_LINKS)
@pytest.mark.parametrize("field", ["deeplink", "image_url"])
def test_a_link_that_runs_code_is_refused(server: Server, field: str, link: str) -> None:
    server.app.ask("PUT", "/v1/users/ana", {})
    event = link_event(**{field: link})
    assert server.app.post("/v1/events", event).fields == [field]
    assert server.app.post("/v1/explain", event).fields == [field]
    batch = server.app.post("/v1/events/batch", {"events": [event]}).json
    assert [error["field"] for error in batch["results"][0]["errors"]] == [field]


@pytest.mark.parametrize(
    ("field", "link"),
    [
        ("deeplink", "https://example.com/a?b=c d#e"),
        ("deeplink", "myapp://chats/7"),
        ("deeplink", "mailto:ana@example.com"),
        ("deeplink", "/orders/7"),
        ("deeplink", "orders/javascript:7"),
        ("image_url", "https://example.com/a.png"),
        ("image_url", "/a.png"),
    ],
)
def test_other_links_are_taken(server: Server, field: str, link: str) -> None:
    event = {"type": make_type(server.app), "recipient": {"user_id": make_user(server.app)}}
    event |= {"data": {"order": "A-7"}, field: link}
    answer = server.app.post("/v1/events", event)
    assert answer.status == 202, answer.body


def test_an_image_is_fetched_by_http_only(server: Server) -> None:
    server.app.ask("PUT", "/v1/users/ana", {})
    answer = server.app.post("/v1/events", link_event(image_url="ftp://example.com/b.png"))
    assert answer.fields == ["image_url"]


# Tokens that are nested too deeply.


def encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("nested", ["[" * 3_000, '{"a":' * 600, '{"x":' + "[" * 3_000])
def test_a_provider_token_nested_without_end_is_refused(
    server: Server, part: int, nested: str
) -> None:
    parts = [encode('{"alg":"ES256","kid":"A"}'), encode('{"iss":"A","iat":1}'), encode("x" * 64)]
    parts[part] = encode(nested)
    headers = {"authorization": f"bearer {'.'.join(parts)}", "apns-topic": "com.example.app"}
    answer = server.anyone.post(f"/3/device/{'ab' * 32}", {"aps": {}}, headers=headers)
    assert (answer.status, answer.json["reason"]) == (403, "InvalidProviderToken")


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("nested", ["[" * 3_000, '{"a":' * 600, '{"aud":' + "[" * 3_000])
def test_a_user_token_nested_without_end_is_refused(
    server: Server, ana: InboxUser, part: int, nested: str
) -> None:
    parts = ana.token.split(".")
    parts[part] = encode(nested)
    answer = server.with_key(".".join(parts)).get("/v1/caller")
    assert (answer.status, answer.problem["code"]) == (401, "unauthenticated")


def test_a_signed_user_token_nested_without_end_is_refused(server: Server, ana: InboxUser) -> None:
    app = server.first["app"]
    deep: Any = []
    for _ in range(700):
        deep = [deep]
    claims = {"sub": ana.id, "aud": app["id"], "exp": time.time() + 60, "more": deep}
    token = jwt.encode(claims, app["user_secret"], algorithm="HS256")
    assert server.with_key(token).get("/v1/caller").status in {200, 401}


# Tokens of other apps.


def push_status(server: Server, device_token: str) -> tuple[int, bytes]:
    answer = push(server, device_token)
    return answer.status, answer.body


def test_a_push_to_a_token_of_another_app_is_answered_as_to_an_unknown_one(server: Server) -> None:
    other = server.with_key(server.make_app()["api_key"])
    theirs = register(other, token=new_token())
    unknown = push_status(server, new_token())
    assert unknown == (400, b'{"reason":"BadDeviceToken"}')
    assert push_status(server, theirs["token"]) == unknown
    assert other.delete(f"/v1/devices/{theirs['device_id']}").status == 204
    assert push_status(server, theirs["token"]) == unknown
