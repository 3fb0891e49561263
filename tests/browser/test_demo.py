"""The page `/demo` of a new installation, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.test_inbox_element import find_axe_faults
from tests.e2e.conftest import Server
from tests.e2e.own_server import serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), demo="on") as found:
        yield found


@pytest.fixture
def page(server: Server, open_window: OpenWindow) -> Page:
    return open_window(url_of(server)).page


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.installation.port}/demo"


def bell_of(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name).locator("clarion-inbox")


def test_what_one_does_the_other_sees_in_all_windows(
    server: Server, page: Page, open_window: OpenWindow
) -> None:
    other = open_window(url_of(server)).page
    expect(bell_of(page, "Ben").locator(".bell")).to_have_attribute("aria-label", "Notifications")
    page.get_by_role("button", name="Like Ben’s post").click()
    for each in (page, other):
        expect(bell_of(each, "Ben").locator(".badge")).to_have_text("1")
    expect(page.get_by_role("main").get_by_text("Stored as event")).to_be_visible()
    bell_of(page, "Ben").locator(".bell").click()
    expect(bell_of(page, "Ben").locator("li")).to_contain_text("Ana liked your post")
    expect(bell_of(page, "Ana").locator(".badge")).to_be_hidden()


@pytest.mark.core
def test_it_has_no_accessibility_fault(page: Page, packages: Path) -> None:
    expect(page.get_by_role("button", name="Follow Ana")).to_be_visible()
    assert find_axe_faults(page, packages, "main") == []


def test_it_is_for_this_machine_alone(server: Server) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.7"}
    for path in ("/demo", "/demo/demo.js"):
        assert server.anyone.get(path, headers=forwarded).status == 404
        assert server.anyone.get(path, headers={"Host": "shop.example.com"}).status == 404
    body = {"user_id": "demo-ana"}
    assert server.anyone.post("/demo/token", body, headers=forwarded).status == 404


def test_it_signs_for_its_own_users_alone(server: Server) -> None:
    assert server.anyone.post("/demo/token", {"user_id": "ana"}).status == 422
    form = {"Content-Type": "text/plain"}
    assert server.anyone.post("/demo/token", {"user_id": "demo-ana"}, headers=form).status == 415
