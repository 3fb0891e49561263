"""The paths that take a secret or a text, right and wrong: each is sent canaries."""

import asyncio
import base64
import json
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.collector import Collector
from tests.e2e.administrators import Browser, sign_in
from tests.e2e.asking import Answer, Asker
from tests.e2e.canaries import Canaries, secret_part
from tests.e2e.conftest import Server
from tests.e2e.echoing_peers import Peers
from tests.e2e.installation import Installation
from tests.e2e.live_clients import InboxUser
from tests.e2e.provider import headers_of
from tests.e2e.sending import ANY_HOUR, set_preferences, wait_until
from tests.peers.fcm import make_key, pem_of
from tests.peers.mail_servers import Authority
from tests.web_push import Browser as PushBrowser

CHANNELS = ["in_app", "push", "email", "sms", "webhook"]
# A part of a path that is longer is an id, or a canary.
LONGEST_PART = 20
NO_CREDENTIALS = ("", "Bearer ", "Basic ", "bearer ")


@dataclass
class World:
    """A server at the log level debug, and everything that it and the commands have printed."""

    server: Server
    canaries: Canaries
    peers: Peers
    authority: Authority
    collector: Collector
    folder: Path
    printed: dict[str, str] = field(default_factory=dict)
    # What callers were answered who must not see anything of it.
    answered: dict[str, str] = field(default_factory=dict)

    @property
    def installation(self) -> Installation:
        return self.server.installation

    @property
    def app(self) -> Asker:
        return self.server.app

    def make(self, name: str) -> str:
        return self.canaries.make(name)

    def ask(
        self, asker: Asker | Browser, method: str, path: str, body: Any = None, **more: Any
    ) -> Answer:
        """Send a request with a canary somewhere in it."""
        answer = asker.ask(method, path, body, **more)
        parts = urlsplit(path).path.split("/")
        route = "/".join("…" if len(part) > LONGEST_PART else part for part in parts)
        self.canaries.went(f"{method} {route} {answer.status}")
        return answer

    def must(
        self, asker: Asker | Browser, method: str, path: str, body: Any = None, **more: Any
    ) -> Any:
        answer = self.ask(asker, method, path, body, **more)
        assert answer.status < 300, (method, path, answer.body)
        return answer.json if answer.body else None

    def run(self, *arguments: str, **flags: str) -> str:
        """Run a command. What it prints on standard output may be the secret that it made."""
        done = self.installation.run(*arguments, **flags)
        self.canaries.went(f"clarion {' '.join(arguments[:2])} {done.returncode}")
        self.printed[f"stderr of clarion {' '.join(arguments)} {len(self.printed)}"] = done.stderr
        return done.stdout

    def collect(self) -> dict[str, str]:
        """Return everything that must hold no canary, by where it is."""
        audit = self.installation.data / "audit.log"
        return {
            "log": self.installation.log.read_text(errors="replace"),
            "audit log": audit.read_text(errors="replace"),
            "traces": b"\n".join(self.collector.bodies).decode("latin-1"),
            **self.printed,
            **self.answered,
        }


# One function for each kind of secret.


def use_credentials(world: World) -> None:
    """API keys, user tokens and tickets: right ones, wrong ones, and malformed ones."""
    key = world.must(world.app, "POST", "/v1/keys", {"label": "c", "scopes": ["*"]})["api_key"]
    world.canaries.watch("API key", secret_part(key))
    world.must(world.server.with_key(key), "GET", "/v1/caller")
    user = InboxUser(world.server)
    token = world.canaries.watch("user token", user.token)
    world.canaries.watch("signature of a user token", token.rpartition(".")[2])
    world.must(world.server.with_key(token), "GET", "/v1/caller")
    made = world.must(user.me, "POST", "/v1/me/tickets")
    ticket = world.canaries.watch("ticket", made["ticket"])
    world.ask(world.server.anyone, "GET", f"/v1/me/notifications?ticket={ticket}")
    wrong = f"{key.rpartition('_')[0]}_{world.make('wrong API key')}"
    forged = jwt.encode(
        {"sub": world.make("subject of a forged token"), "aud": "x", "exp": time.time() + 60},
        world.make("secret of a forged token"),
        "HS256",
    )
    for credential in (wrong, forged, world.make("malformed API key"), f"{token}x"):
        world.canaries.watch("wrong credential", credential)
        for path in ("/v1/caller", "/v1/me/stream", "/v1/events"):
            world.ask(world.server.with_key(credential), "GET", path)
    for scheme in NO_CREDENTIALS:
        header = {"Authorization": scheme + world.make(f"header {scheme!r}")}
        world.ask(world.server.anyone, "GET", "/v1/caller", headers=header)
        world.ask(world.server.anyone, "POST", "/3/device/00", {"aps": {}}, headers=header)


def use_app_keys(world: World) -> None:
    """User keys and provider keys over the API, by an administrator."""
    admin = world.server.make_admin()
    secret = base64.b64encode(world.make("own user secret").encode()).decode()
    path = f"/v1/apps/{world.server.first['app']['id']}"
    world.ask(admin, "POST", f"{path}/user-keys", {"algorithm": "HS256", "secret": secret})
    made = world.must(admin, "POST", f"{path}/provider-keys", {})
    pem = next(each for each in made.values() if "PRIVATE" in str(each))
    world.canaries.watch("provider key", pem.splitlines()[1])
    body = {"public_key": f"-----BEGIN {world.make('malformed public key')}"}
    world.ask(admin, "POST", f"{path}/provider-keys", body)


def use_administrators(world: World) -> None:
    """Passwords, second factors, recovery codes, set-up links, sessions, CSRF tokens."""
    boss = sign_in(world.installation)
    watch_browser(world, boss)
    name, password = set_up_administrator(world, boss)
    sign_in_badly(world, name)
    new = Browser(world.installation.port)
    given = {"username": name, "password": password}
    world.must(new, "POST", "/v1/admin/session", given)
    codes = new.enrol()
    for number, code in enumerate(codes):
        world.canaries.watch(f"recovery code {number}", code)
    watch_browser(world, new)
    world.must(new, "POST", "/v1/admin/session/confirm", {"password": password})
    again = Browser(world.installation.port)
    world.must(again, "POST", "/v1/admin/session", given)
    world.ask(again, "POST", "/v1/admin/session/totp", {"code": world.make("malformed code")})
    world.must(again, "POST", "/v1/admin/session/totp", {"code": codes[0]})
    changed = {"current_password": password, "password": world.make("new password")}
    world.must(new, "PUT", "/v1/admin/password", changed)
    bad = {"Clarion-CSRF-Token": world.make("wrong CSRF token")}
    body = {"label": "x", "role": "viewer"}
    world.ask(boss, "POST", "/v1/admin/keys", body, headers=bad)
    made = world.must(boss, "POST", "/v1/admin/keys", body)
    key = next(value for name, value in made.items() if name in {"api_key", "key", "secret"})
    world.canaries.watch("admin API key", secret_part(key))
    world.must(world.server.with_key(key), "GET", "/v1/caller")


def set_up_administrator(world: World, boss: Browser) -> tuple[str, str]:
    """Invite an administrator, who sets a password; return their name and password."""
    name, path = f"a{uuid.uuid4().hex}", "/v1/admin/setup"
    made = world.must(boss, "POST", "/v1/admin/administrators", {"username": name})
    link = next(value for value in made.values() if "#" in str(value))
    token = world.canaries.watch("set-up link", link.rpartition("#")[2])
    stranger = Browser(world.installation.port)
    world.ask(stranger, "POST", path, {"token": token, "password": "short"})
    world.ask(stranger, "POST", path, {"token": world.make("wrong link"), "password": "x" * 20})
    password = world.make("password")
    world.must(stranger, "POST", path, {"token": token, "password": password})
    return name, password


def sign_in_badly(world: World, name: str) -> None:
    stranger, wrong = Browser(world.installation.port), world.make("wrong password")
    for who in (name, world.make("unknown user name")):
        world.ask(stranger, "POST", "/v1/admin/session", {"username": who, "password": wrong})
    as_form = {"Content-Type": "application/x-www-form-urlencoded"}
    form = f"username={name}&password={wrong}".encode()
    world.ask(stranger, "POST", "/admin/sign-in", form, headers=as_form)
    cookie = {"Cookie": f"clarion_session={world.make('wrong session')}"}
    for path in ("/v1/admin/session", "/admin/health"):
        world.ask(world.server.anyone, "GET", path, headers=cookie)


def watch_browser(world: World, browser: Browser) -> None:
    world.canaries.watch("secret of an authenticator", browser.secret)
    world.canaries.watch("CSRF token", browser.csrf_token)
    for name, value in browser.cookies.items():
        world.canaries.watch(f"cookie {name}", value)


def use_bodies(world: World) -> None:
    """Users, types, templates, events and inboxes; well formed, malformed, too large, unknown."""
    app = world.app
    user: dict[str, Any] = {
        "name": world.make("name"),
        "email": f"{world.make('mail address')}@example.com",
    }
    user |= {"phone": "+4915112345678", "attributes": {"note": world.make("attribute")}}
    world.must(app, "PUT", "/v1/users/ana", user)
    world.must(app, "PUT", "/v1/types/ORDER", {"category": "transactional"})
    set_preferences(app, "ana", quiet_hours=ANY_HOUR, types={"ORDER": {"sms": True}})
    for channel in CHANNELS:
        template: dict[str, Any] = {
            "body": f"{world.make('template')} {{{{ order }}}}",
            "variables": ["order"],
        }
        template |= {"subject": world.make("subject")} if channel == "email" else {}
        path = f"/v1/types/ORDER/templates/{channel}"
        world.must(app, "PUT", path, template)
        world.ask(app, "PUT", path, {"body": "{% if " + world.make("broken template")})
        preview = {"data": {"order": world.make("preview")}}
        world.ask(app, "POST", f"{path}/preview", preview)
    repeated = {"Idempotency-Key": world.make("idempotency key")}
    for text in ("body", "other body") * 2:
        event = {
            "type": "ORDER",
            "recipient": {"user_id": "ana"},
            "data": {"order": world.make(text)},
        }
        world.ask(app, "POST", "/v1/events", event, headers=repeated)
    admin = world.server.make_admin()
    for operation in list_operations(world):
        try_operation(world, app if is_for_apps(operation) else admin, *operation)
    for path in ("/3/device/", "/4/broadcasts/apps/", "/1/apps/", "/_matrix/push/v1/notify"):
        spoil(world, app, "POST", path + "x" * path.endswith("/"))
    for path in ("/nothing", "/metrics", "/docs", "/push/", "/unsubscribe/", "/callbacks/twilio/"):
        for method in ("GET", "POST"):
            place = f"{path.rstrip('/')}/{world.make('path')}?token={world.make('query')}"
            world.ask(world.server.anyone, method, place, {} if method == "POST" else None)


def list_operations(world: World) -> list[tuple[str, str]]:
    """Return every operation of the API, by method and path; one that is added is among them."""
    paths = world.server.anyone.get("/openapi.json").json["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def is_for_apps(operation: tuple[str, str]) -> bool:
    return not operation[1].startswith(("/v1/admin", "/v1/apps"))


def try_operation(world: World, asker: Asker, method: str, path: str) -> None:
    """Use an operation with canaries in its query, or its body. Ids are no secrets."""
    place = re.sub(r"\{\w+\}", "x", path)
    if method in {"GET", "DELETE"}:
        if not path.endswith("/stream"):
            world.ask(asker, method, f"{place}?token={world.make('query')}")
        return
    spoil(world, asker, method, place)


def spoil(world: World, asker: Asker, method: str, path: str) -> None:
    """Send bodies that cannot be read: broken JSON, another type, too large, other fields."""
    bodies: dict[str, str | bytes] = {
        "broken JSON": f'{{"x": "{world.make("broken JSON")}',
        "another type": json.dumps([world.make("another type")]),
        "the body": json.dumps({"name": world.make("name"), "data": {"x": world.make("datum")}}),
        "an unknown field": json.dumps({world.make("unknown field"): world.make("its value")}),
        "control characters": json.dumps({"type": f"\r\n\x1b[2J{world.make('control')}"}),
        "too much": json.dumps({"data": world.make("too large") * 30_000}),
        "no text": b"\xff\xfe" + world.make("no text").encode(),
    }
    for what, body in bodies.items():
        data = body if isinstance(body, bytes) else body.encode()
        answer = world.ask(asker, method, path, data)
        assert answer.status < 500, (what, path)


def use_providers(world: World) -> list[str]:
    """Create providers with secrets; each fails, and repeats them. Return their paths."""
    web = f"http://127.0.0.1:{world.peers.web_port}"
    smtp = {
        "host": "localhost",
        "port": world.peers.mail_port,
        "security": "tls",
        "username": "shop",
        "from": "shop@example.com",
        "ca_path": world.authority.ca_path,
    }
    twilio = {"base_url": web, "account_sid": "AC" + "0" * 32, "from": "+15005550006"}
    apns_key = pem(
        world,
        "APNs key",
        world.must(
            world.server.make_admin(),
            "POST",
            f"/v1/apps/{world.server.first['app']['id']}/provider-keys",
            {},
        ),
    )
    rsa = pem_of(make_key())
    world.canaries.watch("service account", rsa.splitlines()[3])
    account = {"type": "service_account", "client_email": "a@example.com", "private_key": rsa}
    account |= {
        "token_uri": f"https://127.0.0.1:{world.peers.web_port}/token",
        "private_key_id": "1",
        "project_id": "shop",
    }
    apns = {"team_id": "ABCDE12345", "key_id": "ABCDE12345", "topic": "com.example.app"}
    word, place = world.make("password of Apprise"), world.make("path of Apprise")
    apprise = f"json://shop:{word}@127.0.0.1:{world.peers.web_port}/{place}"
    providers: dict[str, dict[str, Any]] = {
        "email/main": {
            "kind": "smtp",
            "settings": smtp,
            "secrets": {"password": world.make("SMTP")},
        },
        "sms/main": {
            "kind": "twilio",
            "settings": twilio,
            "secrets": {"auth_token": world.make("Twilio")},
        },
        "webhook/main": {
            "kind": "webhook",
            "settings": {"url": f"{web}/{world.make('webhook URL')}"},
        },
        "email/other": {"kind": "apprise", "secrets": {"url": apprise}},
        "push/apple": {"kind": "apns", "settings": apns, "secrets": {"key": apns_key}},
        "push/google": {
            "kind": "fcm",
            "settings": {"project_id": "shop"},
            "secrets": {"service_account": json.dumps(account)},
        },
        "push/web": {"kind": "webpush", "settings": {"subject": "mailto:ops@example.com"}},
    }
    for path, body in providers.items():
        made = world.must(world.app, "PUT", f"/v1/providers/{path}", body)
        if made.get("secret"):
            world.canaries.watch("webhook secret", made["secret"].removeprefix("whsec_"))
        broken = {**body, "secrets": {"nothing": world.make("unknown secret")}}
        world.ask(world.app, "PUT", f"/v1/providers/{path}", broken)
    return list(providers)


def pem(world: World, name: str, made: dict[str, Any]) -> str:
    text: str = next(each for each in made.values() if "PRIVATE" in str(each))
    world.canaries.watch(name, text.splitlines()[1])
    return text


def use_devices(world: World) -> dict[str, Any]:
    """Devices of all platforms, with their addresses; Web Push endpoints, topics."""
    app = world.app
    device: dict[str, Any] = world.must(
        app, "POST", "/v1/devices", {"platform": "clarion", "user_id": "ana"}
    )
    world.canaries.watch("token of a device", device["token"])
    world.canaries.watch("secret of a device", device["secret"])
    place = f"https://127.0.0.1:{world.peers.web_port}/{world.make('subscription')}"
    subscription = PushBrowser().subscription(place)
    world.canaries.watch("key of a subscription", json.loads(subscription)["keys"]["p256dh"])
    for platform, address in {
        "web": subscription,
        "ios": "ab" * 32,
        "android": world.make("FCM"),
    }.items():
        world.canaries.watch(f"address {platform}", address)
        body = {"platform": platform, "user_id": "ana", "address": address}
        world.ask(app, "POST", "/v1/devices", body)
    made = world.must(app, "POST", f"/v1/devices/{device['device_id']}/endpoints", {})
    url = urlsplit(made["endpoint"]).path
    world.canaries.watch("push endpoint", url.rpartition("/")[2])
    text = world.make("Web Push message").encode()
    world.ask(world.server.anyone, "POST", url, text, headers={"TTL": "60"})
    world.ask(world.server.anyone, "POST", url, text, headers={"TTL": world.make("header")})
    world.must(app, "PUT", "/v1/topics/news", {})
    payload = {"payload": {"aps": {"alert": world.make("topic message")}}}
    world.ask(app, "POST", "/v1/topics/news/messages", payload)
    world.ask(app, "POST", "/v1/topics/news/publish", {"message": world.make("publication")})
    return device


def push_to(world: World, device: dict[str, Any]) -> None:
    """Push as an APNs provider, with right and wrong tokens."""
    headers = headers_of(world.server.first["app"])
    world.canaries.watch("provider token", headers["authorization"].rpartition(".")[2])
    path = f"/3/device/{device['token']}"
    for given in ({}, {"apns-topic": world.make("APNs topic")}, {"apns-priority": "x"}):
        body = {"aps": {"alert": world.make("push")}}
        world.ask(world.server.anyone, "POST", path, body, headers={**headers, **given})
    spoiled = {**headers, "authorization": f"{headers['authorization']}{world.make('wrong JWT')}"}
    world.ask(world.server.anyone, "POST", path, {"aps": {}}, headers=spoiled)
    world.ask(
        world.server.anyone, "POST", f"/3/device/{world.make('wrong device')}", {}, headers=headers
    )


async def use_sockets(world: World, device: dict[str, Any]) -> None:
    """The socket of devices and that of users: right and wrong hellos, odd frames."""
    hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
    wrong = {**hello, "secret": world.make("wrong secret of a device")}
    odd = {"type": world.make("odd frame"), "x": world.make("odd value")}
    of_device: dict[str, list[Any]] = {
        "right": [hello, {"type": "ack", "id": world.make("odd id")}, odd],
        "wrong": [wrong],
        "odd": [odd],
        "broken": [f'{{"type": "{world.make("broken frame")}'],
        "large": [{"type": "hello", "token": world.make("large") * 3_000, "secret": "x"}],
    }
    for name, frames in of_device.items():
        await talk(world, f"/v1/gateway {name}", "/v1/gateway", frames)
    user = InboxUser(world.server, id="ana")
    token = world.canaries.watch("token of ana", user.token)
    of_user: dict[str, list[Any]] = {
        "right": [{"type": "hello", "token": token}, odd],
        "wrong": [{"type": "hello", "token": world.make("wrong token of a socket")}],
        "broken": [f'{{"type": "{world.make("broken frame")}'],
    }
    for name, frames in of_user.items():
        await talk(world, f"/v1/me/socket {name}", "/v1/me/socket", frames)
    for query in (
        f"ticket={world.make('wrong ticket')}",
        f"token={world.make('query of a socket')}",
    ):
        await talk(world, "/v1/me/socket?", f"/v1/me/socket?{query}", [])
    await talk(world, "/nothing", f"/{world.make('path of a socket')}", [])


async def talk(world: World, name: str, path: str, frames: list[Any]) -> None:
    url = f"ws://127.0.0.1:{world.installation.gateway_port}{path}"
    with suppress(ConnectionClosed, InvalidStatus, TimeoutError):
        async with asyncio.timeout(60), connect(url, ping_interval=None) as socket:
            for frame in frames:
                await socket.send(frame if isinstance(frame, str) else json.dumps(frame))
            if frames:
                # Until it is closed: every conversation ends with a fault.
                async for _ in socket:
                    pass
    world.canaries.went(name)


def deliver(world: World, providers: list[str]) -> None:
    """Send an event over every channel: each provider fails, and repeats what it got."""
    data = {"order": world.make("event")}
    event = {"type": "ORDER", "recipient": {"user_id": "ana"}, "channels": CHANNELS, "data": data}
    sent = world.must(world.app, "POST", "/v1/events", event)
    for path in providers:
        answer = world.ask(
            world.app, "POST", f"/v1/providers/{path}/test", {"to": choose_address(path)}
        )
        assert answer.status in {200, 422, 400}, answer.body

    def look() -> list[dict[str, Any]] | None:
        items = world.app.get(f"/v1/events/{sent['event_id']}/notifications").json["items"]
        if not items:
            return None
        found = world.app.get(f"/v1/notifications/{items[0]['id']}/deliveries").json["items"]
        tried = {each["channel"] for each in found if each["attempts"]}
        return found if tried >= {"email", "sms", "webhook"} else None

    deliveries = wait_until(look)
    # The texts of the app itself may be there; its secrets may not.
    shown = json.dumps(deliveries) + world.app.get("/v1/providers").body.decode()
    secrets = {
        name: world.canaries.values[name] for name in ("SMTP", "Twilio", "password of Apprise")
    }
    assert Canaries(secrets).find({"deliveries": shown}) == []
    said = " ".join(world.peers.repeated)
    for name in ("SMTP", "Twilio", "password of Apprise", "event"):
        assert world.canaries.values[name] in said, f"{name} was not repeated to the server"


def choose_address(path: str) -> str:
    return {"email": "ana@example.com", "sms": "+4915112345678"}.get(path.partition("/")[0], "x")


def use_commands(world: World) -> None:
    """Commands that take or make secrets; those that fail name none."""
    passphrase = world.folder / "passphrase"
    passphrase.write_text(world.make("passphrase"))
    master = (world.installation.data / "master.key").read_bytes()
    world.canaries.watch("master key", base64.b64encode(master[:24]).decode())
    target = world.folder / "a.backup"
    given = ("--with-keys", "--passphrase-file", str(passphrase))
    world.printed["clarion backup"] = world.run("backup", str(target), *given)
    other = world.folder / "other"
    other.write_text(world.make("wrong passphrase"))
    world.printed["clarion restore"] = world.run(
        "restore",
        str(target),
        "--with-keys",
        "--passphrase-file",
        str(other),
        data=str(world.folder / "elsewhere"),
    )
    world.run("key", "create", world.server.first["app"]["id"], "by command")
    world.run(
        "publish", "news", world.make("published by command"), "--api-key", world.make("wrong key")
    )
    world.printed["clarion audit export"] = world.run("audit", "export")


def look_around(world: World) -> None:
    """What operators and other callers see."""
    world.printed["metrics"] = world.server.anyone.get("/metrics").body.decode()
    world.printed["doctor"] = world.run("doctor")
    boss = sign_in(world.installation)
    for page in ("health", "audit-log", "administrators", "account"):
        answer = boss.get(f"/admin/{page}")
        assert answer.status == 200, answer.body
        world.printed[f"page {page}"] = answer.body.decode()
    other = world.server.with_key(world.server.make_app()["api_key"])
    for asker, who in ((other, "another app"), (world.server.anyone, "a stranger")):
        for path in OF_THE_APP:
            answer = asker.get(path)
            world.answered[f"{path} to {who}"] = answer.body.decode(errors="replace")


OF_THE_APP = (
    "/v1/users",
    "/v1/users/ana",
    "/v1/users/ana/export",
    "/v1/users/ana/notifications",
    "/v1/users/ana/devices",
    "/v1/events",
    "/v1/notifications",
    "/v1/types",
    "/v1/types/ORDER",
    "/v1/types/ORDER/templates/email",
    "/v1/devices",
    "/v1/providers",
    "/v1/providers/email/main",
    "/v1/topics",
    "/v1/feedback",
    "/v1/keys",
    "/v1/audit",
    "/v1/stats",
    "/health",
    "/ready",
)
