"""`<clarion-inbox>` in a real browser, on a page of another origin with a strict policy."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import OpenWindow, Window
from tests.browser.pages import PageServer
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import send_and_wait, wait_until

# Each would run or break something if it were ever read as HTML, CSS or a URL.
HOSTILE = [
    "<img src=x onerror=window.harmed=1>",
    "<script>window.harmed=1</script>",
    '"><svg onload=window.harmed=1>',
    "{{constructor.constructor('window.harmed=1')()}}",
    "</style><style>*{display:none}</style>",
    "javascript:window.harmed=1",
    "&lt;b&gt;&#x3c;b&#x3e;",
    "\u202egnp.exe\u2066",
    "a" * 2_000,
]
LANGUAGES = {
    "en": "Notifications",
    "de": "Mitteilungen",
    "es": "Notificaciones",
    "fr": "Notifications",
    "pt": "Notificações",
}
# What the console shows a developer whose page is refused.
CALL = re.compile(r"curl -X (\w+) (\S+) -H .* -d '(.*)'")
OpenInbox = Callable[..., Page]


@pytest.fixture(scope="module")
def pages(server: Server) -> Iterator[PageServer]:
    """A server of another origin, which the app allows."""
    with PageServer(f"http://127.0.0.1:{server.installation.port}") as pages:
        allow(server, pages.origin)
        yield pages


def allow(server: Server, *origins: str) -> None:
    changed = server.app.ask("PATCH", "/v1/app", {"allowed_origins": list(origins)})
    assert changed.status == 200, changed.body


@pytest.fixture
def ana(server: Server) -> InboxUser:
    user = InboxUser(server)
    assert server.app.ask("PUT", f"/v1/users/{user.id}", {"name": "Ana"}).status == 201
    return user


@pytest.fixture
def open_window_of_ana(
    pages: PageServer, ana: InboxUser, open_window: OpenWindow
) -> Callable[..., Window]:
    def open_page(attributes: str = "", **context: Any) -> Window:
        tag = f'<clarion-inbox token="{ana.token}" url="{pages.api}" {attributes}></clarion-inbox>'
        return open_window(pages.show(tag), **context)

    return open_page


@pytest.fixture
def open_inbox(open_window_of_ana: Callable[..., Window]) -> OpenInbox:
    """Opens a page with the bell of Ana."""
    return lambda *given, **more: open_window_of_ana(*given, **more).page


def comment(ana: InboxUser, text: str = "Nice!", **more: Any) -> None:
    event = {
        "type": "POST_COMMENT",
        "recipient": {"user_id": ana.id},
        "actor": {"id": "bo", "name": "Bo"},
        "data": {"snippet": text},
    }
    send_and_wait(ana.server.app, event | more)


def bell(page: Page) -> Locator:
    return page.locator("clarion-inbox .bell")


def badge(page: Page) -> Locator:
    return page.locator("clarion-inbox .badge")


def rows(page: Page) -> Locator:
    return page.locator("clarion-inbox li")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.core
def test_a_notification_arrives_live_in_two_windows_and_is_read_in_both(
    ana: InboxUser, open_inbox: OpenInbox
) -> None:
    one, two = open_inbox(), open_inbox()
    expect(badge(one)).to_be_hidden()
    comment(ana)
    for page in (one, two):
        expect(badge(page)).to_have_text("1")
        bell(page).click()
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("Bo commented on your post: “Nice!”")
    rows(one).locator(".entry").click()
    for page in (one, two):
        expect(badge(page)).to_be_hidden()
        expect(rows(page)).not_to_have_class(re.compile("is-unread"))
    assert ana.me.get("/v1/me/unread-count").json["unread_count"] == 0


def test_it_can_be_marked_unread_and_dismissed(ana: InboxUser, open_inbox: OpenInbox) -> None:
    comment(ana)
    page = open_inbox()
    bell(page).click()
    rows(page).locator(".entry").click()
    rows(page).get_by_role("button", name="Mark as unread").click()
    expect(badge(page)).to_have_text("1")
    rows(page).get_by_role("button", name="Dismiss").click()
    expect(rows(page)).to_have_count(0)
    expect(page.get_by_text("No notifications yet")).to_be_visible()
    assert ana.me.get("/v1/me/notifications").json["items"] == []


def test_all_are_marked_read_and_older_ones_are_shown(
    ana: InboxUser, open_inbox: OpenInbox
) -> None:
    for number in range(25):
        comment(ana, f"number {number}")
    page = open_inbox()
    expect(badge(page)).to_have_text("25")
    bell(page).click()
    expect(rows(page)).to_have_count(20)
    press(page, "Show older")
    expect(rows(page)).to_have_count(25)
    expect(rows(page).first).to_contain_text("number 24")
    expect(rows(page).last).to_contain_text("number 0")
    press(page, "Mark all as read")
    expect(badge(page)).to_be_hidden()
    expect(page.locator("clarion-inbox .is-unread")).to_have_count(0)


def test_preferences_are_changed(ana: InboxUser, open_inbox: OpenInbox) -> None:
    page = open_inbox()
    bell(page).click()
    press(page, "Preferences")
    page.get_by_label("Offers").uncheck()
    expect(page.get_by_label("Safety")).to_be_disabled()
    page.get_by_label("From").fill("21:30")
    page.get_by_label("To", exact=True).fill("06:15")
    wait_until(lambda: hours_of(ana) == ("21:30", "06:15") or None)
    preferences = ana.me.get("/v1/me/preferences").json
    assert preferences["categories"]["marketing"] is False
    page.get_by_label("Quiet hours").uncheck()
    wait_until(lambda: ana.me.get("/v1/me/preferences").json["quiet_hours"] == [False] * 24 or None)
    press(page, "Back to notifications")
    press(page, "Preferences")
    expect(page.get_by_label("Quiet hours")).not_to_be_checked()
    expect(page.get_by_label("Offers")).not_to_be_checked()


def test_an_own_category_has_the_title_that_the_app_gave_it(
    ana: InboxUser, open_inbox: OpenInbox
) -> None:
    """Also if its name is that of a text of ours, and its title is hostile."""
    title = "Team <img src=x onerror='window.harmed=1'>"
    path = "/v1/categories/unread"
    assert ana.server.app.ask("PUT", path, {"title": title}).status == 201
    try:
        page = open_inbox()
        bell(page).click()
        press(page, "Preferences")
        page.get_by_label(title).uncheck()
        wait_until(
            lambda: not ana.me.get("/v1/me/preferences").json["categories"]["unread"] or None
        )
        assert page.evaluate("window.harmed") is None
    finally:
        assert ana.server.app.delete(path).status == 204


def hours_of(ana: InboxUser) -> tuple[str, str] | None:
    first = ana.me.get("/v1/me/preferences").json["quiet_hours"][0]
    return (first["from"], first["to"]) if isinstance(first, dict) else None


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_is_shown_as_it_is(ana: InboxUser, open_inbox: OpenInbox, text: str) -> None:
    """In every field of a notification that a page shows."""
    comment(ana, text, actor={"id": "x", "name": text.replace("\u202e", "")[:200]})
    page = open_inbox()
    bell(page).click()
    expect(rows(page)).to_contain_text(text[:500])
    assert page.evaluate("window.harmed") is None
    expect(page.locator("clarion-inbox li script, clarion-inbox li style")).to_have_count(0)


@pytest.mark.parametrize("link", ["myapp://posts/1", "tel:+491511234567"])
def test_a_link_of_another_scheme_is_for_the_page(
    ana: InboxUser, open_inbox: OpenInbox, link: str
) -> None:
    comment(ana, deeplink=link)
    page = open_inbox()
    page.evaluate(
        "document.addEventListener('clarion-click', ({detail}) => window.opened = detail.item)"
    )
    bell(page).click()
    expect(rows(page).locator("a")).to_have_count(0)
    rows(page).locator(".entry").click()
    assert page.evaluate("window.opened.deeplink") == link


def test_a_link_is_followed_and_its_notification_read(
    ana: InboxUser, pages: PageServer, open_inbox: OpenInbox
) -> None:
    target = pages.show("<p>The post</p>", path="/posts/1")
    comment(ana, deeplink="/posts/1")
    page = open_inbox()
    bell(page).click()
    rows(page).locator(".entry").click()
    page.wait_for_url(target)
    wait_until(lambda: ana.me.get("/v1/me/unread-count").json["unread_count"] == 0 or None)


def test_a_page_can_open_links_by_itself(ana: InboxUser, open_inbox: OpenInbox) -> None:
    comment(ana, deeplink="/posts/1")
    page = open_inbox()
    page.evaluate("document.addEventListener('clarion-click', (event) => event.preventDefault())")
    before = page.url
    bell(page).click()
    rows(page).locator(".entry").click()
    expect(badge(page)).to_be_hidden()
    assert page.url == before


def test_it_is_used_with_the_keyboard_alone(ana: InboxUser, open_inbox: OpenInbox) -> None:
    comment(ana)
    comment(ana, "Second")
    page = open_inbox()
    expect(badge(page)).to_have_text("2")
    page.keyboard.press("Tab")
    expect(bell(page)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    for _ in range(4):  # past the three buttons of the header, to the first notification
        page.keyboard.press("Tab")
    expect(rows(page).first.locator(".entry")).to_be_focused()
    page.keyboard.press("Enter")
    expect(badge(page)).to_have_text("1")
    expect(rows(page).first.locator(".entry")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(bell(page)).to_be_focused()


def test_a_screen_reader_is_told_what_arrives(ana: InboxUser, open_inbox: OpenInbox) -> None:
    page = open_inbox()
    expect(bell(page)).to_have_attribute("aria-label", "Notifications")
    comment(ana)
    expect(page.get_by_role("status")).to_have_text("New notification: New comment")
    expect(bell(page)).to_have_attribute("aria-label", "Notifications, 1 unread")


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_speaks_the_language_of_its_page(open_inbox: OpenInbox, language: str) -> None:
    page = open_inbox(f'lang="{language}"')
    bell(page).click()
    expect(page.get_by_role("heading", level=2)).to_have_text(LANGUAGES[language])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1000])
def test_axe_finds_no_fault(
    ana: InboxUser, open_inbox: OpenInbox, packages: Path, theme: str, width: int
) -> None:
    comment(ana)
    comment(ana, deeplink="/posts/1")
    page = open_inbox(f'theme="{theme}"', width=width)
    bell(page).click()
    rows(page).first.hover()
    assert find_axe_faults(page, packages) == []
    press(page, "Preferences")
    expect(page.get_by_label("Offers")).to_be_visible()
    assert find_axe_faults(page, packages) == []


def find_axe_faults(page: Page, packages: Path, within: str = "clarion-inbox") -> list[Any]:
    # The policy of the page forbids other scripts, but not what the browser itself evaluates.
    page.evaluate((packages / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.evaluate("place => axe.run(place).then(({violations}) => violations)", within)
    serious = [each for each in found if each["impact"] in {"serious", "critical"}]
    return [json.dumps(each) for each in serious]


def test_a_page_of_an_origin_that_is_not_allowed_sees_nothing(
    server: Server, pages: PageServer, ana: InboxUser, open_window_of_ana: Callable[..., Window]
) -> None:
    allow(server)
    try:
        comment(ana)
        window = open_window_of_ana()
        bell(window.page).click()
        expect(window.page.get_by_text("cannot be loaded")).to_be_visible()
        expect(rows(window.page)).to_have_count(0)
    finally:
        allow(server, pages.origin)
    press(window.page, "Try again")
    expect(rows(window.page)).to_have_count(1)
    # Browsers log every response that is an error; the bell says what to do.
    (warning,) = (fault for fault in window.faults if "<clarion-inbox>" in fault)
    assert f"origin of this page, {pages.origin}." in warning
    assert all("403" in fault for fault in window.faults)
    window.faults.clear()


def test_the_console_has_the_call_that_allows_the_origin(
    server: Server, pages: PageServer, open_window_of_ana: Callable[..., Window]
) -> None:
    allow(server)
    try:
        window = open_window_of_ana()
        bell(window.page).click()
        expect(window.page.get_by_text("cannot be loaded")).to_be_visible()
        (warning,) = (fault for fault in window.faults if "<clarion-inbox>" in fault)
        window.faults.clear()
        method, url, body = re.search(CALL, warning).groups()  # type: ignore[union-attr]
        assert url.startswith(pages.api)
        answer = server.app.ask(method, url.removeprefix(pages.api), json.loads(body))
        assert answer.json["allowed_origins"] == [pages.origin]
        press(window.page, "Try again")
        expect(window.page.get_by_text("No notifications yet")).to_be_visible()
    finally:
        allow(server, pages.origin)


def test_over_a_restart_of_the_server_nothing_is_missed(
    server: Server, ana: InboxUser, open_window_of_ana: Callable[..., Window]
) -> None:
    window = open_window_of_ana()
    comment(ana)
    expect(badge(window.page)).to_have_text("1")
    server.installation.stop()
    server.installation.start()
    comment(ana, "After the restart")
    expect(badge(window.page)).to_have_text("2", timeout=30_000)
    window.faults.clear()  # the browser logs that the stream was cut


def test_a_token_that_is_replaced_goes_on(
    ana: InboxUser, pages: PageServer, open_window: OpenWindow
) -> None:
    comment(ana)
    window = open_window(pages.show(f'<clarion-inbox url="{pages.api}"></clarion-inbox>'))
    window.page.evaluate(
        "token => { document.querySelector('clarion-inbox').getToken = () => token }", ana.token
    )
    expect(badge(window.page)).to_have_text("1")


@pytest.mark.parametrize("width", [390, 500, 1000])
def test_the_panel_stays_in_the_window(open_inbox: OpenInbox, width: int) -> None:
    """The bell stands at the left here; at the right the panel would end where the bell ends."""
    page = open_inbox(width=width)
    bell(page).click()
    box = page.get_by_role("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 8
    assert box["x"] + box["width"] <= width - 8
