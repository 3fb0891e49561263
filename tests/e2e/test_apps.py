"""Apps and their keys on a running server, changed by commands as another process does."""

import asyncio
import http.client
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.provider import push_as
from tests.e2e.sending import draft, make_type
from tests.lanes import limit_s

# Of the largest installation that the tests run against.
NODES = 3
# Caches hold for two seconds, provider tokens for five.
SECONDS = limit_s(8)


def run(server: Server, *words: str, **flags: str) -> Any:
    """Run a command with --json and return what it printed."""
    done = server.installation.run(*words, "--json", **flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.fixture
def app(server: Server) -> dict[str, Any]:
    """An app of its own for the test."""
    return server.make_app()


def sign(app: dict[str, Any], key: Any = None, algorithm: str = "HS256", **headers: str) -> str:
    claims = {"sub": "ana", "aud": app["id"], "exp": time.time() + 600}
    return jwt.encode(claims, key or app["user_secret"], algorithm, headers=headers or None)


def is_let_in(server: Server, token: str) -> bool:
    status = server.with_key(token).get("/v1/me/unread-count").status
    assert status in {200, 401}
    return status == 200


def is_let_in_anywhere(server: Server, token: str) -> bool:
    """Ask every node: connections go to them in turn, and each learns of a change by itself."""
    return any(is_let_in(server, token) for _ in range(NODES))


def public_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def test_an_app_is_created_shown_renamed_and_listed(server: Server, app: dict[str, Any]) -> None:
    shown = run(server, "app", "show", app["id"])
    assert (shown["id"], shown["allowed_origins"]) == (app["id"], [])
    assert server.installation.run("app", "rename", app["id"], "Shöp 🛒").returncode == 0
    assert {"id": app["id"], "name": "Shöp 🛒"}.items() <= run(
        server, "app", "show", app["id"]
    ).items()
    assert app["id"] in [each["id"] for each in run(server, "app", "list")]
    text = server.installation.run("app", "show", app["id"]).stdout
    assert "Shöp 🛒" in text
    assert app["key_id"] in text


@pytest.mark.parametrize("words", ["app show", "key list", "user-key create"])
def test_an_app_that_is_not_there_is_one_sentence(server: Server, words: str) -> None:
    done = server.installation.run(*words.split(), "nobody")
    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if not each.startswith("{")]
    assert line.startswith("clarion: There is no app ")
    assert "nobody" in line


KEYS: dict[str, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_public_key_is_accepted_and_refused_when_revoked(
    server: Server, app: dict[str, Any], tmp_path: Path, algorithm: str
) -> None:
    key, file = KEYS[algorithm], tmp_path / "public.pem"
    file.write_text(public_pem(key))
    flags = {"algorithm": algorithm, "public_key": str(file)}
    made = run(server, "user-key", "create", app["id"], **flags)
    assert (made["algorithm"], made["secret"]) == (algorithm, None)
    plain, named = sign(app, key, algorithm), sign(app, key, algorithm, kid=made["kid"])
    wait_until(lambda: is_let_in(server, plain))
    assert is_let_in(server, named)
    run(server, "user-key", "revoke", app["id"], made["kid"])
    wait_until(lambda: not is_let_in_anywhere(server, named))
    assert not is_let_in_anywhere(server, plain)
    assert is_let_in(server, sign(app))


def test_a_user_secret_is_rotated_with_an_overlap(server: Server, app: dict[str, Any]) -> None:
    (old,) = run(server, "user-key", "list", app["id"])
    new = run(server, "user-key", "rotate", app["id"], old["kid"], overlap_s="4")
    rotated_at = time.monotonic()
    wait_until(lambda: is_let_in(server, sign(app, new["secret"])))
    assert is_let_in(server, sign(app)) or time.monotonic() > rotated_at + 4
    wait_until(lambda: not is_let_in(server, sign(app)))
    assert is_let_in(server, sign(app, new["secret"], kid=new["kid"]))


@pytest.mark.parametrize(
    ("content", "algorithm", "reason"),
    [
        ("short", "HS256", "must have 32 to 1024 bytes"),
        (public_pem(ec.generate_private_key(ec.SECP384R1())), "ES256", "not on secp384r1"),
    ],
)
def test_a_weak_or_wrong_key_is_refused(
    server: Server, app: dict[str, Any], tmp_path: Path, content: str, algorithm: str, reason: str
) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    flag = "secret" if algorithm == "HS256" else "public_key"
    flags = {"algorithm": algorithm, flag: str(file)}
    done = server.installation.run("user-key", "create", app["id"], **flags)
    assert (done.returncode, reason in done.stderr) == (2, True)


def test_a_provider_key_pushes_until_it_is_revoked(server: Server, app: dict[str, Any]) -> None:
    device = server.with_key(app["api_key"]).post("/v1/devices", {"platform": "clarion"}).json
    made = run(server, "provider-key", "create", app["id"])
    other = app | {"key_id": made["key_id"], "provider_key": Path(made["path"]).read_bytes()}
    for card in (app, other):
        assert push_as(server, card, device["token"], "hello").status == 200
    assert (
        server.installation.run("provider-key", "revoke", app["id"], made["key_id"]).returncode == 0
    )
    wait_until(lambda: push_as(server, other, device["token"], "hello").status == 403)
    assert push_as(server, app, device["token"], "hello").status == 200


def test_an_api_key_is_rotated_with_an_overlap(server: Server, app: dict[str, Any]) -> None:
    asker = server.with_key(app["api_key"])
    old = asker.post("/v1/keys", {"label": "old", "scopes": ["keys:read"]}).json
    rotated = asker.post(f"/v1/keys/{old['id']}/rotate", {"overlap_s": 4})
    assert rotated.status == 201
    new = rotated.json
    assert (new["label"], new["scopes"], new["replaced_by"]) == ("old", ["keys:read"], None)
    assert new["api_key"].startswith(new["prefix"])
    both = server.with_key(old["api_key"]), server.with_key(new["api_key"])
    assert [each.get("/v1/keys").status for each in both] == [200, 200]
    listed = {each["id"]: each for each in both[1].get("/v1/keys").json["items"]}
    assert listed[old["id"]]["replaced_by"] == new["id"]
    assert asker.post(f"/v1/keys/{old['id']}/rotate", {}).status == 409
    wait_until(lambda: both[0].get("/v1/keys").status == 401)
    assert both[1].get("/v1/keys").status == 200


def test_a_repeated_rotation_gets_the_same_secret(server: Server, app: dict[str, Any]) -> None:
    asker = server.with_key(app["api_key"])
    old = asker.post("/v1/keys", {"label": "old", "scopes": ["keys:read"]}).json
    once = {"Idempotency-Key": uuid.uuid4().hex}
    both = [asker.post(f"/v1/keys/{old['id']}/rotate", {}, headers=once) for _ in range(2)]
    assert [each.status for each in both] == [201, 201]
    assert both[0].json == both[1].json
    assert both[1].headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"overlap_s": -1}, "overlap_s"),
        ({"overlap_s": 30 * 24 * 3600 + 1}, "overlap_s"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"more": 1}, "more"),
    ],
)
def test_a_rotation_that_is_not_valid_names_the_field(
    server: Server, app: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    asker = server.with_key(app["api_key"])
    old = asker.post("/v1/keys", {"label": "old", "scopes": ["keys:read"]}).json
    answer = asker.post(f"/v1/keys/{old['id']}/rotate", body)
    assert (answer.status, answer.fields) == (422, [field])


def test_a_key_that_expires_cannot_prolong_itself(server: Server, app: dict[str, Any]) -> None:
    made = run(server, "key", "create", app["id"], "short", days="1")
    asker = server.with_key(made["api_key"])
    later = {"expires_at": "2100-01-01T00:00:00Z"}
    assert asker.post(f"/v1/keys/{made['id']}/rotate", later).fields == ["expires_at"]
    rotated = asker.post(f"/v1/keys/{made['id']}/rotate", {})
    assert (rotated.status, rotated.json["expires_at"]) == (201, made["expires_at"])


def test_keys_are_rotated_and_listed_by_command(server: Server, app: dict[str, Any]) -> None:
    made = run(server, "key", "create", app["id"], "by command", "stats:read")
    new = run(server, "key", "rotate", app["id"], made["id"], overlap_s="0")
    listed = {each["id"]: each for each in run(server, "key", "list", app["id"])}
    assert listed[made["id"]]["replaced_by"] == new["id"]
    wait_until(lambda: server.with_key(made["api_key"]).get("/v1/stats").status == 401)
    assert server.with_key(new["api_key"]).get("/v1/stats").status == 200
    text = server.installation.run("key", "list", app["id"]).stdout
    assert f"{new['id']}  live" in text


def test_a_token_for_development_is_all_that_is_printed(server: Server) -> None:
    done = server.installation.run("user", "token", "ana")
    (token,) = done.stdout.splitlines()
    assert is_let_in(server, token)
    caller = server.with_key(token).get("/v1/caller").json
    assert (caller["user_id"], caller["app_id"]) == ("ana", server.first["app"]["id"])


def test_a_token_of_another_app_and_for_longer(server: Server, app: dict[str, Any]) -> None:
    made = run(server, "user", "token", "bo", "--app", app["id"], "--hours", "24")
    assert (made["user_id"], made["app_id"]) == ("bo", app["id"])
    claims = jwt.decode(made["token"], options={"verify_signature": False})
    assert claims["exp"] - time.time() > 23 * 3600
    assert is_let_in(server, made["token"])


@pytest.mark.parametrize(
    "words", [["ana", "--hours", "25"], ["ana", "--hours", "0"], ["a b"], [""]]
)
def test_a_token_that_no_server_would_accept_is_not_signed(
    server: Server, words: list[str]
) -> None:
    done = server.installation.run("user", "token", *words)
    assert (done.returncode, done.stdout) == (2, "")


class LiveApp:
    """An app with everything that may be in use when it is deleted."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.card = server.make_app_by_command()
        self.asker = server.with_key(self.card["api_key"])
        self.card["provider_key"] = Path(self.card["provider_key_path"]).read_bytes()
        self.token = sign(self.card)
        self.me = server.with_key(self.token)
        self.device = self.asker.post("/v1/devices", {"platform": "clarion"}).json
        self.type_name = make_type(self.asker, "hello")
        assert self.asker.ask("PUT", "/v1/users/ana", {}).status == 201

    async def use(self) -> tuple[list[int], float]:
        """Open a device's and a user's socket and delete the app; return how and when they end."""
        url = f"ws://127.0.0.1:{self.server.installation.gateway_port}"
        header = {"Authorization": f"Bearer {self.token}"}
        async with (
            connect(f"{url}/v1/gateway") as phone,
            connect(f"{url}/v1/me/socket", additional_headers=header) as inbox,
        ):
            hello = {
                "type": "hello",
                "token": self.device["token"],
                "secret": self.device["secret"],
            }
            await phone.send(json.dumps(hello))
            assert json.loads(await phone.recv())["type"] == "ready"
            assert json.loads(await inbox.recv())["type"] == "state"
            await asyncio.to_thread(self.delete)
            deleted_at = time.monotonic()
            codes = [await wait_closed(each) for each in (phone, inbox)]
        return codes, time.monotonic() - deleted_at

    def delete(self) -> None:
        done = self.server.installation.run("app", "delete", self.card["id"], "--yes")
        assert done.returncode == 0, done.stderr


async def wait_closed(connection: Any) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(connection.recv(), SECONDS)
    frame = closed.value.rcvd
    assert frame is not None
    assert frame.reason == "the app was deleted"
    return int(frame.code)


async def test_nothing_of_a_deleted_app_works_within_seconds(server: Server) -> None:
    live = await asyncio.to_thread(LiveApp, server)
    other = await asyncio.to_thread(LiveApp, server)
    codes, took_s = await live.use()
    assert codes == [4410, 4401]
    assert took_s < SECONDS
    await asyncio.to_thread(check_gone, live)
    await asyncio.to_thread(check_works, other)


def check_gone(live: LiveApp) -> None:
    server, event = live.server, draft(live.type_name, user_id="ana")
    wait_until(lambda: live.asker.post("/v1/events", event).status == 401)
    wait_until(lambda: live.me.get("/v1/me/unread-count").status == 401)
    wait_until(lambda: live.me.post("/v1/me/tickets").status == 401)
    device_token = live.device["token"]
    wait_until(lambda: push_as(server, live.card, device_token, "x").status == 403)
    assert live.card["id"] not in [each["id"] for each in run(server, "app", "list")]
    assert not Path(live.card["provider_key_path"]).exists()


def check_works(live: LiveApp) -> None:
    assert live.asker.post("/v1/events", draft(live.type_name, user_id="ana")).status == 202
    assert live.me.get("/v1/me/unread-count").status == 200
    assert push_as(live.server, live.card, live.device["token"], "x").status == 200


def test_the_name_must_be_given_to_delete_an_app(server: Server, app: dict[str, Any]) -> None:
    for answer, code in (("other\n", 1), ("", 1), ("Other\n", 0)):
        done = server.installation.answer(answer, "app", "delete", app["id"])
        assert done.returncode == code, done.stderr
        assert (done.stdout == "Deleted Other.\n") == (code == 0)


# Over the API, by administrators.


def test_an_administrator_creates_changes_and_deletes_an_app(server: Server) -> None:
    admin = server.make_admin()
    new = {"name": "Shöp", "bundle_id": f"com.example.a{uuid.uuid4().hex}"}
    once = {"Idempotency-Key": uuid.uuid4().hex}
    made, again = (admin.post("/v1/apps", new, headers=once) for _ in range(2))
    assert (made.status, again.status, again.headers["idempotent-replayed"]) == (201, 201, "true")
    assert made.json == again.json
    app, path = made.json, f"/v1/apps/{made.json['id']}"
    assert admin.post("/v1/apps", new).problem["code"] == "conflict"
    shown = admin.get(path).json
    assert shown == {name: app[name] for name in shown}
    assert server.with_key(app["api_key"]).get("/v1/app").json == shown
    assert is_let_in(server, sign(app, kid=app["user_key_id"]))
    change = {"name": "Shop", "allowed_origins": ["https://shop.example"]}
    assert admin.ask("PATCH", path, change).json == shown | change
    assert admin.delete(path).status == 204
    # At once, because this node has deleted it.
    assert server.with_key(app["api_key"]).get("/v1/app").status == 401
    assert not is_let_in(server, sign(app))
    for method in ("GET", "PATCH", "DELETE"):
        assert admin.ask(method, path, {}).status == 404
    assert admin.post("/v1/apps", new).status == 201, "the bundle id is free"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["name", "bundle_id"]),
        ({"name": "", "bundle_id": "com.example.x"}, ["name"]),
        ({"name": "x" * 101, "bundle_id": "com.example.x"}, ["name"]),
        ({"name": "x", "bundle_id": "nonsense"}, ["bundle_id"]),
        ({"name": "x", "bundle_id": "com.x" + "x" * 155}, ["bundle_id"]),
        (
            {"name": "x", "bundle_id": "a.b", "allowed_origins": ["https://a.example/path"]},
            ["allowed_origins"],
        ),
        ({"name": "x", "bundle_id": "a.b", "allowed_origins": ["null"]}, ["allowed_origins"]),
        ({"name": "x", "bundle_id": "a.b", "team_id": "MINE"}, ["team_id"]),
    ],
)
def test_an_app_that_is_not_valid_names_the_fields(
    server: Server, body: dict[str, Any], fields: list[str]
) -> None:
    answer = server.make_admin().post("/v1/apps", body)
    assert (answer.status, set(answer.fields)) == (422, set(fields))


def test_an_administrator_manages_the_keys_of_user_tokens(
    server: Server, app: dict[str, Any]
) -> None:
    admin, path = server.make_admin(), f"/v1/apps/{app['id']}/user-keys"
    key = KEYS["EdDSA"]
    made = admin.post(path, {"algorithm": "EdDSA", "kid": "own", "public_key": public_pem(key)})
    assert (made.status, made.json["kid"], made.json["secret"]) == (201, "own", None)
    assert is_let_in(server, sign(app, key, "EdDSA", kid="own")), "at once, on this node"
    assert admin.post(path, {"algorithm": "HS256", "kid": "own"}).status == 409
    old = next(each for each in admin.get(path).json["items"] if each["kid"] != "own")
    rotated = admin.post(f"{path}/{old['kid']}/rotate", {"overlap_s": 0})
    assert rotated.status == 201
    assert not is_let_in(server, sign(app))
    assert is_let_in(server, sign(app, rotated.json["secret"], kid=rotated.json["kid"]))
    assert admin.post(f"{path}/{old['kid']}/rotate", {}).status == 404, "it has expired"
    assert admin.delete(f"{path}/own").json["revoked_at"] is not None
    assert not is_let_in(server, sign(app, key, "EdDSA"))
    assert [admin.delete(f"{path}/{kid}").status for kid in ("own", "nobody")] == [200, 404]


async def test_a_revoked_key_ends_the_sockets_that_it_opened(
    server: Server, app: dict[str, Any]
) -> None:
    admin = await asyncio.to_thread(server.make_admin)
    path = f"/v1/apps/{app['id']}/user-keys"
    made = (await asyncio.to_thread(admin.post, path, {})).json
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/me/socket"
    header = {"Authorization": f"Bearer {sign(app, made['secret'])}"}
    async with connect(url, additional_headers=header) as socket:
        assert json.loads(await socket.recv())["type"] == "state"
        await asyncio.to_thread(admin.delete, f"{path}/{made['kid']}")
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), SECONDS)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
    assert await first_frame(url, additional_headers=header) == "4401"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"algorithm": "HS256", "secret": "s" * 31}, "secret"),
        ({"algorithm": "HS256", "secret": "-----BEGIN PUBLIC KEY-----" + "x" * 32}, "secret"),
        ({"algorithm": "HS256", "public_key": public_pem(KEYS["ES256"])}, "public_key"),
        ({"algorithm": "ES256"}, "public_key"),
        ({"algorithm": "ES256", "secret": "s" * 43}, "secret"),
        ({"algorithm": "ES256", "public_key": "nonsense"}, "public_key"),
        ({"algorithm": "ES256", "public_key": public_pem(KEYS["EdDSA"])}, "public_key"),
        ({"algorithm": "EdDSA", "public_key": public_pem(KEYS["ES256"])}, "public_key"),
        ({"algorithm": "HS512"}, "algorithm"),
        ({"algorithm": "none"}, "algorithm"),
        ({"kid": "a/b"}, "kid"),
        ({"kid": "first"}, "kid"),
        ({"kid": "x" * 65}, "kid"),
    ],
)
def test_a_user_key_that_is_not_valid_names_the_field(
    server: Server, app: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    answer = server.make_admin().post(f"/v1/apps/{app['id']}/user-keys", body)
    assert (answer.status, answer.fields) == (422, [field])


def test_an_app_has_ten_live_keys_of_a_kind_at_most(server: Server, app: dict[str, Any]) -> None:
    admin, path = server.make_admin(), f"/v1/apps/{app['id']}/user-keys"
    statuses = [admin.post(path, {}).status for _ in range(10)]
    assert statuses == [*[201] * 9, 409]


def test_an_administrator_manages_the_keys_of_providers(
    server: Server, app: dict[str, Any]
) -> None:
    admin, path = server.make_admin(), f"/v1/apps/{app['id']}/provider-keys"
    device = server.with_key(app["api_key"]).post("/v1/devices", {"platform": "clarion"}).json
    rotated = admin.post(f"{path}/{app['key_id']}/rotate", {"overlap_s": 3600}).json
    new = app | {"key_id": rotated["key_id"], "provider_key": rotated["private_key"].encode()}
    for card in (app, new):
        assert push_as(server, card, device["token"]).status == 200
    assert admin.post(path, {"key_id": "short"}).fields == ["key_id"]
    assert admin.post(path, {"key_id": rotated["key_id"]}).status == 409
    assert admin.post(path, {"public_key": public_pem(KEYS["EdDSA"])}).fields == ["public_key"]
    assert admin.delete(f"{path}/{app['key_id']}").status == 200
    wait_until(lambda: push_as(server, app, device["token"]).status == 403)
    listed = {each["key_id"]: each for each in admin.get(path).json["items"]}
    assert "private_key" not in listed[new["key_id"]]


# Tickets, and the origins of pages.


def open_stream(server: Server, query: str, **headers: str) -> tuple[int, str]:
    """Ask for a stream by a ticket; return the status and the first line."""
    connection = http.client.HTTPConnection("127.0.0.1", server.installation.port, timeout=60)
    connection.request("GET", f"/v1/me/stream{query}", headers=headers)
    answer = connection.getresponse()
    line = answer.readline().decode().strip()
    connection.close()
    return answer.status, line


def new_ticket(asker: Asker) -> str:
    made = asker.post("/v1/me/tickets")
    assert made.status == 201
    assert set(made.json) == {"ticket", "expires_at"}
    return str(made.json["ticket"])


def test_a_ticket_opens_one_stream(server: Server, app: dict[str, Any]) -> None:
    ticket = new_ticket(server.with_key(sign(app)))
    assert open_stream(server, f"?ticket={ticket}") == (200, "retry: 2000")
    assert open_stream(server, f"?ticket={ticket}")[0] == 401


def test_a_ticket_is_for_streams_alone(server: Server, app: dict[str, Any]) -> None:
    ticket = new_ticket(server.with_key(sign(app)))
    for path in ("/v1/me/notifications", "/v1/me/unread-count"):
        assert server.anyone.get(f"{path}?ticket={ticket}").status == 401
    assert server.with_key(ticket).get("/v1/me/unread-count").status == 401
    assert open_stream(server, f"/?ticket={ticket}")[0] == 200


@pytest.mark.parametrize("ticket", ["", "tk_", "tk_" + "x" * 43, "%00", "x" * 4_000])
def test_what_is_no_ticket_is_refused(server: Server, ticket: str) -> None:
    assert open_stream(server, f"?ticket={ticket}")[0] in {401, 422}


async def test_of_many_sockets_with_one_ticket_one_opens(
    server: Server, app: dict[str, Any]
) -> None:
    ticket = await asyncio.to_thread(new_ticket, server.with_key(sign(app)))
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/me/socket?ticket={ticket}"
    outcomes = await asyncio.gather(*(first_frame(url) for _ in range(8)))
    assert sorted(outcomes) == [*["4401"] * 7, "state"]


async def first_frame(url: str, **options: Any) -> str:
    async with connect(url, **options) as connection:
        try:
            return str(json.loads(await asyncio.wait_for(connection.recv(), 20))["type"])
        except ConnectionClosed as closed:
            return str(closed.rcvd.code if closed.rcvd else 0)


async def test_sockets_of_pages_are_accepted_from_allowed_origins(
    server: Server, app: dict[str, Any]
) -> None:
    done = await asyncio.to_thread(
        server.installation.run, "app", "origins", app["id"], "https://App.Example.com:443"
    )
    assert done.stdout == "https://app.example.com\n"
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/me/socket"
    header = {"Authorization": f"Bearer {sign(app)}"}
    for origin, outcome in (
        ("https://app.example.com", "state"),
        (None, "state"),
        ("https://evil.example", "4401"),
        ("http://app.example.com", "4401"),
        ("https://app.example.com:8443", "4401"),
        ("null", "4401"),
    ):
        shown = await first_frame(url, additional_headers=header, origin=origin)
        assert (origin, shown) == (origin, outcome)


async def test_devices_in_pages_need_an_allowed_origin_too(
    server: Server, app: dict[str, Any]
) -> None:
    asker = server.with_key(app["api_key"])
    device = await asyncio.to_thread(asker.post, "/v1/devices", {"platform": "clarion"})
    hello = {"type": "hello", "token": device.json["token"], "secret": device.json["secret"]}
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
    async with connect(url, origin="https://evil.example") as connection:  # type: ignore[arg-type]
        await connection.send(json.dumps(hello))
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(connection.recv(), 20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401


def test_no_log_has_a_ticket(server: Server, app: dict[str, Any]) -> None:
    ticket = new_ticket(server.with_key(sign(app)))
    open_stream(server, f"?ticket={ticket}")
    assert ticket not in server.installation.log.read_text()
