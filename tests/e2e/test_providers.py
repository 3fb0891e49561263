"""Providers over the API: what a hostile or careless app gives is refused, or harms nobody."""

import datetime as dt
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clarion.channels.api import PROVIDERS_LIMIT
from clarion.store.opening import open_engine
from clarion.store.statement import statement
from tests.conftest import run_apart
from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import (
    deliveries,
    draft,
    inbox,
    make_type,
    make_user,
    send_and_wait,
    wait_until,
)
from tests.peers.fcm import make_key, pem_of

P256 = (
    ec.generate_private_key(ec.SECP256R1())
    .private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    .decode()
)
RSA = pem_of(make_key())
INSIDE = [
    "https://127.0.0.1",
    "https://localhost",
    "https://a.localhost",
    "https://10.0.0.1",
    "https://169.254.169.254",
    "https://100.64.0.1",
    "https://0.0.0.0",
    "https://[::1]",
    "https://[::]",
    "https://[::ffff:127.0.0.1]",
    "https://[::ffff:7f00:1]",
    "https://[64:ff9b::7f00:1]",
    "https://[2002:7f00:1::]",
    "https://[fe80::1]",
    "https://[fec0::1]",
    "https://[fd00::1]",
    "https://[ff02::1]",
    "https://[::127.0.0.1]",
]
DISGUISED = [
    "https://0x7f.1",
    "https://2130706433",
    "https://017700000001",
    "https://127.1",
    "https://127.0.0.1.",
    "https://①②⑦.0.0.1",
    "https://[fe80::1%25eth0]",
    "https://user@127.0.0.1",
    "https://example.com:6379",
    "https://example.com:25",
    "https://example.com\\@127.0.0.1",
    "https://example.com\r\nHost: inside",
    "gopher://example.com",
    "file:///etc/passwd",
    "//example.com",
    "",
]
# Some names inside have no address on this machine.
REFUSED = {"target_refused", "not_connected"}
SELECT_DUE = statement(
    "select_due_times",
    "SELECT due_at, tries FROM jobs WHERE app_id = :app_id AND pool = 'email' AND token % 1000 = 0",
)
BREAKS = ["\r\n", "\n", "\r", "\x00", "\x0b", "\x85", "\u2028"]


def smtp(**settings: Any) -> dict[str, Any]:
    return {
        "kind": "smtp",
        "settings": {"host": "mail.example.com", "from": "a@b.example"} | settings,
    }


def apns(**settings: Any) -> dict[str, Any]:
    given = {"team_id": "A1B2C3D4E5", "key_id": "F6G7H8I9J0", "topic": "com.example.app"}
    return {"kind": "apns", "settings": given | settings, "secrets": {"key": P256}}


def fcm(account: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    made = {"client_email": "a@b.example", "private_key": RSA} | (account or {})
    secrets = {"service_account": json.dumps(made)}
    return {"kind": "fcm", "settings": {"project_id": "example"} | settings, "secrets": secrets}


def sms(**settings: Any) -> dict[str, Any]:
    given = {"account_sid": "AC1", "from": "+15005550006"} | settings
    return {"kind": "twilio", "settings": given, "secrets": {"auth_token": "secret"}}


def webhook(**settings: Any) -> dict[str, Any]:
    return {"kind": "webhook", "settings": {"url": "https://example.com/hook"} | settings}


def put(app: Asker, channel: str, body: dict[str, Any], name: str = "hostile") -> Answer:
    return app.ask("PUT", f"/v1/providers/{channel}/{name}", body)


@pytest.mark.parametrize("url", [*INSIDE, *DISGUISED])
@pytest.mark.parametrize(
    ("channel", "make", "field"),
    [("push", apns, "base_url"), ("push", fcm, "base_url"), ("webhook", webhook, "url")],
    ids=["apns", "fcm", "webhook"],
)
def test_a_url_that_leads_inside_is_refused(
    server: Server, channel: str, make: Any, field: str, url: str
) -> None:
    answer = put(server.app, channel, make(**{field: url}))
    if make is webhook and answer.status != 422:
        # Of a webhook, the address is checked when it is called.
        assert try_provider(server.app, channel)["error_code"] in REFUSED
        return
    assert (answer.status, answer.fields) == (422, [f"settings.{field}"])


def try_provider(app: Asker, channel: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = app.post(f"/v1/providers/{channel}/hostile/test", body or {})
    assert answer.status == 200, answer.body
    result: dict[str, Any] = answer.json
    return result


@pytest.mark.parametrize("url", INSIDE)
def test_text_messages_are_not_sent_inside(server: Server, url: str) -> None:
    answer = put(server.app, "sms", sms(base_url=url))
    if answer.status == 422:
        assert answer.fields == ["settings.base_url"]
        return
    for body in ({}, {"to": "+4917012345678"}):
        assert try_provider(server.app, "sms", body)["error_code"] in REFUSED


@pytest.mark.parametrize("url", INSIDE)
def test_tokens_are_not_fetched_inside(server: Server, url: str) -> None:
    answer = put(server.app, "push", fcm({"token_uri": f"{url}/token"}))
    if answer.status == 422:
        assert answer.fields == ["secrets.service_account.token_uri"]
        return
    assert try_provider(server.app, "push")["error_code"] in {"token not_connected", *REFUSED}


def test_apprise_calls_nothing_inside(server: Server) -> None:
    body = {"kind": "apprise", "secrets": {"url": f"json://127.0.0.1:{server.installation.port}/"}}
    assert put(server.app, "webhook", body).status == 201
    result = try_provider(server.app, "webhook")
    assert (result["outcome"], result["error_code"]) == ("misconfigured", "target_refused")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", "0x7f.1", "2130706433", "10.0.0.1"],
)
@pytest.mark.parametrize("security", ["tls", "starttls", "none"])
def test_no_mail_server_inside_is_called(server: Server, host: str, security: str) -> None:
    answer = put(server.app, "email", smtp(host=host, security=security))
    assert answer.status in {200, 201}
    result = try_provider(server.app, "email")
    assert result["error_code"] in {"bad_settings", "not_connected"}, result
    assert "127.0.0.1" not in json.dumps(result)


@pytest.mark.parametrize("text", BREAKS, ids=repr)
@pytest.mark.parametrize(
    ("channel", "make", "field"),
    [
        ("email", smtp, "from"),
        ("email", smtp, "reply_to"),
        ("email", smtp, "host"),
        ("sms", sms, "from"),
        ("sms", sms, "account_sid"),
        ("sms", sms, "base_url"),
        ("push", apns, "topic"),
        ("push", apns, "team_id"),
        ("push", apns, "key_id"),
        ("push", fcm, "project_id"),
        ("webhook", webhook, "url"),
    ],
)
def test_no_line_can_be_added(
    server: Server, channel: str, make: Any, field: str, text: str
) -> None:
    known = make()["settings"].get(field, "https://example.com")
    for value in (f"{known}{text}", f"{text}{known}", f"{known}{text}Bcc: eve@example.com"):
        answer = put(server.app, channel, make(**{field: value}))
        assert (answer.status, answer.fields[0].split(".")[:2]) == (422, ["settings", field]), value


@pytest.mark.parametrize("text", BREAKS, ids=repr)
def test_no_line_can_be_added_by_a_secret_or_a_subject(server: Server, text: str) -> None:
    body = sms() | {"secrets": {"auth_token": f"secret{text}X: y"}}
    assert put(server.app, "sms", body).fields == ["secrets.auth_token"]
    web = {"kind": "webpush", "settings": {"subject": f"mailto:a@b.example{text}"}}
    assert put(server.app, "push", web).fields == ["settings.subject"]
    mail = smtp(username=f"bo{text}") | {"secrets": {"password": "secret"}}
    answer = put(server.app, "email", mail)
    assert answer.status == 422 or text == "\u2028"


def test_an_app_has_a_limited_number_of_providers(server: Server) -> None:
    prefix = uuid.uuid4().hex[:8]
    statuses = []
    for number in range(PROVIDERS_LIMIT + 1):
        answer = put(server.app, "webhook", webhook(types=["NONE"]), f"{prefix}-{number}")
        statuses.append(answer.status)
        if answer.status != 201:
            break
    assert statuses[-1] == 409
    for number in range(len(statuses) - 1):
        assert server.app.delete(f"/v1/providers/webhook/{prefix}-{number}").status == 204


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "apprise", "secrets": {"url": "file:///etc/passwd"}}, "secrets.url"),
        ({"kind": "apprise", "secrets": {"url": "syslog://"}}, "secrets.url"),
        ({"kind": "apprise", "secrets": {"url": "gnome://"}}, "secrets.url"),
        ({"kind": "apprise", "secrets": {"url": "exec://rm"}}, "secrets.url"),
        ({"kind": "webhook", "settings": {"url": "https://a.example", "x": 1}}, "settings"),
        ({"kind": "webhook", "settings": {"url": ["https://a.example"]}}, "settings.url"),
        ({"kind": "stub"}, "kind"),
        ({"kind": "smtp"}, "kind"),
        ({"kind": "webhook", "timeout_s": 21}, "timeout_s"),
        ({"kind": "webhook", "concurrency": 0}, "concurrency"),
        ({"kind": "webhook", "secrets": {"secret": "short"}}, "settings"),
        ({"kind": "webhook", "more": 1}, "more"),
    ],
)
def test_what_is_wrong_with_a_provider_is_named(
    server: Server, body: dict[str, Any], field: str
) -> None:
    answer = put(server.app, "webhook", body)
    assert answer.status == 422, answer.body
    assert answer.fields[0].startswith(field)


def test_secrets_are_never_shown(server: Server) -> None:
    made = put(server.app, "webhook", webhook(types=["NONE"]), "own")
    secret = made.json["secret"]
    assert secret.startswith("whsec_")
    shown = [
        server.app.get("/v1/providers").body,
        server.app.get("/v1/providers/webhook/own").body,
        put(server.app, "webhook", webhook(types=["NONE"]), "own").body,
    ]
    assert not any(secret.encode() in each for each in shown)
    assert put(server.app, "push", fcm(), "google").status == 201
    assert RSA[40:80].encode() not in server.app.get("/v1/providers/push/google").body
    for path in ("webhook/own", "push/google"):
        assert server.app.delete(f"/v1/providers/{path}").status == 204


@pytest.fixture(autouse=True)
def clean(server: Server) -> Any:
    """Other tests share the app: no channel stays available because of these."""
    yield
    for channel in ("push", "webhook", "sms", "email"):
        server.app.delete(f"/v1/providers/{channel}/hostile")


def find_due(server: Server, app_id: str) -> list[tuple[int, int]]:
    """Return the due times and tries of an app's deliveries by email that wait."""

    async def read() -> list[tuple[int, int]]:
        url = server.installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            return [(due, tries) for due, tries in await engine.fetch(SELECT_DUE, app_id=app_id)]
        finally:
            await engine.close()

    return run_apart(read())


def test_what_waits_for_another_try_is_tried_when_its_provider_is_mended(server: Server) -> None:
    """The schedule of email has it wait for a minute."""
    made = server.make_app()
    app = server.with_key(made["api_key"])
    inside = smtp(host="127.0.0.1")
    assert put(app, "email", inside).status == 201
    order = make_type(app, default_channels=["in_app", "email"])
    template = {"subject": "Order", "body": "{{ order }}", "variables": ["order"]}
    assert app.ask("PUT", f"/v1/types/{order}/templates/email", template).status == 200
    ana = make_user(app, email="ana@example.com")
    send_and_wait(app, draft(order, user_id=ana))
    (notification,) = inbox(app, ana)
    ((due_at, tries),) = wait_until(
        lambda: [e for e in find_due(server, made["id"]) if e[1]] or None
    )
    assert put(app, "email", inside).status == 200
    assert find_due(server, made["id"]) == [(due_at, tries)]  # nothing was changed

    assert put(app, "email", inside | {"sandbox": True}).status == 200

    def look() -> dict[str, Any] | None:
        found = deliveries(app, notification["id"])["email"]
        return found if found["status"] == "delivered" else None

    found = wait_until(look)
    assert [each["status"] for each in found["attempts"]] == ["misconfigured", "delivered"]
    assert dt.datetime.fromisoformat(found["delivered_at"]).timestamp() * 1000 < due_at


@pytest.mark.parametrize(
    ("channel", "make", "changes"),
    [
        ("email", smtp, {"host": "mail.attacker.example"}),
        ("email", smtp, {"security": "tls"}),
        ("sms", sms, {"base_url": "https://attacker.example"}),
        ("push", apns, {"base_url": "https://attacker.example"}),
        ("push", fcm, {"base_url": "https://attacker.example"}),
    ],
)
def test_secrets_are_not_sent_to_another_server_unless_given_again(
    server: Server, channel: str, make: Callable[..., dict[str, Any]], changes: dict[str, str]
) -> None:
    login = {"username": "a"} if make is smtp else {}
    secrets = make().get("secrets", {"password": "secret"})
    assert put(server.app, channel, {**make(**login), "secrets": secrets}).status == 201
    kept = put(server.app, channel, {**make(**login), "secrets": {}, "is_active": False})
    assert (kept.status, kept.json["secrets"]) == (200, list(secrets))
    elsewhere = make(**login, **changes)
    answer = put(server.app, channel, {**elsewhere, "secrets": {}})
    assert (answer.status, answer.fields) == (422, [f"secrets.{next(iter(secrets))}"])
    assert put(server.app, channel, {**elsewhere, "secrets": secrets}).status == 200
