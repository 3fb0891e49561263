"""Every operation of the API by every caller that must not use it, or not on this object.

The operations are those of `/openapi.json`: one without an entry in the table fails.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import pytest

from clarion.access.model import SCOPES_OF, Role, Scope
from tests.e2e.administrators import PASSWORD, Browser, make_administrator, sign_in
from tests.e2e.asking import Answer
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.provider import push
from tests.e2e.sending import draft, inbox, make_type, send_and_wait, set_preferences


class Who(Enum):
    """Who may use an operation."""

    APP = "an API key with the scope"
    OWNER = "an API key with the scope, or the user whom the object belongs to"
    USER = "a user, on what is their own"
    ANYONE = "an API key, a user or an administrator, with an answer about themselves"
    ADMIN = "an administrator, with the role for all apps if one is named"
    APP_ADMIN = "an administrator, with the role for the app of the path"
    STRANGER = "whoever is about to sign in"


@dataclass(frozen=True)
class Rule:
    who: Who
    scope: Scope | None = None
    body: dict[str, Any] | None = field(default=None, hash=False)
    # An app has this name of its own, whatever others have: it is created, or not changed.
    is_own_name: bool = False
    is_stream: bool = False
    # Of administrators: the role for all apps, and whether an admin API key is enough.
    role: Role | None = None
    is_for_keys: bool = False


def app(scope: Scope, body: dict[str, Any] | None = None, *, is_own_name: bool = False) -> Rule:
    return Rule(Who.APP, scope, body, is_own_name=is_own_name)


def owner(scope: Scope, body: dict[str, Any] | None = None) -> Rule:
    return Rule(Who.OWNER, scope, body)


def admin(
    role: Role | None = None, body: dict[str, Any] | None = None, *, is_for_keys: bool = False
) -> Rule:
    return Rule(Who.ADMIN, body=body, role=role, is_for_keys=is_for_keys)


def app_admin(role: Role, body: dict[str, Any] | None = None) -> Rule:
    return Rule(Who.APP_ADMIN, body=body, role=role)


ME = Rule(Who.USER)
EVENT = {"type": "{type_name}", "recipient": {"user_id": "{user_id}"}, "data": {"order": "1"}}
PROVIDER = {
    "kind": "webhook",
    "settings": {"url": "https://hooks.example.com/own"},
    "sandbox": True,
}
FILTER = {"filter": "tag = 'vip'"}
# In an order in which an entitled caller can use them all on one set of objects.
TABLE: dict[str, Rule] = {
    "GET /v1/caller": Rule(Who.ANYONE),
    "GET /v1/keys": app(Scope.KEYS_READ),
    "POST /v1/keys": app(Scope.KEYS_WRITE, {"label": "new", "scopes": ["stats:read"]}),
    "POST /v1/keys/{key_id}/rotate": app(Scope.KEYS_WRITE, {"overlap_s": 60}),
    "DELETE /v1/keys/{key_id}": app(Scope.KEYS_WRITE),
    "GET /v1/app": app(Scope.KEYS_READ),
    "PATCH /v1/app": app(Scope.KEYS_WRITE, {"allowed_origins": []}),
    "GET /v1/apps": admin(is_for_keys=True),
    "POST /v1/apps": admin(
        Role.ADMIN, {"name": "New", "bundle_id": "{bundle_id}"}, is_for_keys=True
    ),
    "GET /v1/apps/{app_id}": app_admin(Role.VIEWER),
    "PATCH /v1/apps/{app_id}": app_admin(Role.ADMIN, {"name": "New"}),
    "GET /v1/apps/{app_id}/user-keys": app_admin(Role.VIEWER),
    "POST /v1/apps/{app_id}/user-keys": app_admin(Role.ADMIN, {"algorithm": "HS256"}),
    "POST /v1/apps/{app_id}/user-keys/{kid}/rotate": app_admin(Role.ADMIN, {"overlap_s": 60}),
    "DELETE /v1/apps/{app_id}/user-keys/{kid}": app_admin(Role.ADMIN),
    "GET /v1/apps/{app_id}/provider-keys": app_admin(Role.VIEWER),
    "POST /v1/apps/{app_id}/provider-keys": app_admin(Role.ADMIN, {}),
    "POST /v1/apps/{app_id}/provider-keys/{key_id}/rotate": app_admin(Role.ADMIN, {}),
    "DELETE /v1/apps/{app_id}/provider-keys/{key_id}": app_admin(Role.ADMIN),
    "DELETE /v1/apps/{app_id}": app_admin(Role.ADMIN),
    "POST /v1/me/tickets": ME,
    "GET /v1/users/{user_id}": app(Scope.USERS_READ),
    "GET /v1/users": app(Scope.USERS_READ, is_own_name=True),
    "POST /v1/users/batch": app(
        Scope.USERS_WRITE, {"users": [{"id": "{user_id}", "name": "new"}]}, is_own_name=True
    ),
    "PUT /v1/users/{user_id}": app(Scope.USERS_WRITE, {"name": "new"}, is_own_name=True),
    "PATCH /v1/users/{user_id}": app(Scope.USERS_WRITE, {"name": "new"}),
    "GET /v1/users/{user_id}/export": app(Scope.USERS_READ),
    "GET /v1/me/export": ME,
    "GET /v1/erasures": app(Scope.USERS_READ),
    "GET /v1/erasures/{receipt_id}": app(Scope.USERS_READ),
    "GET /v1/users/{user_id}/preferences": app(Scope.USERS_READ),
    "PUT /v1/users/{user_id}/preferences": app(Scope.USERS_WRITE, {"language": "de"}),
    "PATCH /v1/users/{user_id}/preferences": app(Scope.USERS_WRITE, {"language": "de"}),
    "GET /v1/me/preferences": ME,
    "PUT /v1/me/preferences": Rule(Who.USER, body={"language": "de"}),
    "PATCH /v1/me/preferences": Rule(Who.USER, body={"language": "de"}),
    "PUT /v1/users/{user_id}/topics/{topic}": app(Scope.USERS_WRITE),
    "GET /v1/users/{user_id}/topics": app(Scope.USERS_READ),
    "DELETE /v1/users/{user_id}/topics/{topic}": app(Scope.USERS_WRITE, is_own_name=True),
    "GET /v1/segments": app(Scope.USERS_READ),
    "GET /v1/segments/{name}": app(Scope.USERS_READ),
    "PUT /v1/segments/{name}": app(Scope.USERS_WRITE, FILTER, is_own_name=True),
    "POST /v1/segments/{name}/count": app(Scope.USERS_READ),
    "POST /v1/segments/count": app(Scope.USERS_READ, FILTER),
    "DELETE /v1/segments/{name}": app(Scope.USERS_WRITE),
    "GET /v1/categories": owner(Scope.TYPES_READ),
    "PUT /v1/categories/{name}": app(Scope.TYPES_WRITE, {"title": "new"}, is_own_name=True),
    "DELETE /v1/categories/{name}": app(Scope.TYPES_WRITE, is_own_name=True),
    "GET /v1/types": app(Scope.TYPES_READ),
    "GET /v1/types/{type_name}": app(Scope.TYPES_READ),
    "PUT /v1/types/{type_name}": app(Scope.TYPES_WRITE, {}, is_own_name=True),
    "GET /v1/types/{type_name}/templates": app(Scope.TYPES_READ),
    "GET /v1/types/{type_name}/templates/{channel}": app(Scope.TYPES_READ),
    "PUT /v1/types/{type_name}/templates/{channel}": app(
        Scope.TYPES_WRITE, {"body": "new", "variables": []}
    ),
    "GET /v1/types/{type_name}/templates/{channel}/versions": app(Scope.TYPES_READ),
    "POST /v1/types/{type_name}/templates/{channel}/preview": app(
        Scope.TYPES_READ, {"data": {"order": "1"}}
    ),
    "POST /v1/events": app(Scope.EVENTS_WRITE, EVENT),
    "POST /v1/events/batch": app(Scope.EVENTS_WRITE, {"events": [EVENT]}, is_own_name=True),
    "POST /v1/explain": app(Scope.EVENTS_READ, EVENT),
    "GET /v1/events": app(Scope.EVENTS_READ),
    "GET /v1/events/{event_id}": app(Scope.EVENTS_READ),
    "GET /v1/events/{event_id}/notifications": app(Scope.NOTIFICATIONS_READ, is_own_name=True),
    "POST /v1/events/{event_id}/replay": app(Scope.EVENTS_WRITE),
    "DELETE /v1/events/{event_id}": app(Scope.EVENTS_WRITE),
    "GET /v1/notifications": app(Scope.NOTIFICATIONS_READ, is_own_name=True),
    "GET /v1/notifications/{notification_id}": app(Scope.NOTIFICATIONS_READ),
    "GET /v1/notifications/{notification_id}/timeline": app(Scope.NOTIFICATIONS_READ),
    "GET /v1/notifications/{notification_id}/deliveries": app(Scope.NOTIFICATIONS_READ),
    "GET /v1/users/{user_id}/waiting": app(Scope.NOTIFICATIONS_READ, is_own_name=True),
    "GET /v1/me/waiting": ME,
    "GET /v1/users/{user_id}/notifications": app(Scope.NOTIFICATIONS_READ, is_own_name=True),
    "GET /v1/me/notifications": ME,
    "GET /v1/users/{user_id}/unread-count": app(Scope.NOTIFICATIONS_READ, is_own_name=True),
    "GET /v1/me/unread-count": ME,
    "GET /v1/me/stream": Rule(Who.USER, is_stream=True),
    **{
        f"POST /v1/{whose}/notifications/{{notification_id}}/{action}": rule
        for action in ("read", "unread", "click", "dismiss")
        for whose, rule in (
            ("users/{user_id}", app(Scope.NOTIFICATIONS_WRITE)),
            ("me", ME),
        )
    },
    "POST /v1/users/{user_id}/notifications/read-all": app(
        Scope.NOTIFICATIONS_WRITE, is_own_name=True
    ),
    "POST /v1/me/notifications/read-all": ME,
    "POST /v1/devices": owner(Scope.DEVICES_WRITE, {"platform": "clarion"}),
    "GET /v1/devices": app(Scope.DEVICES_READ, is_own_name=True),
    "GET /v1/devices/{device_id}": owner(Scope.DEVICES_READ),
    "PATCH /v1/devices/{device_id}": owner(Scope.DEVICES_WRITE, {"label": "new"}),
    "POST /v1/devices/{device_id}/secret": owner(Scope.DEVICES_WRITE),
    "POST /v1/devices/{device_id}/endpoints": owner(Scope.DEVICES_WRITE, {"label": "new"}),
    "GET /v1/devices/{device_id}/endpoints": owner(Scope.DEVICES_READ),
    "DELETE /v1/devices/{device_id}/endpoints/{endpoint_id}": owner(Scope.DEVICES_WRITE),
    "GET /v1/users/{user_id}/devices": app(Scope.DEVICES_READ, is_own_name=True),
    "GET /v1/me/devices": ME,
    "GET /v1/devices/{device_id}/messages": app(Scope.DEVICES_READ, is_own_name=True),
    "GET /v1/devices/{device_id}/messages/{message_id}": app(Scope.DEVICES_READ),
    "GET /v1/topics": app(Scope.TOPICS_READ),
    "PUT /v1/topics/{topic}": app(Scope.TOPICS_WRITE, {"open": True}, is_own_name=True),
    "POST /v1/topics/{topic}/messages": app(
        Scope.TOPICS_WRITE, {"payload": {"a": 1}}, is_own_name=True
    ),
    # Needs `events:write`, too.
    **{
        f"{method} /v1/publish/{{topic}}": app(
            Scope.TOPICS_WRITE, {"message": "new"}, is_own_name=True
        )
        for method in ("POST", "PUT")
    },
    # It is open by now.
    "PUT /v1/me/topics/{topic}": ME,
    "GET /v1/me/topics": ME,
    "DELETE /v1/me/topics/{topic}": ME,
    "PUT /v1/devices/{device_id}/topics/{topic}": owner(Scope.TOPICS_WRITE),
    "DELETE /v1/devices/{device_id}/topics/{topic}": owner(Scope.TOPICS_WRITE),
    "GET /v1/providers": app(Scope.PROVIDERS_READ),
    "PUT /v1/providers/{channel}/{name}": app(Scope.PROVIDERS_WRITE, PROVIDER, is_own_name=True),
    "GET /v1/providers/{channel}/{name}": app(Scope.PROVIDERS_READ),
    "POST /v1/providers/{channel}/{name}/test": app(Scope.PROVIDERS_WRITE, {}),
    "GET /v1/feedback": app(Scope.DEVICES_READ),
    "GET /v1/live": app(Scope.STATS_READ, is_own_name=True),
    "GET /v1/stats": app(Scope.STATS_READ),
    "GET /v1/analytics": app(Scope.STATS_READ),
    "GET /v1/audit": app(Scope.AUDIT_READ),
    "GET /v1/audit/verification": admin(Role.VIEWER, is_for_keys=True),
    "POST /v1/devices/{device_id}/invalidate": owner(Scope.DEVICES_WRITE, {"reason": "revoked"}),
    "DELETE /v1/devices/{device_id}": owner(Scope.DEVICES_WRITE),
    "DELETE /v1/providers/{channel}/{name}": app(Scope.PROVIDERS_WRITE),
    "DELETE /v1/types/{type_name}": app(Scope.TYPES_WRITE, is_own_name=True),
    "DELETE /v1/users/{user_id}": app(Scope.USERS_WRITE),
    "POST /v1/users/{user_id}/restore": app(Scope.USERS_WRITE),
    "POST /v1/admin/session": Rule(
        Who.STRANGER, body={"username": "{username}", "password": "wrong"}
    ),
    "POST /v1/admin/setup": Rule(Who.STRANGER, body={"token": "wrong", "password": "wrong"}),
    "GET /v1/admin/session": admin(is_for_keys=True),
    "POST /v1/admin/session/totp": admin(body={"code": "000000"}),
    "POST /v1/admin/session/confirm": admin(body={"password": PASSWORD}),
    "GET /v1/admin/administrators": admin(Role.ADMIN, is_for_keys=True),
    "POST /v1/admin/administrators": admin(Role.ADMIN, {"username": "{new_username}"}),
    "GET /v1/admin/administrators/{administrator_id}": admin(Role.ADMIN, is_for_keys=True),
    "PATCH /v1/admin/administrators/{administrator_id}": admin(Role.ADMIN, {"role": "editor"}),
    "POST /v1/admin/administrators/{administrator_id}/reset": admin(Role.ADMIN, {}),
    "DELETE /v1/admin/administrators/{administrator_id}": admin(Role.ADMIN),
    "GET /v1/admin/keys": admin(),
    "POST /v1/admin/keys": admin(body={"label": "new", "role": "viewer"}),
    "DELETE /v1/admin/keys/{key_id}": admin(),
    "POST /v1/admin/recovery-codes": admin(),
    "POST /v1/admin/totp/confirm": admin(body={"code": "000000"}),
    "POST /v1/admin/totp": admin(),
    "DELETE /v1/admin/totp": admin(),
    "GET /v1/admin/sessions": admin(),
    "GET /v1/admin/account-changes": admin(),
    "DELETE /v1/admin/sessions/{session_id}": admin(),
    "PUT /v1/admin/password": admin(
        body={"current_password": PASSWORD, "password": "another good one"}
    ),
    "DELETE /v1/admin/sessions": admin(),
    "DELETE /v1/admin/session": admin(),
}
FOR_ADMINS = {Who.ADMIN, Who.APP_ADMIN}
# What the header `Clarion-App` is for.
OF_APPS = {each: rule for each, rule in TABLE.items() if rule.who in (Who.APP, Who.OWNER)}
OF_ADMINS = {each: rule for each, rule in TABLE.items() if rule.who is Who.ADMIN}
SIGN_IN = {each for each, rule in TABLE.items() if rule.who is Who.STRANGER}
# They finish or end a sign-in, and are open to those who have not finished it.
OF_SIGN_IN = {"GET /v1/admin/session", "POST /v1/admin/session/totp", "DELETE /v1/admin/session"}
LAST = re.compile(rb'"last_(seen|used)_at":[^,}]*')
# The state of the event does not allow them; the caller is entitled all the same.
NOT_NOW = {
    "POST /v1/events/{event_id}/replay",
    "DELETE /v1/events/{event_id}",
    "POST /v1/admin/session/totp",  # was given
    "POST /v1/admin/totp/confirm",  # nothing was begun
    "DELETE /v1/admin/totp",  # whoever has the role admin needs one
}


class Asks(Protocol):
    """A client: of an app, of a user, or the browser of an administrator."""

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer: ...


@dataclass
class ForApp:
    """An administrator's client that names an app, or none."""

    client: Asks
    app_id: str | None

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        named = {"Clarion-App": self.app_id} if self.app_id else {}
        return self.client.ask(method, path, body, headers={**named, **(headers or {})})


class World:
    """What one user of the first app has. Everything in it that can be read holds the mark."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.mark = uuid.uuid4().hex
        self.ana = InboxUser(server)
        app = server.app
        assert app.ask("PUT", f"/v1/users/{self.ana.id}", {"name": self.mark}).status == 201
        set_preferences(app, self.ana.id, quiet_hours=[False] * 24)
        type_name = make_type(app, f"{self.mark} {{{{ order }}}}", display_name=self.mark)
        event = draft(type_name, user_id=self.ana.id) | {"data": {"order": self.mark}}
        event_id = send_and_wait(app, event)["event_id"]
        (item,) = inbox(app, self.ana.id)
        device = self.ana.me.post("/v1/devices", {"platform": "clarion", "label": self.mark}).json
        pushed = push(server, device["token"], self.mark)
        assert pushed.status == 200, pushed.body
        topic = f"t-{uuid.uuid4().hex}"
        assert app.ask("PUT", f"/v1/devices/{device['device_id']}/topics/{topic}").status == 204
        path = f"/v1/devices/{device['device_id']}/endpoints"
        endpoint = self.ana.me.post(path, {"label": self.mark}).json
        key = app.post("/v1/keys", {"label": self.mark, "scopes": ["stats:read"]}).json
        hook = f"https://hooks.example.com/{self.mark}"
        made = {"kind": "webhook", "settings": {"url": hook}, "sandbox": True}
        name = uuid.uuid4().hex
        assert app.ask("PUT", f"/v1/providers/webhook/{name}", made).status == 201
        filter_ = {"filter": f"tag = '{self.mark}'"}
        assert app.ask("PUT", f"/v1/segments/{name}", filter_).status == 201
        erased = f"erased-{name}"
        assert app.ask("PUT", f"/v1/users/{erased}", {"name": self.mark}).status == 201
        receipt = app.ask("DELETE", f"/v1/users/{erased}?hard=true").json
        self.ids = {
            "user_id": self.ana.id,
            "receipt_id": receipt["receipt_id"],
            "type_name": type_name,
            "channel": "in_app",
            "event_id": event_id,
            "notification_id": item["id"],
            "nid": item["id"],
            "device_id": device["device_id"],
            "message_id": pushed.headers["apns-id"],
            "endpoint_id": endpoint["endpoint_id"],
            "topic": topic,
            "key_id": key["id"],
            "name": name,
            **self._make_administrator(),
            **self._make_app(),
        }

    def _make_app(self) -> dict[str, str]:
        """Return another app, whose name holds the mark, and its keys."""
        made, admin = self.server.make_app(), self.server.make_admin()
        path = f"/v1/apps/{made['id']}"
        assert admin.ask("PATCH", path, {"name": self.mark}).status == 200
        (user_key,) = admin.get(f"{path}/user-keys").json["items"]
        return {
            "app_id": made["id"],
            "kid": user_key["kid"],
            "provider_key_id": made["key_id"],
            "bundle_id": f"com.example.b{self.mark}",
        }

    def _make_administrator(self) -> dict[str, str]:
        """Return what an administrator has, whose label and name hold the mark."""
        account = make_administrator(self.server.installation, username=f"a{self.mark}")
        browser = sign_in(self.server.installation, account)
        key = browser.post("/v1/admin/keys", {"label": self.mark, "role": "viewer"}).json
        session = browser.get("/v1/admin/session").json
        return {
            "username": account.username,
            "new_username": f"b{self.mark}",
            "administrator_id": account.id,
            "admin_key_id": key["id"],
            "session_id": session["session_id"],
        }

    def ask(self, asker: Asks, operation: str) -> Answer:
        """Use an operation on the objects of this world."""
        method, path = operation.split()
        body = TABLE[operation].body
        filled = None if body is None else json.loads(self._fill(json.dumps(body)))
        if path.startswith("/v1/providers/"):
            path = path.replace("{channel}", "webhook")
        if path.startswith("/v1/apps/"):
            path = path.replace("{key_id}", "{provider_key_id}")
        if path.startswith("/v1/admin/keys/"):
            path = path.replace("{key_id}", "{admin_key_id}")
        return asker.ask(method, self._fill(path), filled)

    def _fill(self, text: str) -> str:
        for name, value in self.ids.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def look(self) -> list[bytes]:
        """Return all that can be read of the objects by the app itself."""
        for_admins = {each for each, rule in TABLE.items() if rule.who in FOR_ADMINS}
        reads = [each for each in TABLE if each.startswith("GET") and "{" in each]
        # An export says when it was made.
        reads = [each for each in reads if not each.endswith("/export")]
        admin = self.server.make_admin()
        answers = [
            self.ask(admin if each in for_admins else self.server.app, each) for each in reads
        ]
        assert {each.status for each in answers} == {200}
        # The server records by itself when a user or a device was last there, or a key last used.
        return [LAST.sub(b"", each.body) for each in answers]


@pytest.fixture(scope="module")
def world(server: Server) -> Iterator[World]:
    """One world for all attacks: none of them may change it."""
    world = World(server)
    before = world.look()
    assert all(world.mark.encode() in body for body in before[:1])
    yield world
    assert world.look() == before


def find_faults(world: World, asker: Asks, allowed: dict[str, set[int]]) -> list[str]:
    """Return the operations with another status, or with something of the world in the answer."""
    found = []
    for operation, statuses in allowed.items():
        answer = world.ask(asker, operation)
        if answer.status not in statuses:
            found.append(f"{operation}: {answer.status}, not {sorted(statuses)}")
        if world.mark.encode() in answer.body:
            found.append(f"{operation}: shows what is another's")
    return found


def test_every_operation_has_a_rule(server: Server) -> None:
    paths = server.anyone.get("/openapi.json").json["paths"]
    operations = {f"{method.upper()} {path}" for path, each in paths.items() for method in each}
    assert operations == set(TABLE)


@pytest.mark.parametrize("credential", ["", "ck_" + "0" * 16 + "_" + "0" * 43, "a.b.c"])
def test_nobody_gets_anything_without_a_credential(world: World, credential: str) -> None:
    asker = world.server.with_key(credential)
    assert find_faults(world, asker, {each: {401} for each in TABLE}) == []


def test_another_user_gets_nothing_of_it(world: World) -> None:
    stranger = InboxUser(world.server)
    assert world.server.app.ask("PUT", f"/v1/users/{stranger.id}", {}).status == 201
    allowed = {
        operation: status_for_another_user(operation, rule)
        for operation, rule in TABLE.items()
        if not rule.is_stream
    }
    assert find_faults(world, stranger.me, allowed) == []


def status_for_another_user(operation: str, rule: Rule) -> set[int]:
    if rule.who in FOR_ADMINS or rule.who is Who.APP:
        return {403}
    if rule.who is Who.STRANGER:
        return {401}
    if operation.endswith("/me/topics/{topic}"):
        return {403, 204}  # it is closed; not to follow it changes nothing
    if "{" in operation:
        return {404}
    return {200, 201}  # about themselves


def test_a_user_uses_nothing_that_is_for_the_app(world: World) -> None:
    for_others = {Who.APP, *FOR_ADMINS}
    allowed = {each: {403} for each, rule in TABLE.items() if rule.who in for_others}
    assert find_faults(world, world.ana.me, allowed) == []


def test_another_app_gets_nothing_of_it(world: World) -> None:
    stranger = world.server.with_key(world.server.make_app()["api_key"])
    # What it creates under the same names comes last: it would be found by the others.
    operations = sorted(TABLE, key=lambda each: TABLE[each].is_own_name)
    allowed = {operation: status_for_another_app(operation) for operation in operations}
    assert find_faults(world, stranger, allowed) == []


def status_for_another_app(operation: str) -> set[int]:
    rule = TABLE[operation]
    if rule.who in FOR_ADMINS or rule.who is Who.USER:
        return {403}
    if rule.who is Who.STRANGER:
        return {401}
    if rule.is_own_name:
        return {200, 201, 202, 204, 404}
    if "{" in operation:
        return {404}
    return {422} if rule.body == EVENT else {200, 201}  # the app has no such type


@pytest.mark.parametrize("scope", Scope)
def test_a_key_without_the_scope_gets_nothing(world: World, scope: Scope) -> None:
    others = world.server.make_key(*(each.value for each in Scope if each is not scope))
    allowed = {each: {403} for each, rule in TABLE.items() if rule.scope is scope}
    assert find_faults(world, others, allowed) == []


def test_whoever_may_use_an_operation_can(server: Server) -> None:
    """Without this the rest would prove nothing: all might be refused to everybody."""
    own = World(server)
    account = make_administrator(server.installation)
    browser = sign_in(server.installation, account)
    key = browser.post("/v1/admin/keys", {"label": "mine", "role": "viewer"}).json
    other = Browser(server.installation.port).sign_in(account.username).json
    own.ids |= {"admin_key_id": key["id"], "session_id": other["session_id"]}
    entitled: dict[Who, Asks] = {Who.USER: own.ana.me, **dict.fromkeys(FOR_ADMINS, browser)}
    asked = [each for each, rule in TABLE.items() if not rule.is_stream and each not in SIGN_IN]
    asked.remove("DELETE /v1/admin/sessions")  # it ends the session, and so does the last one
    askers = {each: entitled.get(TABLE[each].who, server.app) for each in asked}
    assert find_refusals(own, askers) == []
    browser = sign_in(server.installation)
    assert own.ask(browser, "DELETE /v1/admin/sessions").status == 200


def find_refusals(world: World, askers: Mapping[str, Asks]) -> list[str]:
    """Return the operations that somebody who may use them cannot use."""
    found = []
    for operation, asker in askers.items():
        answer = world.ask(asker, operation)
        if answer.status not in ({409} if operation in NOT_NOW else {200, 201, 202, 204}):
            found.append(f"{operation}: {answer.status} {answer.body!r}")
    return found


# Administrators.


def test_an_administrator_must_name_the_app(world: World) -> None:
    asker = world.server.make_admin()
    allowed = {each: {422} for each in OF_APPS} | {"GET /v1/audit": {200}}  # of the installation
    assert find_faults(world, asker, allowed) == []


def test_an_administrator_of_another_app_gets_nothing_of_it(world: World) -> None:
    other = world.server.make_app()["id"]
    client = world.server.make_admin_of({other: Role.ADMIN})
    named = ForApp(client, world.server.first["app"]["id"])
    assert find_faults(world, named, {each: {404} for each in TABLE if each not in SIGN_IN}) == []
    operations = sorted(OF_APPS, key=lambda each: TABLE[each].is_own_name)
    allowed = {operation: status_for_another_app(operation) for operation in operations}
    assert find_faults(world, ForApp(client, other), allowed) == []


@pytest.mark.parametrize("role", Role)
def test_a_role_gets_no_more_than_its_scopes(world: World, role: Role) -> None:
    app_id = world.server.first["app"]["id"]
    allowed = {each: {403} for each, rule in OF_APPS.items() if rule.scope not in SCOPES_OF[role]}
    for client in (world.server.make_admin(role), world.server.make_admin_of({app_id: role})):
        assert find_faults(world, ForApp(client, app_id), allowed) == []


@pytest.mark.parametrize("role", Role)
def test_a_role_gets_all_that_its_scopes_allow(server: Server, role: Role) -> None:
    own = World(server)
    asker = ForApp(server.make_admin(role), server.first["app"]["id"])
    own_scopes = SCOPES_OF[role]
    asked = [each for each, rule in OF_APPS.items() if rule.scope in own_scopes]
    assert find_refusals(own, dict.fromkeys(asked, asker)) == []
    # The preferences of all users list the types of the app.
    own.ask(server.app, "DELETE /v1/types/{type_name}")


def test_an_administrator_is_no_user(world: World) -> None:
    asker = ForApp(world.server.make_admin(), world.server.first["app"]["id"])
    allowed = {each: {403} for each, rule in TABLE.items() if rule.who is Who.USER}
    assert find_faults(world, asker, allowed) == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR, None])
def test_a_lower_role_gets_nothing_of_other_administrators(world: World, role: Role | None) -> None:
    """Also whoever has the role admin, but for one app only."""
    app_roles = {world.server.first["app"]["id"]: Role.ADMIN}
    browser = sign_in(world.server.installation, role=role, app_roles=app_roles)
    allowed = {
        each: {200} if role and role.covers(rule.role) else {403}
        for each, rule in OF_ADMINS.items()
        if rule.role
    }
    assert find_faults(world, browser, allowed) == []


def test_an_administrator_has_nothing_of_the_sessions_and_keys_of_others(world: World) -> None:
    browser = sign_in(world.server.installation)
    allowed = {
        "DELETE /v1/admin/keys/{key_id}": {404},
        "DELETE /v1/admin/sessions/{session_id}": {404},
        "GET /v1/admin/keys": {200},
        "GET /v1/admin/sessions": {200},
        "GET /v1/admin/account-changes": {200},
        "GET /v1/admin/session": {200},
    }
    assert find_faults(world, browser, allowed) == []


def test_an_admin_api_key_is_no_session(world: World) -> None:
    allowed = {each: {403} for each, rule in OF_ADMINS.items() if not rule.is_for_keys}
    assert find_faults(world, world.server.make_admin(), allowed) == []


@pytest.mark.parametrize("is_enrolled", [False, True])
def test_who_has_not_finished_signing_in_gets_nothing(world: World, *, is_enrolled: bool) -> None:
    installation = world.server.installation
    account = make_administrator(installation)
    if is_enrolled:
        sign_in(installation, account)
    browser = Browser(installation.port)
    browser.sign_in(account.username)
    enrols = {"POST /v1/admin/totp", "POST /v1/admin/totp/confirm"}
    left_out = {*SIGN_IN, *OF_SIGN_IN, *(() if is_enrolled else enrols)}
    allowed = {each: {403} for each in TABLE if each not in left_out}
    asker = ForApp(browser, world.server.first["app"]["id"])
    assert find_faults(world, asker, allowed) == []


@pytest.mark.parametrize("role", Role)
def test_a_role_for_an_app_gets_no_more_of_it(world: World, role: Role) -> None:
    client = world.server.make_admin_of({world.ids["app_id"]: role})
    above = {
        each: {403}
        for each, rule in TABLE.items()
        if rule.who is Who.APP_ADMIN and rule.role and not role.covers(rule.role)
    }
    assert bool(above) == (role is not Role.ADMIN)
    assert find_faults(world, client, above | {"POST /v1/apps": {403}}) == []


def test_an_administrator_of_one_app_sees_no_other(world: World) -> None:
    other = world.server.make_app()["id"]
    client = world.server.make_admin_of({other: Role.ADMIN})
    allowed = {each: {404} for each, rule in TABLE.items() if rule.who is Who.APP_ADMIN}
    assert find_faults(world, client, allowed) == []
    assert [each["id"] for each in client.get("/v1/apps").json["items"]] == [other]
