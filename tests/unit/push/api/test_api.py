"""The HTTP API of the gateway, in process: shapes, rules for fields, who may call."""

import json
from typing import Any
from urllib.parse import unquote

import pytest
from litestar import Litestar
from litestar.di import Provide

from clarion.access.model import AppCaller, Caller, Scope, UserCaller
from clarion.access.port import Vault
from clarion.catalog.catalog import CachedCatalog
from clarion.catalog.model import Category
from clarion.catalog.sql import SqlTemplates, SqlTypes
from clarion.http.bodies import StrictBody
from clarion.http.idempotency import Idempotency
from clarion.http.router import answer_error
from clarion.nodes.memory import MemoryLimits
from clarion.push.api import devices, feedback, history, stats, topics
from clarion.push.registry import Registry
from clarion.push.sql.devices import SqlDevices
from clarion.push.sql.feedback import SqlFeedback
from clarion.push.sql.messages import SqlHistory
from clarion.push.sql.statistics import SqlStatistics
from clarion.push.sql.topics import SqlDeviceTopics
from tests.factories import NOW, make_device
from tests.sandbox import DirectSandbox
from tests.unit.push.phone import Gateway

MODULES = (devices, history, topics, feedback, stats)
APP = AppCaller(app_id="app", key_id="key", scopes=frozenset(Scope))
ANA = UserCaller(app_id="app", user_id="ana", expires_at=NOW + 1)
NOW_TEXT = "2026-01-01T00:00:00.000Z"
TOKEN = "ab" * 32
DEFAULTS = {
    "enabled": True,
    "categories": dict.fromkeys(Category, True),
    "types": {},
    "quiet_hours": None,
}
# Parameters are declared by their names alone, as everywhere in the API.
pytestmark = pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")


class Api:
    """Calls the API as an application or a user."""

    def __init__(self, vault: Vault) -> None:
        self.gateway = Gateway()
        self.caller: Caller = APP
        self.changed: list[str] = []
        engine = self.gateway.store.open
        clock = self.gateway.clock
        parts: dict[str, object] = {
            "registry": Registry(SqlDevices(engine), self.gateway.connections, clock, vault),
            "connections": self.gateway.connections,
            "dispatch": self.gateway.dispatch,
            "history": SqlHistory(engine),
            "topics": SqlDeviceTopics(engine),
            "feedback": SqlFeedback(engine),
            "statistics": SqlStatistics(engine),
            "idempotency": Idempotency(vault, clock),
            "clock": clock,
            "vault": vault,
            "catalog": CachedCatalog(
                SqlTypes(engine), SqlTemplates(engine), clock, DirectSandbox()
            ),
            "on_user_changed": self._note_changed,
            "limits": MemoryLimits(),
        }
        self._framework = Litestar(
            route_handlers=[route for module in MODULES for route in module.ROUTES],
            dependencies={name: provide(part) for name, part in parts.items()},
            exception_handlers={Exception: answer_error},
            logging_config=None,
            openapi_config=None,
            dto=StrictBody,
            return_dto=None,
        )

    async def _note_changed(self, app_id: str, user_id: str) -> None:
        assert app_id == "app"
        self.changed.append(user_id)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return the status and the body of the response."""
        sent: list[dict[str, Any]] = []

        async def receive() -> Any:
            data = b"" if body is None else json.dumps(body).encode()
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope: Any = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "server": ("127.0.0.1", 8080),
            "clarion.caller": self.caller,
        }
        await self._framework(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], json.loads(content) if content else None

    async def register(self, **changes: Any) -> str:
        _, device = await self.ask("POST", "/v1/devices", {"platform": "clarion"} | changes)
        return str(device["device_id"])


def provide(part: object) -> Provide:
    return Provide(lambda: part, sync_to_thread=False)


@pytest.fixture
def api(vault: Vault) -> Api:
    return Api(vault)


async def test_a_device_is_registered_once_and_shown(api: Api) -> None:
    given = {"platform": "apns", "token": TOKEN, "user_id": "ana", "language": "pt-br"}
    status, device = await api.ask("POST", "/v1/devices", given)
    assert (status, device["is_new"], device["token"]) == (201, True, TOKEN)
    assert device["secret"]
    again = {"device_id": device["device_id"], "token": TOKEN, "is_new": False}
    assert await api.ask("POST", "/v1/devices", given) == (200, again)
    status, view = await api.ask("GET", f"/v1/devices/{device['device_id']}")
    assert (status, view) == (
        200,
        {
            "device_id": device["device_id"],
            "app_id": "app",
            "platform": "ios",
            "user_id": "ana",
            "model": None,
            "os_version": None,
            "app_version": None,
            "language": "pt-BR",
            "timezone": None,
            "label": None,
            "is_valid": True,
            "created_at": NOW_TEXT,
            "last_seen_at": NOW_TEXT,
            "invalidated_at": None,
            "invalidation_reason": None,
            "preferences": DEFAULTS,
            "state": {
                "online": False,
                "foreground": False,
                "enabled": True,
                "last_active_at": NOW_TEXT,
            },
        },
    )


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        (
            {"user_id": "a b", "language": "?", "timezone": "Mars/Base"},
            ["user_id", "language", "timezone"],
        ),
        (
            {"platform": "pager", "token": "short", "app_id": "other"},
            ["app_id", "platform", "token"],
        ),
        ({"colour": "red"}, ["colour"]),
        ({"model": ""}, ["model"]),
    ],
)
async def test_what_is_wrong_with_a_device_is_reported_by_field(
    api: Api, changes: dict[str, str], faults: list[str]
) -> None:
    status, problem = await api.ask("POST", "/v1/devices", {"platform": "ios"} | changes)
    assert (status, [each["field"] for each in problem["errors"]]) == (422, faults)


async def test_the_same_idempotency_key_registers_one_device(api: Api) -> None:
    answers = [
        await api.ask("POST", "/v1/devices", {"platform": "ios"}, **{"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert answers[0] == answers[1]


async def test_a_device_is_updated_and_its_secret_renewed(api: Api) -> None:
    device_id = await api.register(model="Pixel 9", label="mine")
    path = f"/v1/devices/{device_id}"
    _, view = await api.ask("PATCH", path, {"timezone": "Europe/Berlin", "model": "Pixel 10"})
    assert (view["timezone"], view["model"], view["label"]) == ("Europe/Berlin", "Pixel 10", "mine")
    status, renewed = await api.ask("POST", f"{path}/secret")
    assert (status, renewed["device_id"]) == (200, device_id)


async def test_an_invalidated_device_is_in_the_feedback(api: Api) -> None:
    device_id = await api.register()
    _, view = await api.ask("POST", f"/v1/devices/{device_id}/invalidate", {"reason": "revoked"})
    assert (view["is_valid"], view["invalidated_at"]) == (False, NOW_TEXT)
    assert view["invalidation_reason"] == "revoked"
    _, page = await api.ask("GET", "/v1/feedback")
    (entry,) = page["items"]
    assert len(entry.pop("token_hash")) == 64
    assert entry == {"app_id": "app", "reason": "revoked", "timestamp": NOW_TEXT}


async def test_a_deleted_device_is_gone(api: Api) -> None:
    path = f"/v1/devices/{await api.register()}"
    assert await api.ask("DELETE", path) == (204, None)
    status, problem = await api.ask("GET", path)
    assert (status, problem["code"]) == (404, "not_found")


async def test_the_devices_of_a_user_are_listed(api: Api) -> None:
    device_id = await api.register(user_id="ana")
    await api.register(user_id="bob")
    _, page = await api.ask("GET", "/v1/users/ana/devices")
    assert [each["device_id"] for each in page["items"]] == [device_id]
    api.caller = ANA
    assert await api.ask("GET", "/v1/me/devices") == (200, page)
    assert (await api.ask("GET", "/v1/users/ana/devices"))[0] == 403


async def test_a_user_registers_and_sees_own_devices_only(api: Api) -> None:
    of_bob = await api.register(user_id="bob")
    api.caller = ANA
    own = await api.register()
    assert (await api.ask("GET", f"/v1/devices/{own}"))[1]["user_id"] == "ana"
    assert (await api.ask("GET", f"/v1/devices/{of_bob}"))[0] == 404
    status, problem = await api.ask("POST", "/v1/devices", {"platform": "ios", "user_id": "bob"})
    assert (status, problem["code"]) == (403, "forbidden")


async def test_a_subscribed_device_gets_what_is_published(api: Api) -> None:
    device_id = await api.register()
    path = f"/v1/devices/{device_id}/topics/team:42"
    assert await api.ask("PUT", path) == (204, None)
    message = {"payload": {"a": 1}, "ttl_s": 60}
    status, accepted = await api.ask("POST", "/v1/topics/team:42/messages", message)
    assert status == 202
    assert (accepted["topic"], accepted["created_at"]) == ("team:42", NOW_TEXT)
    _, page = await api.ask("GET", "/v1/topics")
    topic = {"topic": "team:42", "open": False, "created_at": NOW_TEXT}
    assert page == {"items": [topic], "next": None}
    _, counted = await api.ask("GET", "/v1/stats")
    assert counted["topics"] == [{"topic": "team:42", "subscribers": 1}]
    assert counted["devices"] == {"total": 1, "valid": 1, "invalid": 0, "online": 0}
    assert await api.ask("DELETE", path) == (204, None)


async def test_the_statistics_count_the_devices_of_the_callers_app_alone(api: Api) -> None:
    await api.gateway.connect()
    for _ in range(2):
        await api.gateway.connect(make_device("other"))
    assert (await api.ask("GET", "/v1/stats"))[1]["devices"]["online"] == 1
    api.caller = AppCaller(app_id="third", key_id="key", scopes=frozenset(Scope))
    assert (await api.ask("GET", "/v1/stats"))[1]["devices"]["online"] == 0


@pytest.mark.parametrize(
    ("topic", "changes", "field"),
    [
        ("a b", {}, "topic"),
        ("news", {"payload": {}}, "payload"),
        ("news", {"ttl_s": 60, "expires_at": "2026-01-02T00:00:00Z"}, "expires_at"),
        ("news", {"expires_at": "2025-12-31T00:00:00Z"}, "expires_at"),
    ],
)
async def test_what_is_wrong_with_a_message_is_reported_by_field(
    api: Api, topic: str, changes: dict[str, Any], field: str
) -> None:
    message = {"payload": {"a": 1}} | changes
    status, problem = await api.ask("POST", f"/v1/topics/{topic}/messages", message)
    assert (status, [each["field"] for each in problem["errors"]]) == (422, [field])


async def test_the_messages_of_a_device_are_listed(api: Api) -> None:
    await api.gateway.push("m1", collapse_id="c")
    path = f"/v1/devices/{api.gateway.device.id}/messages"
    _, page = await api.ask("GET", path)
    expected = {
        "id": "m1",
        "priority": 10,
        "collapse_id": "c",
        "status": "queued",
        "reason": "device_offline",
        "created_at": NOW_TEXT,
        "updated_at": NOW_TEXT,
        "expires_at": "2026-01-02T00:00:00.000Z",
        "payload": {"aps": {}},
    }
    assert page == {"items": [expected], "next": None}
    assert await api.ask("GET", f"{path}/m1") == (200, expected)
    assert (await api.ask("GET", f"{path}/m2"))[0] == 404
