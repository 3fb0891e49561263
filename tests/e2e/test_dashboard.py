"""The dashboard over HTTP: every page of its table by everybody, and what other sites can do."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from clarion.access.model import SCOPES_OF, Role, Scope
from clarion.admin.page import AdminPage
from clarion.admin.pages.table import PAGES
from clarion.admin.permissions import Open
from tests.e2e.administrators import Browser, make_administrator, sign_in
from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
POLICY = {"default-src 'none'", "script-src 'self'", "object-src 'none'", "base-uri 'none'"}
GUARDED = [page for page in PAGES if not isinstance(page.needs, Open)]
SIGN_IN = "/admin/sign-in"
OVERVIEW = "/admin/apps/{app_id}/overview"


def path_of(server: Server, page: AdminPage) -> str:
    """Return the path with the app, and other ids that do not exist."""
    path = page.path.replace("{app_id}", server.first["app"]["id"])
    return re.sub(r"\{\w+\}", "none", path)


def open_page(asker: Asker | Browser, page: AdminPage, path: str, **fields: str) -> Answer:
    body = urlencode(fields).encode() if page.method == "POST" else None
    return asker.ask(page.method, path, body, headers=FORM if body is not None else {})


@pytest.fixture(scope="module")
def browsers(server: Server) -> dict[Role, Browser]:
    """A browser of each role for all apps."""
    return {role: sign_in(server.installation, role=role) for role in Role}


def test_without_a_session_every_page_leads_to_the_sign_in(server: Server) -> None:
    # A key of the app is no session.
    for asker, page in product((server.anyone, server.app), GUARDED):
        answer = open_page(asker, page, path_of(server, page), a="1")
        assert (answer.status, answer.body) == (303, b""), page
        assert answer.headers["location"].startswith(SIGN_IN)


def test_a_sign_in_that_is_not_finished_opens_no_page(server: Server) -> None:
    account = make_administrator(server.installation)
    browser = Browser(server.installation.port)
    assert browser.sign_in(account.username).json["stage"] == "needs_enrolment"
    for page in GUARDED:
        answer = open_page(browser, page, path_of(server, page), csrf_token=browser.csrf_token)
        assert (answer.status, answer.headers["location"]) == (303, "/admin/second-factor"), page


def allowed(page: AdminPage, role: Role) -> bool:
    if isinstance(page.needs, Scope):
        return page.needs in SCOPES_OF[role]
    return not isinstance(page.needs, Role) or role.covers(page.needs)


@pytest.mark.parametrize("role", Role)
def test_a_page_is_for_the_roles_that_may_use_it(
    server: Server, browsers: dict[Role, Browser], role: Role
) -> None:
    browser = browsers[role]
    for page in GUARDED:
        answer = open_page(browser, page, path_of(server, page), csrf_token=browser.csrf_token)
        assert (answer.status == 403) is not allowed(page, role), (page, answer.body)
        assert answer.status < 500, page


def test_pages_of_an_app_are_not_there_for_administrators_of_another(server: Server) -> None:
    app = server.make_app_by_command()
    other = sign_in(server.installation, role=None, app_roles={app["id"]: Role.ADMIN})
    for page in GUARDED:
        if isinstance(page.needs, Scope):
            answer = open_page(other, page, path_of(server, page), csrf_token=other.csrf_token)
            assert answer.status == 404, page


@pytest.mark.parametrize(
    "site",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://x.example"},
    ],
)
def test_other_sites_change_nothing(
    server: Server, browsers: dict[Role, Browser], site: dict[str, str]
) -> None:
    browser = browsers[Role.ADMIN]
    body = urlencode({"csrf_token": browser.csrf_token}).encode()
    for page in PAGES:
        if page.method == "POST":
            answer = browser.ask("POST", path_of(server, page), body, headers=FORM | site)
            assert answer.status == 403, page
            assert b"another site" in answer.body


@pytest.mark.parametrize("token", ["", "x" * 43])
def test_nothing_changes_without_the_token_of_the_session(
    server: Server, browsers: dict[Role, Browser], token: str
) -> None:
    browser = Browser(server.installation.port, cookies=dict(browsers[Role.ADMIN].cookies))
    for page in GUARDED:
        if page.method == "POST":
            answer = open_page(browser, page, path_of(server, page), csrf_token=token)
            assert answer.status == 403, page


def pages_to_look_at(server: Server) -> Iterator[str]:
    yield from (path_of(server, page) for page in PAGES if page.method == "GET")
    yield "/admin/nowhere"


def test_every_page_has_the_policy_and_is_not_stored(
    server: Server, browsers: dict[Role, Browser]
) -> None:
    for path in pages_to_look_at(server):
        headers = browsers[Role.ADMIN].get(path).headers
        assert set(headers["content-security-policy"].split("; ")) >= POLICY, path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"


def test_no_page_loads_anything_from_elsewhere_or_has_a_script_in_it(
    server: Server, browsers: dict[Role, Browser]
) -> None:
    for path in pages_to_look_at(server):
        text = browsers[Role.ADMIN].get(path).body.decode()
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]*)"', text)
        assert [each for each in loaded if not each.startswith("/admin/static/")] == []
        assert re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|<style", text) is None, path


def test_files_are_cached_for_ever_and_others_are_not_there(server: Server) -> None:
    text = server.anyone.get(SIGN_IN).body.decode()
    (path,) = re.findall(r'href="(/admin/static/[0-9a-f]{16}/dashboard.css)"', text)
    answer = server.anyone.get(path)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in answer.headers["cache-control"]
    for wrong in ("/admin/static/", "/admin/static/x/dashboard.css", f"{path}/../../../app.py"):
        assert server.anyone.get(wrong).status == 404


def test_the_root_leads_to_the_dashboard(server: Server) -> None:
    answer = server.anyone.get("/")
    assert (answer.status, answer.headers["location"]) == (303, "/admin")


@pytest.mark.parametrize("path", [SIGN_IN, "/admin", OVERVIEW])
def test_over_plain_http_it_is_for_this_machine_only(server: Server, path: str) -> None:
    answer = server.anyone.get(path, headers={"X-Forwarded-For": "192.0.2.7"})
    assert answer.status == 403
    assert b"https URL" in answer.body


@pytest.mark.parametrize(
    "path", ["https://x.example", "//x.example", "/admin//x.example", "/\\x.example", "/v1/apps"]
)
def test_a_sign_in_leads_back_to_pages_of_the_dashboard_only(server: Server, path: str) -> None:
    account = make_administrator(server.installation, Role.VIEWER)
    fields: dict[str, Any] = {"username": account.username, "password": "correct horse battery"}
    browser = Browser(server.installation.port)
    body = urlencode(fields | {"next": path}).encode()
    answer = browser.ask("POST", SIGN_IN, body, headers=FORM)
    assert (answer.status, answer.headers["location"]) == (303, "/admin/changes?next=/admin")
    answer = browser.get(f"/admin/changes?{urlencode({'next': path})}")
    assert (answer.status, answer.headers["location"]) == (303, "/admin")


def test_signing_in_by_the_form_is_recorded(server: Server, browsers: dict[Role, Browser]) -> None:
    account = make_administrator(server.installation, Role.VIEWER)
    body = urlencode({"username": account.username, "password": "correct horse battery"}).encode()
    answer = Browser(server.installation.port).ask("POST", SIGN_IN, body, headers=FORM)
    assert "__Host-clarion_session" in answer.set_cookies[0]
    found = browsers[Role.ADMIN].get("/v1/audit?limit=20").json["items"]
    acts = [(each["action"], each["actor"]["id"]) for each in found]
    assert ("session.start", account.id) in acts
