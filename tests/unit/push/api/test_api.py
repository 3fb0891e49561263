"""The HTTP API of the gateway, in process: shapes, rules for fields, who may call."""

import json
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest
from litestar import Litestar
from litestar.di import Provide

from clarion.access.model import AppCaller, Caller, Scope, UserCaller
from clarion.access.vault import Vault
from clarion.catalog.catalog import Catalog
from clarion.catalog.model import Category
from clarion.catalog.sql import Categories, Templates, Types
from clarion.clock import to_rfc3339
from clarion.errors import InternalError
from clarion.http.idempotency import Idempotency
from clarion.http.router import answer_error
from clarion.http.strict_body import StrictBody
from clarion.nodes.memory import MemoryLimits
from clarion.push.api import devices, feedback, history, stats, topics
from clarion.push.model import Device, DevicePreferences
from clarion.push.registry import Registry
from clarion.push.sql.devices import Devices
from clarion.push.sql.feedback import FeedbackList
from clarion.push.sql.messages import SqlHistory
from clarion.push.sql.statistics import Statistics
from clarion.push.sql.topics import Topics
from tests.factories import NOW, FixedClock, make_device
from tests.sandbox import DirectSandbox
from tests.unit.push.phone import Gateway

MODULES = (devices, history, topics, feedback, stats)
APP = AppCaller(app_id="app", key_id="key", scopes=frozenset(Scope))
ANA = UserCaller(app_id="app", user_id="ana", expires_at=NOW + 1)
NOW_TEXT = "2026-01-01T00:00:00.000Z"
TOKEN = "ab" * 32
SUBSCRIPTION: dict[str, Any] = {
    "endpoint": "https://push.example.com/send/Abc-_1?x=%2F",
    "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcx"
        "aOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    },
}
DEFAULTS = {
    "enabled": True,
    "categories": dict.fromkeys(Category, True),
    "types": {},
    "quiet_hours": None,
}
# Parameters are declared by their names alone, as everywhere in the API.
pytestmark = pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")


async def everybody_is_present(_app_id: str, _user_id: str, **_more: bool) -> None:
    pass


class Api:
    """Calls the API as an application or a user."""

    def __init__(self, vault: Vault) -> None:
        self.gateway = Gateway()
        self.caller: Caller = APP
        self.changed: list[str] = []
        engine = self.gateway.store.open
        clock = self.gateway.clock
        parts: dict[str, object] = {
            "registry": Registry(Devices(engine), self.gateway.connections, clock, vault),
            "connections": self.gateway.connections,
            "dispatch": self.gateway.dispatch,
            "history": SqlHistory(engine),
            "topics": Topics(engine),
            "feedback": FeedbackList(engine),
            "statistics": Statistics(engine),
            "idempotency": Idempotency(vault, clock),
            "clock": clock,
            "vault": vault,
            "catalog": Catalog(
                Types(engine),
                Categories(engine),
                Templates(engine),
                clock,
                DirectSandbox(),
            ),
            "on_user_changed": self._note_changed,
            "check_present": everybody_is_present,
            "limits": MemoryLimits(FixedClock()),
        }
        self._framework = Litestar(
            route_handlers=[route for module in MODULES for route in module.ROUTES],
            dependencies={name: provide(part) for name, part in parts.items()},
            exception_handlers={Exception: partial(answer_error, {})},
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

    async def device(self, device_id: str) -> Device:
        """Return the device as it is stored."""
        device = await Devices(self.gateway.store.open).get("app", device_id)
        assert device is not None
        return device

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


async def test_a_connected_device_was_active_when_it_last_sent_something(api: Api) -> None:
    """The connection counts by the monotonic clock, which begins anywhere."""
    clock, device_id = api.gateway.clock, await api.register()
    clock.step(NOW)
    phone = await api.gateway.connect(await api.device(device_id))
    phone.session.received_at = clock.monotonic()
    clock.advance(5_000)
    _, view = await api.ask("GET", f"/v1/devices/{device_id}")
    assert view["state"]["online"]
    assert view["state"]["last_active_at"] == to_rfc3339(clock.now() - 5_000)


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


async def test_a_foreign_address_is_sealed_and_never_shown(api: Api, vault: Vault) -> None:
    given = {"platform": "android", "token": "fcm:PLANTED_token", "user_id": "ana"}
    status, made = await api.ask("POST", "/v1/devices", given)
    assert status == 201
    device = await api.device(made["device_id"])
    assert device.address is not None
    assert vault.open(device.address, device.address_context) == b"fcm:PLANTED_token"
    shown = [
        await api.ask("GET", f"/v1/devices/{device.id}"),
        await api.ask("GET", "/v1/users/ana/devices"),
        await api.ask("PATCH", f"/v1/devices/{device.id}", {"label": "x"}),
    ]
    assert "PLANTED" not in str(shown)
    # The token of another device, or of another app, does not open it.
    for context in (f"device/other/{device.token_hash.hex()}", f"device/app/{'00' * 32}"):
        with pytest.raises(InternalError):
            vault.open(device.address, context)


async def test_a_browser_registers_its_subscription_as_it_is(api: Api, vault: Vault) -> None:
    given = {"platform": "web", "subscription": {**SUBSCRIPTION, "expirationTime": None}}
    status, made = await api.ask("POST", "/v1/devices", given)
    assert (status, sorted(made)) == (201, ["device_id", "is_new", "secret"])
    device = await api.device(made["device_id"])
    assert json.loads(vault.open(device.address or b"", device.address_context)) == SUBSCRIPTION
    keys = {**SUBSCRIPTION["keys"], "auth": "AAAAAAAAAAAAAAAAAAAAAA"}
    given = {"platform": "web", "subscription": {**SUBSCRIPTION, "keys": keys}}
    status, again = await api.ask("POST", "/v1/devices", given)
    assert (status, again) == (200, {"device_id": device.id, "is_new": False})
    device = await api.device(device.id)
    assert json.loads(vault.open(device.address or b"", device.address_context))["keys"] == keys


@pytest.mark.parametrize("platform", ["ios", "android", "web", "clarion"])
async def test_a_device_without_an_address_is_one_of_our_own_gateway(
    api: Api, platform: str
) -> None:
    _, made = await api.ask("POST", "/v1/devices", {"platform": platform})
    assert len(made["token"]) == 64
    # It registers at each start, with the token that it was given.
    given = {"platform": platform, "token": made["token"]}
    assert (await api.ask("POST", "/v1/devices", given))[0] == 200
    assert (await api.device(made["device_id"])).address is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"token": TOKEN}, "token"),
        ({"platform": "ios"}, "subscription"),
        ({"platform": "clarion"}, "subscription"),
        ({"endpoint": "http://push.example.com/x"}, "subscription.endpoint"),
        ({"endpoint": "https:///x"}, "subscription.endpoint"),
        ({"endpoint": "https://user@push.example.com/x"}, "subscription.endpoint"),
        ({"endpoint": "https://push.example.com:99999/x"}, "subscription.endpoint"),
        ({"endpoint": "https://[::1/x"}, "subscription.endpoint"),
        ({"endpoint": "https://push.example.com/x y"}, "subscription.endpoint"),
        ({"endpoint": "https://push.example.com/\r\nHost: x"}, "subscription.endpoint"),
        ({"endpoint": "https://push.example.com/" + "x" * 2000}, "subscription.endpoint"),
        ({"p256dh": SUBSCRIPTION["keys"]["p256dh"][:-2]}, "subscription.keys.p256dh"),
        ({"p256dh": "BA" + "A" * 85}, "subscription.keys.p256dh"),  # not on the curve
        ({"p256dh": "A" * 100_000}, "subscription.keys.p256dh"),
        ({"p256dh": "+/" * 43 + "="}, "subscription.keys.p256dh"),
        ({"auth": ""}, "subscription.keys.auth"),
        ({"auth": "AAAAAAAAAAAAAAAAAAAAAAAA"}, "subscription.keys.auth"),
        ({"auth": "A"}, "subscription.keys.auth"),
    ],
)
async def test_what_is_wrong_with_a_subscription_is_reported_by_field(
    api: Api, changes: dict[str, str], field: str
) -> None:
    keys = {name: changes.pop(name, value) for name, value in SUBSCRIPTION["keys"].items()}
    endpoint = changes.pop("endpoint", SUBSCRIPTION["endpoint"])
    given = {"platform": "web", "subscription": {"endpoint": endpoint, "keys": keys}} | changes
    status, problem = await api.ask("POST", "/v1/devices", given)
    assert (status, [each["field"] for each in problem["errors"]]) == (422, [field])


async def test_preferences_of_a_device_are_set_merged_and_reset(api: Api) -> None:
    quiet = [hour < 7 for hour in range(24)]
    device_id = await api.register(
        user_id="ana", preferences={"categories": {"news": False}, "quiet_hours": quiet}
    )
    path = f"/v1/devices/{device_id}"

    async def change(**preferences: Any) -> Any:
        _, view = await api.ask("PATCH", path, {"preferences": preferences})
        return view["preferences"]

    _, view = await api.ask("GET", path)
    news_off = DEFAULTS["categories"] | {"news": False}  # type: ignore[operator]
    expected = {**DEFAULTS, "categories": news_off, "quiet_hours": quiet}
    assert view["preferences"] == expected
    expected |= {"enabled": False, "types": {"POST_LIKE": False}}
    changed = {"enabled": False, "types": {"POST_LIKE": False, "POST_COMMENT": True}}
    assert await change(**changed) == expected
    expected |= {"categories": DEFAULTS["categories"], "quiet_hours": None}
    assert await change(categories={"news": None}, quiet_hours=None) == expected
    assert await change(types={"POST_LIKE": True}, enabled=True) == DEFAULTS
    await change(enabled=False)
    _, view = await api.ask("PATCH", path, {"preferences": None})
    assert view["preferences"] == DEFAULTS
    assert (await api.device(device_id)).preferences == DevicePreferences()


async def test_a_registration_sets_preferences_and_leaves_others_as_they_are(api: Api) -> None:
    given = {"platform": "clarion", "token": TOKEN}
    device_id = await api.register(**given, preferences={"enabled": False})
    await api.ask("POST", "/v1/devices", given)
    assert (await api.device(device_id)).preferences == DevicePreferences(enabled=False)
    await api.ask("POST", "/v1/devices", given | {"preferences": {"types": {"POST_LIKE": False}}})
    both = DevicePreferences(enabled=False, types={"POST_LIKE": False})
    assert (await api.device(device_id)).preferences == both


@pytest.mark.parametrize(
    ("preferences", "field"),
    [
        ({"quiet_hours": [True] * 23}, "preferences.quiet_hours"),
        ({"quiet_hours": [1] * 24}, "preferences.quiet_hours"),
        ({"categories": {"weather": False}}, "preferences.categories.weather"),
        ({"types": {"NOTHING": False}}, "preferences.types.NOTHING"),
        ({"enabled": "no"}, "preferences.enabled"),
        ({"colour": "red"}, "preferences.colour"),
    ],
)
async def test_what_is_wrong_with_preferences_is_reported_by_field(
    api: Api, preferences: dict[str, Any], field: str
) -> None:
    path = f"/v1/devices/{await api.register()}"
    for ask in (
        ("PATCH", path, {"preferences": preferences}),
        ("POST", "/v1/devices", {"platform": "clarion", "preferences": preferences}),
    ):
        status, problem = await api.ask(*ask)
        assert (status, [each["field"].partition("[")[0] for each in problem["errors"]]) == (
            422,
            [field],
        )


async def test_users_set_the_preferences_of_their_own_devices(api: Api) -> None:
    of_bob = await api.register(user_id="bob")
    own = await api.register(user_id="ana")
    api.caller = ANA
    off = {"preferences": {"enabled": False}}
    assert (await api.ask("PATCH", f"/v1/devices/{own}", off))[0] == 200
    assert (await api.ask("PATCH", f"/v1/devices/{of_bob}", off))[0] == 404


async def test_what_waits_is_decided_again_when_a_device_changes(api: Api) -> None:
    given = {"platform": "clarion", "token": TOKEN, "user_id": "ana"}
    device_id = await api.register(**given)
    path = f"/v1/devices/{device_id}"

    async def changed_by(*ask: Any) -> list[str]:
        api.changed.clear()
        assert (await api.ask(*ask))[0] in (200, 201, 204)
        return sorted(api.changed)

    assert await changed_by("POST", "/v1/devices", given) == []  # as at each start of a client
    assert await changed_by("PATCH", path, {"label": "mine"}) == []
    assert await changed_by("PATCH", path, {"timezone": "Asia/Tokyo"}) == ["ana"]
    assert await changed_by("PATCH", path, {"preferences": {"enabled": False}}) == ["ana"]
    assert await changed_by("POST", "/v1/devices", given | {"timezone": "UTC"}) == ["ana"]
    assert await changed_by("PATCH", path, {"user_id": "bob"}) == ["ana", "bob"]
    assert await changed_by("POST", f"{path}/invalidate", {"reason": "revoked"}) == ["bob"]
    assert await changed_by("POST", f"{path}/invalidate", {"reason": "revoked"}) == []
    assert await changed_by("POST", "/v1/devices", given) == ["ana", "bob"]
    assert await changed_by("DELETE", path) == ["ana"]
    assert await changed_by("POST", "/v1/devices", {"platform": "clarion"}) == []


async def test_a_registration_says_which_device_it_revoked(api: Api) -> None:
    first, *_ = [await api.register(user_id="ana", token=f"{n}" * 64) for n in range(3)]
    api.gateway.clock.advance(1)
    given = {"platform": "clarion", "user_id": "ana"}
    _, fourth = await api.ask("POST", "/v1/devices", given)
    assert fourth["revoked_device_id"] == first
    again = given | {"token": fourth["token"]}
    assert "revoked_device_id" not in (await api.ask("POST", "/v1/devices", again))[1]
