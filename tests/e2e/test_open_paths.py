"""Everything that is served beside the API: who may use it, and that nobody else can.

The paths are those of the front itself, and of the gateway: one without an entry fails.
"""

import asyncio
import json
import time
import uuid
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jwt
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.provider import push
from tests.e2e.test_access_matrix import TABLE
from tests.in_process import opened_front

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
THROUGH_A_PROXY = {"X-Forwarded-For": "192.0.2.7"}
# Which fast routes are for everybody, and what they say to strangers.
FOR_ALL = {
    "GET /health": {"status", "timestamp"},
    "GET /live": {"live"},
    "GET /ready": {"ready"},
    "GET /_matrix/push/v1/notify": {"unifiedpush"},
    "GET /static/clarion.js": None,
    "GET /static/clarion-inbox.js": None,
}
# For whoever runs the server: others get 404.
FOR_OPERATORS = {
    "GET /metrics",
    "GET /docs",
    "GET /docs/docs.js",
    "GET /docs/errors",
    "GET /docs/swagger-ui-bundle.js",
    "GET /docs/swagger-ui.css",
    "* /docs/",
    "GET /openapi.json",
}
# For whoever runs the server to try it, if it has SQLite and the demo app.
DEMO = {
    "GET /demo",
    "GET /demo/demo.css",
    "GET /demo/demo.js",
    "POST /demo/token",
    "POST /demo/events",
}
# The framework has them by itself; the front lets nobody through.
NEVER = {"GET /openapi.json/openapi.json", "GET /openapi.json/{path}"}
# By a secret in the request: a provider's token, a signature, or an address that cannot be guessed.
BY_SECRET = {
    "* /1/",
    "* /3/",
    "* /4/",
    "* /callbacks/twilio/",
    "* /push/",
    "* /unsubscribe/",
    "POST /_matrix/push/v1/notify",
}
# By a session; `test_dashboard.py` opens every page as everybody.
BY_SESSION = {"GET /", "GET /admin", "* /admin/"}
REFUSED = {400, 401, 403, 404, 405, 410, 415}
SOCKETS = {b"/v1/gateway", b"/v1/me/socket"}


@pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
async def test_every_path_has_a_rule(tmp_path: Path) -> None:
    async with opened_front(tmp_path) as (front, services):
        served, sockets = await front.list_operations(), services.sockets.paths
    open_ = {*FOR_ALL, *FOR_OPERATORS, *DEMO, *NEVER, *BY_SECRET, *BY_SESSION}
    assert served - set(TABLE) == open_
    assert set(TABLE) - served == set()
    assert sockets == SOCKETS


def test_only_what_is_below_v1_needs_a_credential_and_all_of_it_does() -> None:
    """The front authenticates by this prefix, so no operation may be elsewhere."""
    assert [each for each in TABLE if not each.split()[1].startswith("/v1/")] == []
    open_ = {*FOR_ALL, *FOR_OPERATORS, *DEMO, *NEVER, *BY_SECRET, *BY_SESSION}
    assert [each for each in open_ if each.split()[1].startswith("/v1/")] == []


@pytest.mark.parametrize("operation", FOR_ALL)
def test_what_is_for_all_says_nothing_of_the_server(server: Server, operation: str) -> None:
    answer = server.anyone.get(operation.split()[1], headers=THROUGH_A_PROXY)
    assert answer.status == 200
    allowed = FOR_ALL[operation]
    assert allowed is None or set(answer.json) == allowed


@pytest.mark.parametrize("operation", sorted(FOR_OPERATORS | DEMO))
def test_what_is_for_operators_is_hidden_from_strangers(server: Server, operation: str) -> None:
    method, path = operation.replace("*", "GET").split()
    body: dict[str, Any] | None = None if method == "GET" else {}
    if operation in FOR_OPERATORS:
        assert server.anyone.get(path).status == 200
    # A key of an app is no reason to show it.
    for asker in (server.anyone, server.app):
        assert asker.ask(method, path, body, headers=THROUGH_A_PROXY).status == 404


@pytest.mark.parametrize("path", ["/openapi.json/openapi.json", "/openapi.json/x"])
def test_what_the_framework_has_by_itself_is_not_served(server: Server, path: str) -> None:
    assert server.anyone.get(path).status == 404


@dataclass(frozen=True)
class Device:
    """A device with a message and an endpoint, whose addresses are secrets."""

    token: str
    message_id: str
    endpoint: str


@pytest.fixture(scope="module")
def device(server: Server) -> Device:
    user = InboxUser(server)
    assert server.app.ask("PUT", f"/v1/users/{user.id}", {}).status == 201
    made = user.me.post("/v1/devices", {"platform": "clarion"}).json
    pushed = push(server, made["token"])
    path = f"/v1/devices/{made['device_id']}/endpoints"
    endpoint = user.me.post(path, {"label": "x"}).json["endpoint"]
    return Device(made["token"], pushed.headers["apns-id"], endpoint)


@pytest.fixture(scope="module")
def other(server: Server) -> dict[str, Any]:
    """Another app, with a key of its provider."""
    return server.make_app_by_command()


def sign(other: dict[str, Any], *, key_id: str | None = None) -> str:
    """Return the token of another app's provider, or one that pretends to be ours."""
    key = Path(other["provider_key_path"]).read_bytes()
    claims = {"iss": other["team_id"], "iat": int(time.time())}
    return jwt.encode(claims, key, "ES256", {"kid": key_id or other["key_id"]})


def attacks(server: Server, device: Device) -> dict[str, list[tuple[str, str]]]:
    """Return methods and paths below each prefix that exist, and some that do not."""
    bundle = server.first["app"]["bundle_id"]
    capability = device.endpoint.rpartition("/")[2]
    guesses = ("x", capability[:-1] + ("A" if capability[-1] != "A" else "B"), capability[:-4])
    return {
        "* /3/": [(m, f"/3/device/{device.token}") for m in METHODS],
        "* /4/": [(m, f"/4/broadcasts/apps/{bundle}") for m in METHODS],
        "* /1/": [
            (m, f"/1/apps/{bundle}/{what}")
            for m, what in product(METHODS, ("channels", "all-channels"))
        ],
        "* /callbacks/twilio/": [
            (m, f"/callbacks/twilio/{server.first['app']['id']}/main/{uuid.uuid4()}")
            for m in METHODS
        ],
        "* /push/": [(m, f"/push/{guess}") for m, guess in product(METHODS, guesses)],
        "* /unsubscribe/": [(m, f"/unsubscribe/{'A' * 80}") for m in METHODS],
        "POST /_matrix/push/v1/notify": [(m, "/_matrix/push/v1/notify") for m in METHODS[1:]],
    }


def ask(asker: Asker, method: str, path: str, **headers: str) -> Answer:
    body = None if method in {"GET", "DELETE"} else b"{}"
    more = {"apns-push-type": "alert", "TTL": "60", **headers}
    return asker.ask(method, path, body, headers=more)


def test_every_prefix_is_attacked(server: Server, device: Device) -> None:
    assert set(attacks(server, device)) == BY_SECRET


@pytest.mark.parametrize("prefix", sorted(BY_SECRET))
@pytest.mark.parametrize("who", ["nobody", "an app", "a user", "another provider", "a pretender"])
def test_nothing_is_done_below_a_prefix_without_its_secret(
    server: Server, device: Device, other: dict[str, Any], prefix: str, who: str
) -> None:
    app = server.first["app"]
    bearers: dict[str, str] = {
        "nobody": "",
        "an app": app["api_key"],
        "a user": InboxUser(server).token,
        "another provider": sign(other),
        "a pretender": sign(other, key_id=app["key_id"]),
    }
    headers = {"apns-topic": app["bundle_id"]}
    if bearer := bearers[who]:
        headers["authorization"] = f"bearer {bearer}"
    answers = {
        f"{method} {path}": ask(server.anyone, method, path, **headers).status
        for method, path in attacks(server, device)[prefix]
    }
    assert {each: status for each, status in answers.items() if status not in REFUSED} == {}


def test_the_owner_of_the_secret_can(server: Server, device: Device) -> None:
    """Without this the rest would prove nothing."""
    assert push(server, device.token).status == 200
    path = "/push/" + device.endpoint.rpartition("/")[2]
    sent = server.anyone.post(path, b"x", headers={"TTL": "60", "Content-Type": "text/plain"})
    assert sent.status == 201, sent.body


@pytest.mark.parametrize("path", ["/v1/gateway", "/v1/me/socket"])
@pytest.mark.parametrize(
    "first", ["", "{}", json.dumps({"type": "hello", "token": "x", "secret": "x"})]
)
async def test_a_socket_is_closed_without_a_credential(
    server: Server, path: str, first: str
) -> None:
    """Both take it in the first frame."""
    url = f"ws://127.0.0.1:{server.installation.gateway_port}{path}"
    async with connect(url) as socket:
        await socket.send(first)
        with pytest.raises(ConnectionClosed) as raised:
            await asyncio.wait_for(socket.recv(), 15)
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code in {4400, 4401}


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/keys", "/v1/gateway/", "/metrics"])
async def test_the_gateway_serves_nothing_else(server: Server, path: str) -> None:
    url = f"ws://127.0.0.1:{server.installation.gateway_port}{path}"
    with pytest.raises(InvalidStatus) as raised:
        async with connect(url):
            pass
    assert raised.value.response.status_code == 404
