"""Administrators see what changed about their account since they signed in before."""

from typing import Any
from urllib.parse import urlencode

import pytest

from clarion.access.administrators.model import Administrator
from clarion.access.model import Role
from tests.e2e.administrators import PASSWORD, Browser, make_administrator, sign_in
from tests.e2e.asking import Answer
from tests.e2e.conftest import Server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
CHANGES = "/v1/admin/account-changes"


@pytest.fixture
def ana(server: Server) -> Administrator:
    return make_administrator(server.installation, Role.VIEWER)


@pytest.fixture
def bo(server: Server) -> Browser:
    return sign_in(server.installation, role=Role.ADMIN)


def change_role(bo: Browser, account: Administrator, role: str = "editor") -> None:
    path = f"/v1/admin/administrators/{account.id}"
    assert bo.ask("PATCH", path, {"role": role}).status == 200


def sign_in_by_form(server: Server, account: Administrator) -> tuple[Browser, Answer]:
    """Return the browser, and the page that follows the sign-in."""
    browser = Browser(server.installation.port)
    body = urlencode({"username": account.username, "password": PASSWORD, "next": "/admin/account"})
    answer = browser.ask("POST", "/admin/sign-in", body.encode(), headers=FORM)
    assert answer.headers["location"] == "/admin/changes?next=/admin/account"
    return browser, browser.get(answer.headers["location"])


def list_changes(browser: Browser) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = browser.get(CHANGES).json["items"]
    return items


def show(items: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    return [(each["action"], each["is_new"]) for each in items]


def test_without_changes_a_sign_in_leads_on(server: Server, ana: Administrator) -> None:
    browser, answer = sign_in_by_form(server, ana)
    assert (answer.status, answer.headers["location"]) == (303, "/admin/account")
    assert b"Changes to your account" not in browser.get("/admin/account").body


def test_a_sign_in_shows_what_changed_since_the_one_before(
    server: Server, ana: Administrator, bo: Browser
) -> None:
    sign_in_by_form(server, ana)
    change_role(bo, ana)
    browser, answer = sign_in_by_form(server, ana)
    who = bo.get("/v1/admin/session").json["username"]
    shown = answer.body.decode()
    assert answer.status == 200
    for text in ("administrator.update", who, bo.address, 'href="/admin/account"'):
        assert text in shown
    page = browser.get("/admin/account").body.decode()
    assert "administrator.update" in page
    assert "Sign out everywhere" in page
    assert f"/admin/audit-log?actor_id={ana.id}" in page
    # Next time it is known.
    browser, answer = sign_in_by_form(server, ana)
    assert (answer.status, answer.headers["location"]) == (303, "/admin/account")
    assert show(list_changes(browser)) == [("administrator.update", False)]


def test_what_others_change_about_others_is_not_shown(
    server: Server, ana: Administrator, bo: Browser
) -> None:
    change_role(bo, make_administrator(server.installation))
    assert list_changes(sign_in(server.installation, ana)) == []
    assert "administrator.update" not in {each["action"] for each in list_changes(bo)}


def test_own_changes_are_shown_as_ones_own(server: Server, ana: Administrator) -> None:
    browser = sign_in(server.installation, ana)
    given = {"current_password": PASSWORD, "password": "another good one"}
    assert browser.ask("PUT", "/v1/admin/password", given).status == 200
    key = browser.post("/v1/admin/keys", {"label": "new", "role": "viewer"})
    assert key.status == 201
    browser.delete(f"/v1/admin/keys/{key.json['id']}")
    items = list_changes(browser)
    actions = ["admin_key.revoke", "admin_key.create", "password.change"]
    assert [each["action"] for each in items] == actions
    own = {"kind": "administrator", "id": ana.id, "username": ana.username}
    assert [(each["actor"], each["address"]) for each in items] == [(own, browser.address)] * 3
    assert b'<td data-label="Who">you</td>' in browser.get("/admin/account").body


def test_whoever_knows_only_the_password_hides_no_change(server: Server, bo: Browser) -> None:
    """A sign-in counts when it is finished."""
    account = make_administrator(server.installation, Role.ADMIN)
    browser = Browser(server.installation.port)
    browser.sign_in(account.username)
    codes = browser.enrol()
    change_role(bo, account)
    assert Browser(server.installation.port).sign_in(account.username).status == 201
    change = ("administrator.update", True)
    for code, is_new in zip(codes, (True, False), strict=False):
        assert browser.sign_in(account.username).json["stage"] == "needs_totp"
        assert browser.post("/v1/admin/session/totp", {"code": code}).status == 200
        assert (change in show(list_changes(browser))) is is_new


def test_a_reset_by_a_command_is_shown_and_who_used_the_link(
    server: Server, ana: Administrator
) -> None:
    done = server.installation.run("admin", "reset", ana.username)
    assert done.returncode == 0, done.stderr
    browser = Browser(server.installation.port)
    token = done.stdout.strip().rpartition("#")[2]
    answer = browser.post("/v1/admin/setup", {"token": token, "password": "another good one"})
    assert answer.status == 201
    items = list_changes(browser)
    assert [each["action"] for each in items] == ["administrator.set_up", "admin.reset"]
    assert items[1]["actor"]["kind"] == "command"
    assert b"by a command on the server" in browser.get("/admin/account").body


def test_an_admin_api_key_and_an_app_get_none(server: Server) -> None:
    assert server.app.get(CHANGES).status == 403
    assert server.anyone.get(CHANGES).status == 401
