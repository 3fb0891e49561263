"""Forms of the dashboard with whatever somebody types: refused or taken, never an error of ours."""

import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from clarion.access.model import Role
from clarion.admin.page import AdminPage
from clarion.admin.pages.table import PAGES
from clarion.admin.permissions import Open
from tests.e2e.administrators import Browser, sign_in
from tests.e2e.conftest import Server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAME = re.compile(r'name="([\w.]+)"')
HOSTILE = ["9" * 4_400, "\0", "x\r\nSet-Cookie: a=b", '{"a": ' * 1_500, "a/../😀"]
# These end the session that asks, or change what other tests on this server use.
LEFT_OUT = {"/admin/sign-out", "/admin/apps/{app_id}/settings"}


@pytest.fixture(scope="module")
def browser(server: Server) -> Browser:
    return sign_in(server.installation, role=Role.ADMIN)


def forms() -> Iterator[AdminPage]:
    for page in PAGES:
        if page.method == "POST" and not isinstance(page.needs, Open) and page.path not in LEFT_OUT:
            yield page


def paths(server: Server, page: AdminPage) -> Iterator[str]:
    """Yield the path for what is not there, and for types and channels that are."""
    path = page.path.replace("{app_id}", server.first["app"]["id"])
    if "{type_name}" in path:
        known = path.replace("{type_name}", "POST_LIKE")
        yield known.replace("{channel}", "email")
    yield re.sub(r"\{\w+\}", "none", path)


@pytest.fixture(scope="module")
def names(server: Server, browser: Browser) -> set[str]:
    """The names of all fields that pages have."""
    app_id, found = server.first["app"]["id"], {"action", "settings.port", "secrets.url"}
    for page in PAGES:
        if page.method == "GET":
            path = page.path.replace("{app_id}", app_id).replace("{type_name}", "POST_LIKE")
            path = path.replace("{channel}", "email")
            found |= set(NAME.findall(browser.get(re.sub(r"\{\w+\}", "none", path)).body.decode()))
    return found - {"csrf_token", "viewport", "color"}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_in_a_form_is_an_error_of_the_server(
    server: Server, browser: Browser, names: set[str], text: str
) -> None:
    fields = dict.fromkeys(names, text) | {"csrf_token": browser.csrf_token}
    body = urlencode(fields).encode()
    for page in forms():
        for path in paths(server, page):
            answer = browser.ask("POST", path, body, headers=FORM)
            assert answer.status < 500, (path, answer.body[:500])
            assert answer.set_cookies == (), path


@pytest.mark.parametrize("text", ["\r\nSet-Cookie: a=b", "\0é", ""])
def test_no_query_is_an_error_of_the_server(server: Server, browser: Browser, text: str) -> None:
    app_id = server.first["app"]["id"]
    given = "&".join(
        f"{name}={quote(text)}"
        for name in ("q", "after", "since", "action", "language", "channel", "version", "kind")
    )
    for page in PAGES:
        if page.method == "GET" and not isinstance(page.needs, Open):
            path = page.path.replace("{app_id}", app_id).replace("{type_name}", "POST_LIKE")
            path = re.sub(r"\{\w+\}", "email" if "templates" in path else "none", path)
            answer = browser.get(f"{path}?{given}")
            assert answer.status < 500, (path, answer.body[:500])
            assert answer.set_cookies == (), path
