"""Providers, devices, topics, segments, the audit log, administrators and health, in a browser."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect
from standardwebhooks import Webhook

from clarion.access.model import Role
from tests.browser.conftest import OpenWindow
from tests.browser.dashboard import Dashboard, serve
from tests.browser.looks import check_harmless, find_faults_in_all_looks
from tests.browser.test_inbox_element import HOSTILE
from tests.e2e.administrators import PASSWORD
from tests.e2e.asking import Asker
from tests.e2e.sending import make_user
from tests.processes import free_port

PAGES = [
    "/providers",
    "/new-provider",
    "/new-provider?kind=smtp",
    "/new-provider?kind=apprise",
    "/providers/email/main",
    "/providers/push/gateway",
    "/audit",
    "/devices",
    "/topics",
    "/topics/scores/broadcast",
    "/segments",
    "/segments/vips",
    "/new-segment",
    "/feedback",
]
SERVER = ["/audit-log", "/administrators", "/new-administrator", "/account", "/health"]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, allow_private_targets="127.0.0.0/8") as found:
        fill(found.server.app)
        yield found


class Receiver:
    """A server that takes webhooks, in a thread of its own: the browser has that of the test."""

    def __init__(self) -> None:
        self.messages = messages = list[tuple[bytes, dict[str, str]]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append((body, {name.lower(): text for name, text in self.headers.items()}))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_given: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def app(dashboard: Dashboard) -> Asker:
    return dashboard.server.app


def fill(app: Asker) -> None:
    """Store one of each, so that no list is empty."""
    put(app, "/v1/segments/vips", {"filter": "tag = 'vip'"})
    put(app, "/v1/topics/scores", {})
    settings = {"host": "127.0.0.1", "port": free_port(), "from": "a@x.example", "security": "none"}
    put(app, "/v1/providers/email/main", {"kind": "smtp", "settings": settings})
    app.post(f"/v1/devices/{make_device(app)}/invalidate", {})


def put(app: Asker, path: str, body: object) -> None:
    answer = app.ask("PUT", path, body)
    assert answer.status in {200, 201}, answer.body


def make_device(app: Asker, **fields: str) -> str:
    answer = app.post("/v1/devices", {"platform": "clarion", **fields})
    assert answer.status == 201, answer.body
    device_id: str = answer.json["device_id"]
    return device_id


def press(page: Page | Locator, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def open_server(dashboard: Dashboard, open_window: OpenWindow, path: str) -> Page:
    page = dashboard.open(open_window, "/audit")
    page.goto(f"{dashboard.origin}/admin{path}")
    return page


def find_row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def test_a_provider_is_made_tested_changed_and_deleted(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/providers")
    page.get_by_role("link", name="New provider").click()
    page.get_by_role("link", name="Email by SMTP").click()
    page.get_by_label("Name", exact=True).fill("backup")
    page.get_by_label("Server").fill("127.0.0.1")
    page.get_by_label("Port").fill(str(free_port()))
    page.get_by_label("Encryption").select_option("none")
    page.get_by_label("From").fill("Shop <shop@x.example>")
    press(page, "Create")
    expect(page.get_by_role("status")).to_contain_text("The provider is saved")

    test = page.get_by_role("region", name="Test")
    test.get_by_label("To").fill("ana@x.example")
    press(test, "Send a test message")
    expect(test.get_by_role("status")).to_contain_text("not_connected")
    press(test, "Try the credentials")
    expect(test.get_by_role("status")).to_contain_text("not_connected")
    assert "provider.test" in [each["action"] for each in app.get("/v1/audit").json["items"]]

    page.get_by_label("Reply to").fill("help@x.example")
    page.get_by_label("Sandbox").check()
    press(page, "Save")
    expect(page.get_by_text("sandbox", exact=True)).to_be_visible()
    stored = app.get("/v1/providers/email/backup").json
    assert (stored["settings"]["reply_to"], stored["sandbox"]) == ("help@x.example", True)
    press(page, "Delete")
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_role("status")).to_have_text("The provider is deleted.")
    assert app.get("/v1/providers/email/backup").status == 404


def test_a_secret_of_a_provider_is_shown_once_and_stays_when_it_is_saved(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow, receiver: Receiver
) -> None:
    page = dashboard.open(open_window, "/new-provider?kind=webhook")
    page.get_by_label("Name", exact=True).fill("hook")
    page.get_by_label("URL").fill(receiver.url)
    press(page, "Create")
    secret = page.get_by_role("region", name="The secret").get_by_label("Secret").input_value()
    assert secret.startswith("whsec_")
    page.goto(dashboard.url("/providers/webhook/hook"))
    assert secret not in page.content()
    press(page, "Send a test message")
    expect(page.get_by_role("region", name="Test").get_by_role("status")).to_contain_text(
        "delivered"
    )
    (message,) = receiver.messages
    Webhook(secret).verify(*message)
    page.get_by_label("URL").fill(f"{receiver.url}/other")
    press(page, "Save")
    expect(page.get_by_role("status")).to_contain_text("The provider is saved")
    assert app.get("/v1/providers/webhook/hook").json["secrets"] == ["secret"]
    assert secret not in dashboard.server.installation.log.read_text()


def test_a_form_that_is_refused_says_what_is_wrong(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/new-provider?kind=webhook")
    page.get_by_label("Name", exact=True).fill("inside")
    page.get_by_label("URL").fill("http://169.254.169.254/latest")
    press(page, "Create")
    expect(page.get_by_role("alert")).to_contain_text("settings.url")
    expect(page.get_by_label("URL")).to_have_value("http://169.254.169.254/latest")
    open_window.windows[-1].faults.clear()  # Chromium logs each answer that is an error.


def test_a_device_is_found_invalidated_and_in_the_feedback(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app)
    device_id = make_device(app, user_id=user_id, label="Kitchen")
    page = dashboard.open(open_window, "/devices")
    page.get_by_label("User or device").fill(user_id)
    press(page, "Search")
    page.get_by_role("link", name="Kitchen").click()
    expect(page).to_have_url(dashboard.url(f"/devices/{device_id}"))
    press(page, "Invalidate")
    press(page.get_by_role("dialog"), "Invalidate")
    expect(page.get_by_role("status")).to_have_text("The device is invalidated.")
    expect(page.get_by_text("not valid")).to_be_visible()
    tokens = {each["token_hash"] for each in app.get("/v1/feedback").json["items"]}
    page.get_by_role("link", name="Feedback").click()
    for token in tokens:
        expect(page.get_by_text(token)).to_be_visible()
    page.goto(dashboard.url(f"/devices?q={device_id}"))
    press(page, "Delete")
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_role("status")).to_have_text("The device is deleted.")


def test_a_broadcast_reaches_the_subscribers_of_a_topic(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/topics")
    press(page, "New topic")
    page.get_by_label("Name").fill("finals")
    press(page, "Create")
    device_id = make_device(app)
    assert app.ask("PUT", f"/v1/devices/{device_id}/topics/finals").status == 204
    page.reload()
    expect(find_row(page, "finals")).to_contain_text("1")
    press(find_row(page, "finals"), "Open")
    expect(find_row(page, "finals")).to_contain_text("users, for their devices")
    find_row(page, "finals").get_by_role("link", name="Broadcast").click()
    page.get_by_label("Title").fill("It is over")
    page.get_by_label("Text").fill("3:2")
    page.get_by_label("Data").fill('{"match": 7}')
    press(page, "Send to all subscribers")
    expect(page.get_by_role("status")).to_have_text("The message is sent to all subscribers.")


def test_the_users_of_a_filter_are_counted_while_it_is_written(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    make_user(app, tags=["gold"])
    page = dashboard.open(open_window, "/new-segment")
    page.get_by_label("Name").fill("gold")
    page.get_by_label("Filter").fill("tag = 'gold")
    users = page.get_by_role("region", name="Users")
    expect(users.locator(".warning")).to_be_visible()
    page.get_by_label("Filter").fill("tag = 'gold'")
    expect(users.locator(".figure")).to_have_text("1")
    press(page, "Save")
    expect(page.get_by_role("status")).to_have_text("The segment is saved.")
    expect(users.locator(".figure")).to_have_text("1")
    assert app.get("/v1/segments/gold").json["filter"] == "tag = 'gold'"
    press(page, "Delete")
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_role("status")).to_have_text("The segment is deleted.")


def test_the_audit_log_is_searched(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    put(app, "/v1/types/AUDITED", {})
    page = dashboard.open(open_window, "/audit")
    page.get_by_label("Action").fill("type.replace")
    press(page, "Search")
    expect(find_row(page, "AUDITED")).to_have_count(1)
    expect(find_row(page, "segment.replace")).to_have_count(0)
    expect(find_row(page, "AUDITED").locator("[data-label=Who]")).to_contain_text("first key")
    user_id = make_user(app, name="Audited Ana")
    app.ask("PATCH", f"/v1/users/{user_id}/preferences", {"quiet_hours": None})
    page.goto(dashboard.url("/audit?user_id=audited+a"))
    expect(find_row(page, "preferences.update").first).to_contain_text("Audited Ana")
    for cell in page.locator("[data-label=About]").all_inner_texts():
        assert cell.strip() not in {"", "–"}
    page.goto(f"{dashboard.origin}/admin/audit-log")
    expect(find_row(page, "session.start").first).to_be_visible()
    page.get_by_role("link", name="Verify the newest").click()
    expect(page.get_by_role("status")).to_contain_text("are as they were written")


def test_an_administrator_is_invited_changed_reset_and_deleted(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = open_server(dashboard, open_window, "/administrators")
    page.get_by_role("link", name="Invite").click()
    page.get_by_label("Username").fill("carla")
    page.get_by_role("main").get_by_label("App", exact=True).select_option(dashboard.app_id)
    page.get_by_label("Role for this app").select_option("viewer")
    press(page, "Make a set-up link")
    link = page.get_by_label("Link", exact=True).input_value()
    other = open_window(link).page
    other.get_by_label("Password").fill(PASSWORD)
    press(other, "Set up")
    expect(other.get_by_role("navigation", name="Pages")).to_contain_text("Notifications")
    expect(other.get_by_role("navigation", name="Pages")).not_to_contain_text("Administrators")

    page.get_by_role("link", name="Done").click()
    page.get_by_role("link", name="carla").click()
    page.get_by_label("Role for all apps").select_option("editor")
    press(page, "Save")
    expect(page.get_by_role("status")).to_have_text("The administrator is changed.")
    other.reload()
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in")
    press(page, "Reset")
    press(page.get_by_role("dialog"), "Reset")
    assert page.get_by_label("Link", exact=True).input_value() != link
    page.get_by_role("link", name="Done").click()
    page.get_by_role("link", name="carla").click()
    press(page, "Delete")
    press(page.get_by_role("dialog"), "Delete")
    expect(page.get_by_role("link", name="carla")).to_have_count(0)


def test_pages_of_the_server_keep_the_app_and_the_next_visit_opens_it(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    other = dashboard.server.make_app_by_command()
    page = dashboard.open(open_window, "/audit")
    page.goto(f"{dashboard.origin}/admin/apps/{other['id']}/people")
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_label("App", exact=True)).to_have_value(other["id"])
    page.get_by_role("link", name="People").click()
    expect(page).to_have_url(f"{dashboard.origin}/admin/apps/{other['id']}/people")
    page.goto(f"{dashboard.origin}/admin")
    expect(page).to_have_url(f"{dashboard.origin}/admin/apps/{other['id']}/get-started")
    page.get_by_label("App", exact=True).select_option(dashboard.app_id)
    expect(page).to_have_url(dashboard.url("/get-started"))
    # The choice on a page that no app has leads to the app itself.
    page.goto(f"{dashboard.origin}/admin/account")
    page.get_by_label("App", exact=True).select_option(other["id"])
    expect(page).to_have_url(f"{dashboard.origin}/admin/apps/{other['id']}/get-started")


def test_a_session_is_ended_in_another_browser(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    account = dashboard.make(Role.VIEWER)
    other = dashboard.open(open_window, "/audit", account)
    page = dashboard.open(open_window, "/audit", account)
    page.get_by_role("link", name="Your account").click()
    expect(page.get_by_role("main")).to_contain_text("Unknown browser")  # it sent no name
    press(page, "End")
    expect(page.get_by_role("status")).to_have_text("The session is ended.")
    other.reload()
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in")
    press(page, "Sign out everywhere")
    press(page.get_by_role("dialog"), "Sign out")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_the_health_of_the_node_is_shown(dashboard: Dashboard, open_window: OpenWindow) -> None:
    page = open_server(dashboard, open_window, "/health")
    expect(page.get_by_text("healthy", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="What it depends on")).to_contain_text("connected")


def test_a_viewer_sees_no_button_that_changes_something(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/audit", dashboard.make(Role.VIEWER))
    device = f"/devices/{make_device(app)}"
    paths = ["/providers", "/providers/email/main", "/topics", "/segments", "/segments/vips"]
    for path in (*paths, "/devices", device, "/feedback", "/audit"):
        page.goto(dashboard.url(path))
        shown = [each.inner_text() for each in page.get_by_role("main").get_by_role("button").all()]
        assert set(shown) <= {"Search", "Show", "Count"}, path
        expect(page.get_by_role("link", name="New", exact=False)).to_have_count(0)


def test_hostile_texts_are_shown_as_they_are(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/audit", width=390)
    for number, text in enumerate(HOSTILE):
        # Some texts are refused in some fields; then it is the rest that is shown.
        device_id = make_device(app, label=text[:64], model=text[:64])
        quoted = text[:200].replace("'", "''")
        app.ask("PUT", f"/v1/segments/hostile-{number}", {"filter": f"tag = '{quoted}'"})
        settings = {"host": "127.0.0.1", "port": free_port(), "from": f"{text[:90]} <a@x.example>"}
        provider = {"kind": "smtp", "settings": settings | {"security": "none"}}
        app.ask("PUT", f"/v1/providers/email/hostile-{number}", provider)
        check_harmless(page, dashboard.url(f"/devices/{device_id}"))
        check_harmless(page, dashboard.url(f"/audit?action={quote(text[:100])}"))
    one = ("/segments/hostile-0", "/providers/email/hostile-0")
    for path in ("/devices", "/segments", "/providers", "/audit", *one):
        if app.get(f"/v1{path}").status == 200:
            check_harmless(page, dashboard.url(path))
    # Chromium logs each answer that is an error: what cannot be searched for is refused.
    faults = open_window.windows[-1].faults
    assert all("422" in fault for fault in faults)
    faults.clear()


@pytest.mark.core
@pytest.mark.rest("in all looks")
def test_no_page_has_a_fault(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow, packages: Path
) -> None:
    page = dashboard.open(open_window, "/audit")
    paths = [*PAGES, f"/devices/{make_device(app)}"]
    server = [f"{dashboard.origin}/admin{each}" for each in SERVER]
    for url in (*map(dashboard.url, paths), *server):
        page.goto(url)
        assert find_faults_in_all_looks(page, packages) == [], url
