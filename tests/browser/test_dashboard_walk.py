"""The way of a newcomer through the dashboard: no dead end, and no page reloaded by hand."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dashboard import Dashboard, cookies_of, find_faults, serve
from tests.browser.pages import PageServer
from tests.browser.test_dashboard_pages import ALL_DAY, comment, make_dead_letter
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import make_user

TEST_USER = "test-user"
# The pages of this release that links lead to, and some more by their queries.
LINKS_LEAST = 60


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """A server whose app has no users yet."""
    with serve(tmp_path) as found:
        yield found


@dataclass(frozen=True)
class Walk:
    """A newcomer, who only follows links and presses buttons."""

    dashboard: Dashboard
    page: Page
    open_window: OpenWindow
    packages: Path

    def check(self) -> None:
        assert find_faults(self.page, self.packages) == [], self.page.url

    def press(self, name: str) -> None:
        self.page.get_by_role("main").get_by_role("button", name=name, exact=True).click()

    def follow(self, name: str) -> None:
        self.page.get_by_role("main").get_by_role("link", name=name).click()

    def expect_status(self, text: str) -> None:
        expect(self.page.get_by_role("status")).to_have_text(text)

    def expect_tick(self, name: str, text: str) -> None:
        expect(self.page.locator(f"#tick-{name}")).to_have_text(text)

    def open_menu(self, link: str) -> None:
        """Follow a link of the navigation, which is behind a button on a phone."""
        menu = self.page.get_by_role("button", name="Menu")
        if menu.is_visible():
            menu.click()
        pages = self.page.get_by_role("navigation", name="Pages")
        pages.get_by_role("link", name=link, exact=True).click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(link)

    def get_started(self) -> None:
        self.page.goto(f"{self.dashboard.origin}/admin")
        expect(self.page.get_by_role("heading", level=1)).to_have_text("Get started")
        self.expect_tick("key", "done")
        for name in ("user", "bell", "event"):
            self.expect_tick(name, "to do")
        self.check()

    def make_user(self) -> None:
        """Run the command of the page, with the key; the step is ticked off while it is open."""
        step = self.page.get_by_role("region", name="A test user")
        command = step.get_by_role("textbox", name="With curl").input_value()
        subprocess.run(
            [shutil.which("bash") or "bash", "-c", command.replace("curl ", "curl --fail ", 1)],
            env={**os.environ, "KEY": self.dashboard.server.first["app"]["api_key"]},
            check=True,
            capture_output=True,
        )
        self.expect_tick("user", "done")

    def show_bell(self, shop: PageServer) -> Page:
        """Allow a page of another origin, and open it with the bell as the snippet has it."""
        self.follow("the app allows")
        self.page.get_by_label("Allowed origins").fill(shop.origin)
        self.press("Save")
        self.expect_status("The app is saved.")
        self.open_menu("Get started")
        snippet = self.page.get_by_role("textbox", name="In your page").input_value()
        token = InboxUser(self.dashboard.server, TEST_USER).token
        tag = snippet.splitlines()[1].replace("USER_TOKEN", token)
        bell = self.open_window(shop.show(tag)).page
        self.expect_tick("bell", "done")
        return bell

    def send_event(self, bell: Page) -> None:
        self.follow("Send it here")
        expect(self.page.locator("#foreseen")).to_contain_text("What a nice day")
        self.check()
        self.press("Send")
        self.expect_status("The event is accepted.")
        expect(bell.locator("clarion-inbox .badge")).to_have_text("1")

    def explain(self) -> None:
        """From the event to its notification, and why no device got it."""
        self.follow("New comment")
        self.check()
        self.follow("Explain")
        expect(self.page.get_by_role("heading", name="Verdict")).to_be_visible()
        expect(self.page.get_by_role("main")).to_contain_text("The user has no device")
        self.check()

    def replay(self) -> None:
        """From the dead letters to the page of the event, which shows how it ends."""
        make_dead_letter(self.dashboard)
        self.open_menu("Dead letters")
        self.check()
        self.follow("POST_COMMENT")
        self.press("Replay")
        self.expect_status("The event is being tried again.")
        expect(self.page.locator("#event")).to_contain_text("completed")
        expect(self.page.locator("#event tbody tr")).to_have_count(1)
        self.check()

    def audit(self) -> None:
        self.open_menu("Audit log")
        row = self.page.get_by_role("row").filter(has_text="app.update")
        expect(row).to_contain_text("lea")
        expect(row).to_contain_text("this app")
        self.check()


def fill(dashboard: Dashboard) -> None:
    """Have one of everything that pages link to."""
    app = dashboard.server.app
    user_id = make_user(app, name="Ana", email="ana@example.com", quiet_hours=ALL_DAY)
    app.post("/v1/devices", {"platform": "clarion", "user_id": user_id})
    comment(app, user_id)
    make_dead_letter(dashboard)
    app.ask("PUT", "/v1/segments/vips", {"filter": "tag = 'vip'"})
    app.ask("PUT", "/v1/topics/scores", {})
    settings = {"host": "127.0.0.1", "port": 1, "from": "a@x.example", "security": "none"}
    app.ask("PUT", "/v1/providers/email/main", {"kind": "smtp", "settings": settings})
    mail = "<p>{{ snippet }}<img src='https://x.example/a.png' style='border: 0'></p>"
    template = {"subject": "Hi", "body": mail, "variables": []}
    app.ask("PUT", "/v1/types/POST_COMMENT/templates/email?language=en", template)


def pattern_of(url: str) -> str:
    """Return the page that a link leads to, without what tells apart its items."""
    parts = urlsplit(url)
    path = "/".join("*" if any(map(str.isdigit, part)) else part for part in parts.path.split("/"))
    return f"{path}?{','.join(sorted(parse_qs(parts.query)))}"


def test_every_link_leads_to_a_page_and_none_violates_the_policy(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    """The window fails the test for a violation, as for everything else in its console."""
    fill(dashboard)
    page = open_window("about:blank").page
    page.context.add_cookies(cookies_of(dashboard.session))
    start = f"{dashboard.origin}/admin"
    waiting, seen = [start], {pattern_of(start)}
    while waiting:
        url = waiting.pop()
        answer = page.goto(url)
        assert answer is not None
        assert answer.status == 200, url
        for link in page.evaluate("[...document.links].map((each) => each.href)"):
            target = link.partition("#")[0]
            if target.startswith(start) and pattern_of(target) not in seen:
                seen.add(pattern_of(target))
                waiting.append(target)
    assert len(seen) > LINKS_LEAST, seen


@pytest.mark.parametrize("width", [pytest.param(390, marks=pytest.mark.core), 1280])
def test_from_get_started_to_the_audit_log(
    dashboard: Dashboard, open_window: OpenWindow, packages: Path, width: int
) -> None:
    page = open_window("about:blank", width=width).page
    page.context.add_cookies(cookies_of(dashboard.session))
    walk = Walk(dashboard, page, open_window, packages)
    walk.get_started()
    walk.make_user()
    with PageServer(dashboard.origin) as shop:
        walk.send_event(walk.show_bell(shop))
    walk.explain()
    walk.replay()
    walk.audit()
