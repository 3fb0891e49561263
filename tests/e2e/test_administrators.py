"""Administrators: set-up links, signing in, sessions, second factors, keys, accounts, roles."""

import http.client
import json
import ssl
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import apsw
import bcrypt
import pytest

from clarion.access.administrators import totp
from clarion.access.model import Role
from tests.conftest import run_apart, run_sql
from tests.e2e.administrators import (
    PASSWORD,
    Browser,
    make_administrator,
    make_key,
    sign_in,
    use_stores,
)
from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation

SESSION, DEVICE = "__Host-clarion_session", "__Host-clarion_device"


def code_of(answer: Answer) -> tuple[int, str]:
    """Return the status of a problem, and its code."""
    return answer.status, answer.problem["code"]


def token_of(url: str) -> str:
    return url.partition("#")[2]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[tuple[Installation, str]]:
    """A server without administrators, and its set-up link."""
    installation = Installation(tmp_path)
    first = installation.initialise()
    with installation:
        yield installation, first["admin"]["setup_url"]


def test_the_first_administrator_is_made_with_the_link_once(
    fresh: tuple[Installation, str],
) -> None:
    installation, url = fresh
    ana, setup = Browser(installation.port), {"token": token_of(url), "username": "ana"}
    answer = ana.post("/v1/admin/setup", setup | {"password": PASSWORD})
    assert (answer.status, answer.json["stage"], answer.json["role"]) == (
        201,
        "needs_enrolment",
        "admin",
    )
    codes = ana.enrol()
    assert len(set(codes)) == 10
    assert ana.get("/v1/admin/session").json["stage"] == "signed_in"
    again = Browser(installation.port).post("/v1/admin/setup", setup | {"password": PASSWORD})
    assert code_of(again) == (401, "sign_in_failed")
    assert installation.initialise()["admin"]["setup_url"] is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"username": None}, "username"),
        ({"username": "Ána"}, "username"),
        ({"password": "short"}, "password"),
        ({"password": "iloveyou"}, "password"),
        ({"password": "x" * 257}, "password"),
    ],
)
def test_a_fault_in_the_set_up_does_not_use_the_link(
    fresh: tuple[Installation, str], changes: dict[str, Any], field: str
) -> None:
    installation, url = fresh
    given = {"token": token_of(url), "username": "ana", "password": PASSWORD}
    browser = Browser(installation.port)
    refused = browser.post("/v1/admin/setup", given | changes)
    assert (refused.status, refused.fields) == (422, [field])
    assert browser.post("/v1/admin/setup", given).status == 201


def test_a_wrong_link_is_refused(server: Server) -> None:
    given = {"token": "wrong", "username": "ana", "password": PASSWORD}
    assert code_of(server.anyone.post("/v1/admin/setup", given)) == (401, "sign_in_failed")


def test_the_cookie_is_bound_to_the_host_and_hidden_from_scripts(server: Server) -> None:
    account = make_administrator(server.installation)
    (cookie,) = Browser(server.installation.port).sign_in(account.username).set_cookies
    name, *attributes = (part.strip() for part in cookie.split(";"))
    assert name.startswith(f"{SESSION}=")
    assert len(name.partition("=")[2]) >= 43  # 256 bits
    assert {each.lower() for each in attributes} == {
        "path=/",
        "secure",
        "httponly",
        "samesite=lax",
    }


def test_nothing_by_which_somebody_signs_in_can_be_read_in_the_database(
    fresh: tuple[Installation, str],
) -> None:
    installation, url = fresh
    ana = Browser(installation.port)
    ana.post("/v1/admin/setup", {"token": token_of(url), "username": "ana", "password": PASSWORD})
    codes = ana.enrol()
    key = ana.post("/v1/admin/keys", {"label": "ci", "role": "viewer"}).json["api_key"]
    ana.sign_in("ana")
    ana.post("/v1/admin/session/totp", {"code": ana.next_code(), "trust_device": True})
    secrets = [
        *ana.cookies.values(),
        *codes,
        *(code.replace("-", "") for code in codes),
        key,
        key.split("_")[2],
        ana.secret,
        ana.csrf_token,
        PASSWORD,
        token_of(url),
    ]
    stored = b"".join(path.read_bytes() for path in installation.data.glob("clarion.db*"))
    assert b"trusted_devices" in stored  # so it is the database
    assert [each for each in secrets if each.encode() in stored] == []
    assert totp.decode_secret(ana.secret) not in stored


def test_an_unknown_name_and_a_wrong_password_have_the_same_answer(server: Server) -> None:
    account = make_administrator(server.installation)
    gone = make_administrator(server.installation, disabled_at=1)
    invited = make_administrator(server.installation, password_hash=None)
    elsewhere = make_administrator(server.installation, networks=("203.0.113.0/24",))
    tries = [
        (account.username, "wrong password"),
        ("nobody", "wrong password"),
        (gone.username, PASSWORD),
        (invited.username, PASSWORD),
        (elsewhere.username, PASSWORD),
    ]
    answers = [Browser(server.installation.port).sign_in(*each) for each in tries]
    shown = [
        (answer.status, {**answer.problem, "request_id": ""}, answer.set_cookies)
        for answer in answers
    ]
    assert code_of(answers[0]) == (401, "sign_in_failed")
    assert all(each == shown[0] for each in shown)


@pytest.mark.parametrize("odd", ["a\0b", "x" * 256, ""])
def test_odd_names_passwords_and_codes_are_wrong_and_no_fault(server: Server, odd: str) -> None:
    browser = Browser(server.installation.port)
    assert browser.sign_in(odd).status in (401, 422)
    account = make_administrator(server.installation)
    assert browser.sign_in(account.username, odd).status in (401, 422)
    sign_in(server.installation, account)
    browser.sign_in(account.username)
    assert browser.post("/v1/admin/session/totp", {"code": odd}).status in (401, 422)
    setup = {"token": odd, "username": odd, "password": odd}
    assert browser.post("/v1/admin/setup", setup).status in (401, 422)
    admin = sign_in(server.installation)
    given = {"username": "bob", "app_roles": {odd: "viewer"}}
    assert admin.post("/v1/admin/administrators", given).status == 422


def test_a_name_can_be_written_in_capitals(server: Server) -> None:
    account = make_administrator(server.installation)
    assert Browser(server.installation.port).sign_in(account.username.upper()).status == 201


def test_a_sign_in_needs_the_second_factor(server: Server) -> None:
    account = make_administrator(server.installation)
    first = sign_in(server.installation, account)
    second = Browser(server.installation.port, secret=first.secret, last_step=first.last_step)
    assert second.sign_in(account.username).json["stage"] == "needs_totp"
    for path in ("/v1/admin/administrators", "/v1/admin/sessions", "/v1/admin/keys", "/v1/caller"):
        assert code_of(second.get(path)) == (403, "mfa_required")
    app = {"Clarion-App": server.first["app"]["id"]}
    assert code_of(second.get("/v1/types", headers=app)) == (403, "mfa_required")
    # Nor can it be replaced by another one.
    assert code_of(second.post("/v1/admin/totp")) == (403, "mfa_required")
    pending = second.cookies[SESSION]
    done = second.post("/v1/admin/session/totp", {"code": second.next_code()})
    assert (done.status, done.json["stage"], done.json["has_mfa"]) == (200, "signed_in", True)
    assert second.cookies[SESSION] != pending
    old = Browser(server.installation.port, cookies={SESSION: pending})
    assert code_of(old.get("/v1/admin/session")) == (401, "unauthenticated")


def test_a_code_is_accepted_once(server: Server) -> None:
    account = make_administrator(server.installation)
    first = sign_in(server.installation, account)
    code = first.next_code()
    answers = []
    for _ in range(2):
        browser = Browser(server.installation.port)
        browser.sign_in(account.username)
        answers.append(browser.post("/v1/admin/session/totp", {"code": code}).status)
    assert answers == [200, 401]


def test_a_recovery_code_is_accepted_once(server: Server) -> None:
    account = make_administrator(server.installation)
    browser = Browser(server.installation.port)
    browser.sign_in(account.username)
    code = browser.enrol()[3]
    answers = []
    for given in (code.upper().replace("-", " "), code):
        browser = Browser(server.installation.port)
        browser.sign_in(account.username)
        answers.append(browser.post("/v1/admin/session/totp", {"code": given}).status)
    assert answers == [200, 401]


def test_guessing_codes_is_stopped(server: Server) -> None:
    account = make_administrator(server.installation)
    first = sign_in(server.installation, account)
    guesser = Browser(server.installation.port)
    guesser.sign_in(account.username)
    wrong = first.code_at(5)
    statuses = [guesser.post("/v1/admin/session/totp", {"code": wrong}).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]
    code = first.next_code()
    right = guesser.post("/v1/admin/session/totp", {"code": code})
    assert code_of(right) == (429, "too_many_requests")
    assert int(right.headers["retry-after"]) > 0
    # From another address, the owner still gets in.
    owner = Browser(server.installation.port)
    owner.sign_in(account.username)
    assert owner.post("/v1/admin/session/totp", {"code": code}).status == 200


def test_a_trusted_device_is_not_asked_again(server: Server) -> None:
    account = make_administrator(server.installation)
    first = sign_in(server.installation, account)
    trusted = Browser(server.installation.port, secret=first.secret, last_step=first.last_step)
    trusted.sign_in(account.username)
    given = {"code": trusted.next_code(), "trust_device": True}
    assert trusted.post("/v1/admin/session/totp", given).status == 200
    assert trusted.delete("/v1/admin/session").status == 204
    assert SESSION not in trusted.cookies
    assert trusted.sign_in(account.username).json["stage"] == "signed_in"
    # It is trusted by this administrator, not by others.
    other = make_administrator(server.installation)
    sign_in(server.installation, other)
    theirs = Browser(server.installation.port, cookies={DEVICE: trusted.cookies[DEVICE]})
    assert theirs.sign_in(other.username).json["stage"] == "needs_totp"


def test_too_many_failures_lock_the_account_for_this_address_only(tmp_path: Path) -> None:
    installation = Installation(tmp_path, trusted_proxies="127.0.0.0/8")
    installation.initialise()
    with installation:
        account = make_administrator(installation)
        here, there = (proxied(installation, f"192.0.2.{number}") for number in (1, 2))
        statuses = [here.sign_in(account.username, "wrong").status for _ in range(6)]
        assert statuses == [401] * 5 + [429]
        assert here.sign_in(account.username).status == 429
        unknown = [here.sign_in("nobody", "wrong").status for _ in range(6)]
        assert unknown == [401] * 5 + [429]
        assert there.sign_in(account.username).status == 201
    with installation:  # a restart does not forget
        assert here.sign_in(account.username).status == 429


def test_a_trusted_device_is_not_locked_out_by_others(tmp_path: Path) -> None:
    installation = Installation(tmp_path, trusted_proxies="127.0.0.0/8")
    installation.initialise()
    with installation:
        account = make_administrator(installation)
        mine = proxied(installation, "192.0.2.1")
        mine.sign_in(account.username)
        mine.enrol()
        mine.delete("/v1/admin/session")
        mine.sign_in(account.username)
        given = {"code": mine.next_code(), "trust_device": True}
        assert mine.post("/v1/admin/session/totp", given).status == 200
        attacker = proxied(installation, "192.0.2.1")
        while attacker.sign_in(account.username, "wrong").status != 429:
            pass
        assert mine.sign_in(account.username).json["stage"] == "signed_in"


def test_the_browser_of_a_session_that_ran_out_is_not_locked_out_by_others(
    tmp_path: Path,
) -> None:
    installation = Installation(tmp_path, trusted_proxies="127.0.0.0/8")
    installation.initialise()
    with installation:
        account = make_administrator(installation, role=Role.VIEWER)
        mine = proxied(installation, "192.0.2.1")
        session_id = mine.sign_in(account.username).json["session_id"]
        use_stores(installation, lambda stores: stores.sessions.touch(session_id, 0))
        assert mine.get("/v1/admin/session").status == 401
        attacker = proxied(installation, "192.0.2.1")
        while attacker.sign_in(account.username, "wrong").status != 429:
            pass
        assert attacker.sign_in(account.username).status == 429
        other = make_administrator(installation, role=Role.VIEWER)
        assert mine.sign_in(account.username).json["stage"] == "signed_in"
        # It is known for its own account alone, and has no more attempts than others have.
        while attacker.sign_in(other.username, "wrong").status != 429:
            pass
        assert mine.sign_in(other.username).status == 429
        statuses = [mine.sign_in(account.username, "wrong").status for _ in range(11)]
        assert statuses == [401] * 10 + [429]


def proxied(installation: Installation, address: str) -> Browser:
    headers = {"X-Forwarded-For": address, "X-Forwarded-Proto": "https"}
    return Browser(installation.port, headers=headers)


def test_old_hashes_are_accepted_and_replaced(server: Server) -> None:
    old = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    account = make_administrator(server.installation, password_hash=old)
    assert Browser(server.installation.port).sign_in(account.username, "wrong").status == 401
    assert Browser(server.installation.port).sign_in(account.username).status == 201
    assert stored_hash(server, account.id).startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert Browser(server.installation.port).sign_in(account.username).status == 201


def stored_hash(server: Server, administrator_id: str) -> str:
    account = use_stores(server.installation, lambda stores: stores.accounts.get(administrator_id))
    assert account is not None
    return account.password_hash or ""


def test_a_request_without_the_token_of_the_session_changes_nothing(server: Server) -> None:
    browser = sign_in(server.installation)
    token = browser.csrf_token
    other = sign_in(server.installation)
    for wrong in ("", "wrong", other.csrf_token):
        browser.csrf_token = wrong
        refused = browser.delete("/v1/admin/sessions")
        assert code_of(refused) == (403, "cross_site_request")
    browser.csrf_token = token
    assert browser.get("/v1/admin/session").status == 200


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:{port}"}, False),
        ({"Origin": "http://127.0.0.1:{port}"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({}, True),
    ],
)
def test_a_request_of_another_site_is_refused(
    server: Server, headers: dict[str, str], *, is_ours: bool
) -> None:
    port = server.installation.port
    sent = {name: value.format(port=port) for name, value in headers.items()}
    account = make_administrator(server.installation, role=Role.VIEWER)
    browser = Browser(port, headers=sent)
    signed_in = browser.sign_in(account.username)
    assert signed_in.status == (201 if is_ours else 403)
    browser = sign_in(server.installation, account)
    confirmed = browser.post("/v1/admin/session/confirm", {"password": PASSWORD}, headers=sent)
    assert confirmed.status == (204 if is_ours else 403)


def test_an_api_key_needs_no_token(server: Server) -> None:
    """Browsers send no `Authorization` by themselves."""
    viewer = server.make_admin(Role.EDITOR)
    app = {"Clarion-App": server.first["app"]["id"], "Sec-Fetch-Site": "cross-site"}
    assert viewer.ask("PUT", "/v1/users/by-admin", {}, headers=app).status in (200, 201)


def test_signing_in_again_ends_the_session_of_this_browser(server: Server) -> None:
    account = make_administrator(server.installation, role=Role.VIEWER)
    browser = sign_in(server.installation, account)
    before = dict(browser.cookies)
    assert browser.sign_in(account.username).status == 201
    old = Browser(server.installation.port, cookies=before)
    assert code_of(old.get("/v1/admin/session")) == (401, "unauthenticated")
    assert browser.get("/v1/admin/session").status == 200


def test_signing_out_ends_the_session(server: Server) -> None:
    browser = sign_in(server.installation)
    kept = dict(browser.cookies)
    assert browser.delete("/v1/admin/session").status == 204
    again = Browser(server.installation.port, cookies=kept)
    assert code_of(again.get("/v1/admin/session")) == (401, "unauthenticated")


def test_sessions_are_listed_and_ended(server: Server) -> None:
    account = make_administrator(server.installation, role=Role.VIEWER)
    browsers = [sign_in(server.installation, account) for _ in range(3)]
    items = browsers[0].get("/v1/admin/sessions").json["items"]
    assert [item["is_current"] for item in items] == [False, False, True]
    assert items[2]["address"] == browsers[0].address
    assert browsers[0].delete(f"/v1/admin/sessions/{items[0]['id']}").status == 204
    assert [each.get("/v1/admin/session").status for each in browsers] == [200, 200, 401]
    others = sign_in(server.installation)
    assert others.delete(f"/v1/admin/sessions/{items[1]['id']}").status == 404
    assert browsers[0].delete("/v1/admin/sessions").json == {"ended": 2}
    assert [each.get("/v1/admin/session").status for each in browsers] == [401, 401, 401]


def test_a_session_ends_when_it_is_not_used_and_at_last(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.initialise()
    with installation:
        idle, old = (sign_in(installation, role=Role.VIEWER) for _ in range(2))
        path = str(installation.data / "clarion.db")
        ids = [each.get("/v1/admin/session").json["session_id"] for each in (idle, old)]
        move_back(path, "last_seen_at", 30 * 60_000, ids[0])
        move_back(path, "expires_at", 12 * 3600_000, ids[1])
        for browser in (idle, old):
            assert code_of(browser.get("/v1/admin/session")) == (401, "unauthenticated")


def move_back(database: str, column: str, by_ms: int, session_id: str) -> None:
    connection = apsw.Connection(database)
    connection.set_busy_timeout(5_000)  # the server writes, too
    connection.execute(
        f"UPDATE admin_sessions SET {column} = {column} - ? WHERE id = ?",  # noqa: S608
        (by_ms, session_id),
    )
    connection.close()


def test_a_new_password_ends_other_sessions_and_renews_this_one(server: Server) -> None:
    account = make_administrator(server.installation, role=Role.VIEWER)
    mine, other = (sign_in(server.installation, account) for _ in range(2))
    before = mine.cookies[SESSION]
    change = {"current_password": "wrong", "password": "another good one"}
    assert code_of(mine.ask("PUT", "/v1/admin/password", change)) == (401, "sign_in_failed")
    weak = change | {"current_password": PASSWORD, "password": "superman"}
    assert mine.ask("PUT", "/v1/admin/password", weak).fields == ["password"]
    changed = mine.ask("PUT", "/v1/admin/password", change | {"current_password": PASSWORD})
    assert (changed.status, changed.json["stage"]) == (200, "signed_in")
    assert mine.cookies[SESSION] != before
    assert mine.get("/v1/admin/session").status == 200
    assert other.get("/v1/admin/session").status == 401
    browser = Browser(server.installation.port)
    assert browser.sign_in(account.username).status == 401
    assert browser.sign_in(account.username, "another good one").status == 201


def test_what_is_sensitive_needs_the_password_again(server: Server) -> None:
    browser = sign_in(server.installation)
    session_id = browser.get("/v1/admin/session").json["session_id"]
    use_stores(server.installation, lambda stores: stores.sessions.confirm(session_id, 0))
    sensitive: list[tuple[str, str, Any]] = [
        ("POST", "/v1/admin/totp", None),
        ("DELETE", "/v1/admin/totp", None),
        ("POST", "/v1/admin/recovery-codes", None),
        ("POST", "/v1/admin/keys", {"label": "new", "role": "viewer"}),
        ("POST", "/v1/admin/administrators", {"username": "eve", "role": "admin"}),
        ("PATCH", "/v1/admin/administrators/x", {"role": "admin"}),
        ("POST", "/v1/admin/administrators/x/reset", {}),
        ("DELETE", "/v1/admin/administrators/x", None),
    ]
    for operation in sensitive:
        assert code_of(browser.ask(*operation)) == (403, "confirmation_required"), operation
    wrong = browser.post("/v1/admin/session/confirm", {"password": "wrong"})
    assert code_of(wrong) == (401, "sign_in_failed")
    assert browser.post("/v1/admin/session/confirm", {"password": PASSWORD}).status == 204
    assert browser.post("/v1/admin/recovery-codes").status == 201


def test_a_session_creates_credentials_of_apps_only_with_a_recent_password(server: Server) -> None:
    browser = sign_in(server.installation)
    session_id = browser.get("/v1/admin/session").json["session_id"]
    app_id, named = server.first["app"]["id"], {"Clarion-App": server.first["app"]["id"]}
    use_stores(server.installation, lambda stores: stores.sessions.confirm(session_id, 0))
    creating: list[tuple[str, dict[str, Any]]] = [
        ("/v1/keys", {"label": "new", "scopes": ["*"]}),
        ("/v1/keys/x/rotate", {}),
        (f"/v1/apps/{app_id}/user-keys", {}),
        (f"/v1/apps/{app_id}/user-keys/x/rotate", {}),
        (f"/v1/apps/{app_id}/provider-keys", {}),
        (f"/v1/apps/{app_id}/provider-keys/x/rotate", {}),
        ("/v1/apps", {"name": "new", "bundle_id": f"com.example.{session_id}"}),
    ]
    for path, body in creating:
        answer = browser.post(path, body, headers=named)
        assert code_of(answer) == (403, "confirmation_required"), path
    assert browser.post("/v1/admin/session/confirm", {"password": PASSWORD}).status == 204
    assert browser.post(*creating[0], headers=named).status == 201


def test_the_dashboard_asks_for_the_password_before_it_makes_a_key(server: Server) -> None:
    browser = sign_in(server.installation)
    session_id = browser.get("/v1/admin/session").json["session_id"]
    use_stores(server.installation, lambda stores: stores.sessions.confirm(session_id, 0))
    keys = f"/admin/apps/{server.first['app']['id']}/keys"
    leads_to = {
        keys: keys,
        f"{keys}/x/rotate": keys,
        "/admin/new-app": "/admin/new-app",
        "/admin/new-administrator": "/admin/new-administrator",
    }
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = {"csrf_token": browser.csrf_token, "label": "new", "scopes": "*", "username": "eve"}
    for path, back in leads_to.items():
        shown = browser.post(path, urlencode(fields).encode(), headers=form)
        assert (shown.status, shown.headers["location"]) == (303, f"/admin/confirm?next={back}")


def test_what_an_admin_key_creates_does_not_outlive_it(server: Server) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    browser = sign_in(server.installation)
    new_key = {"label": "ci", "role": "admin", "expires_at": until}
    made = browser.post("/v1/admin/keys", new_key).json
    client, ends = server.with_key(made["api_key"]), made["expires_at"]
    body = {"name": "new", "bundle_id": f"com.example.{made['id']}"}
    app = client.post("/v1/apps", body).json
    assert app["keys_expire_at"] == ends
    named, new = {"Clarion-App": app["id"]}, {"label": "new", "scopes": ["*"]}
    first, second = client.get("/v1/keys", headers=named).json["items"] + [
        client.post("/v1/keys", new, headers=named).json
    ]
    rotated = client.post(f"/v1/keys/{first['id']}/rotate", {}, headers=named).json
    assert [each["expires_at"] for each in (first, second, rotated)] == [ends] * 3
    longer = client.post("/v1/keys", new | {"expires_at": "2099-01-01T00:00:00Z"}, headers=named)
    assert (longer.status, longer.fields) == (422, ["expires_at"])
    for kind, name in (("user-keys", app["user_key_id"]), ("provider-keys", app["key_id"])):
        path = f"/v1/apps/{app['id']}/{kind}"
        (old,) = client.get(path).json["items"]
        created = [client.post(path, {}).json, client.post(f"{path}/{name}/rotate", {}).json]
        assert [each["expires_at"] for each in (old, *created)] == [ends] * 3


def test_a_key_of_an_app_passes_its_end_on(server: Server) -> None:
    new, until = {"label": "new", "scopes": ["*"]}, datetime.now(UTC) + timedelta(hours=1)
    made = server.app.post("/v1/keys", new | {"expires_at": until.isoformat()}).json
    lasting = server.app.post("/v1/keys", new).json
    client = server.with_key(made["api_key"])
    children = [
        client.post("/v1/keys", new).json,
        client.post(f"/v1/keys/{lasting['id']}/rotate", {}).json,
    ]
    assert [each["expires_at"] for each in children] == [made["expires_at"]] * 2
    assert (
        server.make_admin()
        .post("/v1/keys", new, headers={"Clarion-App": server.first["app"]["id"]})
        .json["expires_at"]
        is None
    )


def test_the_password_cannot_be_guessed_with_a_stolen_session(server: Server) -> None:
    browser = sign_in(server.installation, role=Role.VIEWER)
    statuses = [
        browser.post("/v1/admin/session/confirm", {"password": "wrong"}).status for _ in range(6)
    ]
    assert statuses == [401] * 5 + [429]


def test_an_authenticator_app_can_be_replaced(server: Server) -> None:
    account = make_administrator(server.installation)
    browser = sign_in(server.installation, account)
    old = browser.secret
    browser.enrol()
    assert browser.secret != old
    assert browser.post("/v1/admin/totp/confirm", {"code": "000000"}).status == 409
    begun = browser.post("/v1/admin/totp")
    assert begun.status == 201
    refused = browser.post("/v1/admin/totp/confirm", {"code": "abc"})
    assert (refused.status, refused.fields) == (422, ["code"])
    # Until then, codes of the old one are accepted.
    again = Browser(server.installation.port, secret=browser.secret, last_step=browser.last_step)
    again.sign_in(account.username)
    assert again.post("/v1/admin/session/totp", {"code": again.next_code()}).status == 200


def test_who_needs_a_second_factor_cannot_remove_it(server: Server) -> None:
    admin = sign_in(server.installation)
    assert code_of(admin.delete("/v1/admin/totp")) == (409, "conflict")
    viewer = sign_in(server.installation, role=Role.VIEWER)
    viewer.enrol()
    assert viewer.delete("/v1/admin/totp").status == 204
    assert viewer.get("/v1/admin/session").json["stage"] == "signed_in"


def test_new_recovery_codes_replace_the_old_ones(server: Server) -> None:
    account = make_administrator(server.installation)
    browser = Browser(server.installation.port)
    browser.sign_in(account.username)
    old = browser.enrol()
    new = browser.post("/v1/admin/recovery-codes").json["recovery_codes"]
    assert len({*old, *new}) == 20
    browser = Browser(server.installation.port)
    browser.sign_in(account.username)
    statuses = [
        browser.post("/v1/admin/session/totp", {"code": code}).status for code in (old[0], new[0])
    ]
    assert statuses == [401, 200]


def test_roles_decide_what_an_administrator_may_do_with_an_app(server: Server) -> None:
    app = {"Clarion-App": server.first["app"]["id"]}
    key = {"label": "by admin", "scopes": ["stats:read"]}
    statuses = {
        role: [
            server.make_admin(role).get("/v1/types", headers=app).status,
            server.make_admin(role).ask("PUT", "/v1/users/x", {}, headers=app).status in (200, 201),
            server.make_admin(role).post("/v1/keys", key, headers=app).status,
        ]
        for role in Role
    }
    assert statuses == {
        Role.VIEWER: [200, False, 403],
        Role.EDITOR: [200, True, 403],
        Role.ADMIN: [200, True, 201],
    }


def test_a_role_for_one_app_shows_nothing_of_others(server: Server) -> None:
    mine, other = server.make_app(), server.first["app"]
    admin = server.make_admin_of({mine["id"]: Role.ADMIN})
    assert admin.get("/v1/keys", headers={"Clarion-App": mine["id"]}).status == 200
    for app_id in (other["id"], "00000000-0000-7000-8000-000000000000", "x"):
        refused = admin.get("/v1/keys", headers={"Clarion-App": app_id})
        assert code_of(refused) == (404, "not_found")
    assert code_of(admin.get("/v1/admin/administrators")) == (403, "forbidden")
    operator = server.make_admin()
    missing = operator.get("/v1/keys", headers={"Clarion-App": "x"})
    assert code_of(missing) == (404, "not_found")


def test_an_app_must_be_named(server: Server) -> None:
    refused = server.make_admin().get("/v1/keys")
    assert (refused.status, refused.fields) == (422, ["Clarion-App"])


def test_a_key_may_do_no_more_than_its_role_and_its_owner(server: Server) -> None:
    account = make_administrator(server.installation, role=Role.EDITOR)
    browser = sign_in(server.installation, account)
    made = browser.post("/v1/admin/keys", {"label": "ci", "role": "viewer"})
    assert made.status == 201
    assert made.json["api_key"].startswith("cak_")
    app = {"Clarion-App": server.first["app"]["id"]}
    client = server.with_key(made.json["api_key"])
    assert client.get("/v1/types", headers=app).status == 200
    assert client.ask("PUT", "/v1/users/x", {}, headers=app).status == 403
    too_much = browser.post("/v1/admin/keys", {"label": "ci", "role": "admin"})
    assert (too_much.status, too_much.fields) == (422, ["role"])
    (item,) = browser.get("/v1/admin/keys").json["items"]
    assert item["last_used_at"] is not None
    assert "api_key" not in item
    assert browser.delete(f"/v1/admin/keys/{item['id']}").json["revoked_at"]
    assert code_of(client.get("/v1/types", headers=app)) == (401, "unauthenticated")


def test_a_repeated_request_gets_the_same_key(server: Server) -> None:
    browser = sign_in(server.installation, role=Role.VIEWER)
    body, once = {"label": "ci", "role": "viewer"}, {"Idempotency-Key": "one"}
    first, again = (browser.post("/v1/admin/keys", body, headers=once) for _ in range(2))
    assert first.json == again.json
    assert again.headers["idempotent-replayed"] == "true"
    other = sign_in(server.installation, role=Role.VIEWER)
    theirs = other.post("/v1/admin/keys", body, headers=once)
    assert theirs.json["api_key"] != first.json["api_key"]


@pytest.mark.parametrize("key", ["cak_", "cak_x", "cak_" + "0" * 16 + "_" + "0" * 43])
def test_a_wrong_key_is_refused(server: Server, key: str) -> None:
    assert code_of(server.with_key(key).get("/v1/caller")) == (401, "unauthenticated")


def test_a_key_is_no_way_to_other_credentials(server: Server) -> None:
    client = server.make_admin()
    operations: list[tuple[str, str, Any]] = [
        ("GET", "/v1/admin/sessions", None),
        ("DELETE", "/v1/admin/sessions", None),
        ("DELETE", "/v1/admin/session", None),
        ("POST", "/v1/admin/totp", None),
        ("PUT", "/v1/admin/password", {"current_password": PASSWORD, "password": "new one 123"}),
        ("POST", "/v1/admin/keys", {"label": "new", "role": "viewer"}),
        ("POST", "/v1/admin/administrators", {"username": "eve", "role": "admin"}),
        ("POST", "/v1/admin/administrators/x/reset", {}),
    ]
    for operation in operations:
        assert code_of(client.ask(*operation)) == (403, "forbidden"), operation
    assert client.get("/v1/admin/administrators").status == 200


def test_administrators_are_created_changed_reset_and_deleted(server: Server) -> None:
    admin = sign_in(server.installation)
    app_id = server.first["app"]["id"]
    name = make_administrator(server.installation).username + "-2"
    made = admin.post(
        "/v1/admin/administrators", {"username": name, "app_roles": {app_id: "editor"}}
    )
    assert (made.status, made.json["has_password"]) == (201, False)
    path = f"/v1/admin/administrators/{made.json['id']}"
    bob = Browser(server.installation.port)
    setup = {"token": token_of(made.json["setup_url"]), "password": PASSWORD}
    assert bob.post("/v1/admin/setup", setup).json["stage"] == "signed_in"
    assert bob.get("/v1/types", headers={"Clarion-App": app_id}).status == 200
    # A change of the role ends the session.
    changed = admin.ask("PATCH", path, {"role": "admin", "app_roles": {}})
    assert (changed.json["role"], changed.json["app_roles"]) == ("admin", {})
    assert bob.get("/v1/admin/session").status == 401
    assert bob.sign_in(name).json["stage"] == "needs_enrolment"
    bob.enrol()
    # A reset keeps the second factor.
    reset = admin.post(f"{path}/reset", {})
    assert bob.sign_in(name).status == 401
    setup = {"token": token_of(reset.json["setup_url"]), "password": "another good one"}
    assert bob.post("/v1/admin/setup", setup).json["stage"] == "needs_totp"
    reset = admin.post(f"{path}/reset", {"totp": True})
    setup = {"token": token_of(reset.json["setup_url"]), "password": "another good one"}
    assert bob.post("/v1/admin/setup", setup).json["stage"] == "needs_enrolment"
    assert admin.ask("PATCH", path, {"is_active": False}).json["is_active"] is False
    assert bob.sign_in(name, "another good one").status == 401
    assert admin.delete(path).status == 204
    assert admin.get(path).status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"username": "Bob Smith"}, "username"),
        ({"username": "bob", "networks": ["nonsense"]}, "networks"),
        ({"username": "bob", "app_roles": {"x": "viewer"}}, "app_roles.x"),
        ({"username": "bob", "role": "owner"}, "role"),
        ({"username": "bob", "password": "secret"}, "password"),
    ],
)
def test_a_faulty_administrator_is_refused(
    server: Server, body: dict[str, Any], field: str
) -> None:
    refused = sign_in(server.installation).post("/v1/admin/administrators", body)
    assert (refused.status, refused.fields) == (422, [field])


def test_an_account_can_be_limited_to_networks(server: Server) -> None:
    admin = sign_in(server.installation)
    account = make_administrator(server.installation, role=Role.VIEWER)
    browser = sign_in(server.installation, account)
    path = f"/v1/admin/administrators/{account.id}"
    assert admin.ask("PATCH", path, {"networks": ["203.0.113.0/24"]}).status == 200
    assert browser.sign_in(account.username).status == 401
    assert admin.ask("PATCH", path, {"networks": ["127.0.0.0/8"]}).status == 200
    assert browser.sign_in(account.username).status == 201


def test_an_installation_can_be_limited_to_networks(tmp_path: Path) -> None:
    installation = Installation(tmp_path, admin_networks="203.0.113.0/24")
    first = installation.initialise()
    with installation:
        key, account = make_key(installation), make_administrator(installation)
        client = Asker(installation.port, key)
        assert code_of(client.get("/v1/caller")) == (403, "address_not_allowed")
        refused = Browser(installation.port).sign_in(account.username)
        assert code_of(refused) == (403, "address_not_allowed")
        app = Asker(installation.port, first["app"]["api_key"])
        assert app.get("/v1/caller").status == 200


def test_plain_http_is_refused_beyond_this_machine(server: Server) -> None:
    """A proxy that is not trusted may have been reached from anywhere."""
    account = make_administrator(server.installation)
    browser = Browser(server.installation.port, headers={"X-Forwarded-For": "192.0.2.7"})
    assert code_of(browser.sign_in(account.username)) == (403, "insecure_transport")
    pretended = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    browser = Browser(server.installation.port, headers=pretended)
    assert code_of(browser.sign_in(account.username)) == (403, "insecure_transport")
    key = server.make_admin()
    refused = key.get("/v1/caller", headers={"Host": "clarion.example"})
    assert code_of(refused) == (403, "insecure_transport")


def test_tls_is_accepted_from_anywhere(server: Server) -> None:
    account = make_administrator(server.installation)
    context = ssl.create_default_context(cafile=server.first["tls"]["ca_path"])
    port = server.installation.tls_port
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    body = json.dumps({"username": account.username, "password": PASSWORD})
    headers = {"Content-Type": "application/json", "X-Forwarded-For": "192.0.2.7"}
    connection.request("POST", "/v1/admin/session", body, headers)
    assert connection.getresponse().status == 201
    connection.close()


def test_no_secret_of_an_administrator_is_logged(server: Server) -> None:
    browser = sign_in(server.installation)
    browser.post("/v1/admin/session/confirm", {"password": PASSWORD})
    browser.sign_in("canary-name", "canary-password")
    log = server.installation.log.read_text()
    for secret in (PASSWORD, "canary-name", "canary-password", browser.secret, browser.csrf_token):
        assert secret not in log


def test_get_changes_nothing(server: Server) -> None:
    """Browsers send cookies with links of other sites; those must have no effect."""
    paths = server.anyone.get("/openapi.json").json["paths"]
    admin = [path for path in paths if path.startswith("/v1/admin/") and "get" in paths[path]]
    browser = sign_in(server.installation)
    before = browser.get("/v1/admin/session").json
    for path in admin:
        browser.get(path.replace("{administrator_id}", before["administrator_id"]))
    assert browser.get("/v1/admin/session").json == before


def test_two_nodes_agree(postgres_url: str, tmp_path: Path) -> None:
    name = f"admins_{uuid.uuid4().hex}"
    run_apart(run_sql(postgres_url, f"CREATE DATABASE {name}"))
    url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    one = Installation(tmp_path / "one", database=url)
    two = Installation(tmp_path / "two", database=url)
    try:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        one.initialise()
        two.data.mkdir(mode=0o700)
        (two.data / "master.key").write_bytes((one.data / "master.key").read_bytes())
        (two.data / "master.key").chmod(0o600)
        with one, two:
            check_two_nodes(one, two)
    finally:
        run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


def check_two_nodes(one: Installation, two: Installation) -> None:
    account = make_administrator(one)
    first = sign_in(one, account)
    elsewhere = Browser(two.port, cookies=first.cookies, csrf_token=first.csrf_token)
    assert elsewhere.get("/v1/admin/session").status == 200
    # A code that was used on one node is refused on the other.
    code, statuses = first.next_code(), []
    for node in (one, two):
        browser = Browser(node.port)
        browser.sign_in(account.username)
        statuses.append(browser.post("/v1/admin/session/totp", {"code": code}).status)
    assert statuses == [200, 401]
    # What ends on one node has ended on the other.
    assert elsewhere.delete("/v1/admin/sessions").status == 200
    assert first.get("/v1/admin/session").status == 401
    # Failures are counted together.
    nodes = [Browser(node.port, address="127.0.0.9") for node in (one, two)]
    statuses = [nodes[turn % 2].sign_in("nobody", "wrong").status for turn in range(7)]
    assert statuses == [401] * 5 + [429] * 2
