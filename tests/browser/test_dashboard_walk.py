"""The way of a newcomer through the dashboard: no page is a dead end, and none is reloaded by hand."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dashboard import Dashboard, cookies_of, find_faults, serve
from tests.browser.pages import PageServer
from tests.browser.test_dashboard_pages import make_dead_letter
from tests.e2e.live_clients import InboxUser

TEST_USER = "test-user"
WIDTHS = (390, 1280)


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """A server whose app has no users yet."""
    with serve(tmp_path) as found:
        yield found


def open_menu(page: Page, link: str) -> None:
    """Follow a link of the navigation, which is behind a button on a phone."""
    if page.get_by_role("button", name="Menu").is_visible():
        page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=link, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(link)


def run_curl(dashboard: Dashboard, page: Page, label: str) -> None:
    """Run a command as it is shown, with the key of the app."""
    command = page.get_by_role("region", name=label).get_by_role("textbox", name="With curl").input_value()
    key = dashboard.server.first["app"]["api_key"]
    subprocess.run(
        ["bash", "-c", command.replace("curl ", "curl --fail ", 1)],
        env={**os.environ, "KEY": key},
        check=True,
        capture_output=True,
    )


def show_bell(dashboard: Dashboard, page: Page, shop: PageServer) -> str:
    """Serve a page of another origin with the bell as the snippet has it; return its URL."""
    _, tag = page.get_by_role("textbox", name="In your page").input_value().splitlines()
    token = InboxUser(dashboard.server, TEST_USER).token
    return shop.show(tag.replace("USER_TOKEN", token))


@pytest.mark.parametrize("width", WIDTHS)
def test_from_get_started_to_the_audit_log(
    dashboard: Dashboard, open_window: OpenWindow, packages: Path, width: int
) -> None:
    page = open_window("about:blank", width=width).page
    page.context.add_cookies(cookies_of(dashboard.session))

    def check() -> None:
        assert find_faults(page, packages) == [], page.url

    page.goto(f"{dashboard.origin}/admin")
    expect(page.get_by_role("heading", level=1)).to_have_text("Get started")
    expect(page.locator("#tick-key")).to_have_text("done")
    for name in ("user", "bell", "event"):
        expect(page.locator(f"#tick-{name}")).to_have_text("to do")
    check()

    # User: the command of the page; the step is ticked off while it is open.
    run_curl(dashboard, page, "A test user")
    expect(page.locator("#tick-user")).to_have_text("done")

    with PageServer(dashboard.origin) as shop:
        # The app allows the origin of the page with the bell.
        page.get_by_role("link", name="the app allows").click()
        page.get_by_label("Allowed origins").fill(shop.origin)
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("The app is saved.")
        open_menu(page, "Get started")
        bell = open_window(show_bell(dashboard, page, shop)).page
        expect(page.locator("#tick-bell")).to_have_text("done")

        # Event: previewed, sent, and in the bell.
        page.get_by_role("link", name="Send it here").click()
        expect(page.locator("#foreseen")).to_contain_text("What a nice day")
        check()
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("The event is accepted.")
        expect(bell.locator("clarion-inbox .badge")).to_have_text("1")
        page.get_by_role("link", name="New comment").click()
        check()

    # Explain, from the notification.
    page.get_by_role("main").get_by_role("link", name="Explain").click()
    expect(page.get_by_role("heading", name="Verdict")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("The user has no device")
    check()

    # Replay, from the dead letters to the page of the event, which shows how it ends.
    make_dead_letter(dashboard)
    open_menu(page, "Dead letters")
    check()
    page.get_by_role("main").get_by_role("link", name="POST_COMMENT").click()
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("status")).to_have_text("The event is being tried again.")
    expect(page.locator("#event")).to_contain_text("completed")
    expect(page.locator("#event tbody tr")).to_have_count(1)
    check()

    # Audit: who changed the app.
    open_menu(page, "Audit log")
    row = page.get_by_role("row").filter(has_text="app.update")
    expect(row).to_contain_text("lea")
    check()
