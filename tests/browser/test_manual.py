"""The documentation that the server shows, in a real browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from clarion.manual.pages import read_pages
from tests.browser.conftest import OpenWindow
from tests.browser.looks import find_faults_in_all_looks
from tests.e2e.conftest import Server

# One of each kind: with pictures, tables, long code, headings with anchors.
SHOWN = ("start", "concepts", "how-to/run-on-postgresql", "reference/settings", "why/simulation")


@pytest.fixture
def page(server: Server, open_window: OpenWindow) -> Page:
    return open_window(f"http://127.0.0.1:{server.installation.port}/docs/start").page


def test_a_reader_finds_a_page_by_search_and_by_the_list(page: Page) -> None:
    page.get_by_role("searchbox").fill("quiet hours <b>")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("main")).to_contain_text("No page has “quiet hours <b>”")
    page.get_by_role("searchbox").fill("quiet hours")
    page.get_by_role("searchbox").press("Enter")
    page.get_by_role("main").get_by_role("link", name="preferences").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Users and preferences")
    page.get_by_role("navigation", name="All pages").get_by_role("link", name="Runbook").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runbook")
    expect(page.locator("[aria-current=page]")).to_have_text("Runbook")


@pytest.mark.core
def test_the_pages_have_no_accessibility_fault(page: Page, packages: Path) -> None:
    assert set(SHOWN) <= set(read_pages())
    address = page.url.removesuffix("start")
    for path in SHOWN:
        page.goto(address + path)
        assert find_faults_in_all_looks(page, packages) == [], path


def test_the_api_page_leads_to_the_documentation_and_back(page: Page) -> None:
    page.get_by_role("link", name="API", exact=True).first.click()
    page.get_by_role("link", name="Documentation").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Clarion")
