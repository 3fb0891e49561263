"""Signing in to the dashboard, in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from clarion.access.administrators import totp
from clarion.access.model import Role
from tests.browser.conftest import OpenWindow
from tests.browser.dashboard import LOOKS, Dashboard, find_faults, serve
from tests.e2e.administrators import PASSWORD


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with serve(tmp_path_factory.mktemp("server")) as found:
        yield found


def give_code(page: Page, secret: str, *, later: int = 0) -> None:
    """Type the code of the current step, or of a later one: each is accepted once."""
    step = int(page.evaluate("Date.now()")) // totp.STEP_MS + later
    page.get_by_role("textbox", name="Code").fill(totp.code_at(totp.decode_secret(secret), step))
    page.get_by_role("button", name="Con").click()


def give_password(page: Page, username: str, password: str = PASSWORD) -> None:
    page.get_by_label("Username").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def see_change(page: Page, action: str, packages: Path) -> None:
    """See what changed about the account since it was signed in before, and go on."""
    expect(page.get_by_role("heading", level=1)).to_have_text("Changes to your account")
    expect(page.get_by_text(action)).to_be_visible()
    assert find_faults(page, packages) == []
    page.get_by_role("link", name="Continue").click()


@pytest.mark.core
def test_the_first_administrator_is_made_and_signs_in_again(
    dashboard: Dashboard, open_window: OpenWindow, packages: Path
) -> None:
    page = open_window(dashboard.server.first["admin"]["setup_url"]).page
    expect(page.get_by_label("Username")).to_be_focused()
    assert "#" not in page.url
    page.get_by_label("Username").fill("ana")
    page.get_by_label("Password").fill(PASSWORD)
    assert find_faults(page, packages) == []
    page.get_by_role("button", name="Set up").click()
    page.get_by_role("button", name="Begin").click()
    secret = page.locator("input[name=secret]").input_value()
    assert find_faults(page, packages) == []
    give_code(page, secret, later=-1)
    recovery_code = page.locator(".recovery-codes code").first.inner_text()
    assert find_faults(page, packages) == []
    page.get_by_role("link", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Get started")
    expect(page.get_by_text("ana", exact=True)).to_be_visible()

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("status")).to_have_text("You are signed out.")
    page.goto(dashboard.url("/overview?notice=none"))
    give_password(page, "ana")
    assert find_faults(page, packages) == []
    give_code(page, secret)
    see_change(page, "second_factor.add", packages)
    expect(page).to_have_url(dashboard.url("/overview?notice=none"))

    page.get_by_role("button", name="Sign out").click()
    give_password(page, "ana")
    page.get_by_role("textbox", name="Code").fill(recovery_code)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Get started")


def test_a_new_password_can_be_shown(dashboard: Dashboard, open_window: OpenWindow) -> None:
    page = open_window(f"{dashboard.origin}/admin/setup").page
    page.get_by_label("Password").fill(PASSWORD)
    for kind in ("text", "password"):
        page.get_by_role("button", name="Show what you type").click()
        expect(page.get_by_label("Password")).to_have_attribute("type", kind)


def test_a_wrong_password_is_said(dashboard: Dashboard, open_window: OpenWindow) -> None:
    window = open_window(f"{dashboard.origin}/admin/sign-in")
    give_password(window.page, "nobody", "not this one")
    expect(window.page.get_by_role("alert")).to_contain_text("is not right")
    expect(window.page.get_by_label("Username")).to_have_value("nobody")
    # Chromium logs each answer that is an error.
    window.faults.clear()


@pytest.mark.parametrize("look", LOOKS)
def test_the_sign_in_has_no_fault(
    dashboard: Dashboard, open_window: OpenWindow, packages: Path, look: dict[str, Any]
) -> None:
    page = open_window(f"{dashboard.origin}/admin/sign-in", **look).page
    assert find_faults(page, packages) == []


def test_the_session_ends_in_an_open_page(dashboard: Dashboard, open_window: OpenWindow) -> None:
    page = dashboard.open(open_window, "/overview", dashboard.make(Role.VIEWER))
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
