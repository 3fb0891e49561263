"""Types, templates and keys in the dashboard, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from clarion.access.model import Role
from tests.browser.conftest import OpenWindow
from tests.browser.dashboard import Dashboard, serve
from tests.browser.looks import check_harmless, find_faults_in_all_looks
from tests.browser.test_inbox_element import HOSTILE
from tests.e2e.asking import Asker
from tests.e2e.sending import make_user, wait_until

PAGES = ["/types", "/new-type", "/types/POST_LIKE", "/types/POST_LIKE/edit", "/keys"]
SERVER = ["/admin/apps", "/admin/new-app"]
EDITORS = [f"/types/SECURITY_ACCOUNT_LOCKED/templates/{each}" for each in ("push", "email", "sms")]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with serve(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def app(dashboard: Dashboard) -> Asker:
    return dashboard.server.app


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def put_type(app: Asker, name: str, **fields: Any) -> None:
    assert app.ask("PUT", f"/v1/types/{name}", fields).status == 200


def put_template(
    app: Asker, name: str, channel: str, body: str, subject: str | None = None
) -> None:
    path = f"/v1/types/{name}/templates/{channel}"
    answer = app.ask("PUT", path, {"body": body, "subject": subject})
    assert answer.status == 200, answer.body


def test_a_template_is_written_previewed_saved_and_sent_to_oneself(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app)
    page = dashboard.open(open_window, "/new-type")
    page.get_by_label("Name", exact=True).fill("ORDER_READY")
    page.get_by_label("Display name").fill("Orders")
    press(page, "Save")
    expect(page.get_by_role("status")).to_have_text("The type is saved.")
    page.get_by_label("Channel", exact=True).select_option("in_app")
    press(page, "Write a template")
    page.get_by_label("Title").fill("Ready")
    page.get_by_label("Body").fill("{{ order }} is ready, {{ actor.name }}")
    page.get_by_label("Required variables").fill("order")
    preview = page.get_by_role("region", name="Preview")
    expect(preview).to_contain_text("data.order is required")
    page.get_by_label("Values for the preview").fill(
        '{"data": {"order": "A-7"}, "actor": {"name": "Ana"}}'
    )
    expect(preview).to_contain_text("A-7 is ready, Ana")

    page.get_by_label("Your user id in this app").fill(user_id)
    press(page, "Send")
    expect(page.get_by_role("alert")).to_contain_text("save the template first")
    expect(page.get_by_label("Body")).to_have_value("{{ order }} is ready, {{ actor.name }}")
    open_window.windows[-1].faults.clear()  # Chromium logs each answer that is an error.
    press(page, "Save as a new version")
    expect(page.get_by_role("status")).to_contain_text("The new version is saved")
    page.get_by_label("Values for the preview").fill(
        '{"data": {"order": "A-8"}, "actor": {"name": "Ana"}}'
    )
    page.get_by_label("Your user id in this app").fill(user_id)
    press(page, "Send")
    page.get_by_role("link", name="Open the event").click()
    expect(page).to_have_url(re.compile(r"/events/"))

    def find() -> Any:
        return app.get(f"/v1/users/{user_id}/notifications").json["items"] or None

    assert wait_until(find)[0]["body"] == "A-8 is ready, Ana"


def test_an_older_version_is_opened_and_saved_again(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    put_type(app, "NEWS_TODAY")
    for text in ("the first text", "the second text"):
        put_template(app, "NEWS_TODAY", "in_app", text)
    page = dashboard.open(open_window, "/types/NEWS_TODAY/templates/in_app")
    expect(page.get_by_label("Body")).to_have_value("the second text")
    page.get_by_role("link", name="Version 1").click()
    expect(page.get_by_label("Body")).to_have_value("the first text")
    press(page, "Save as a new version")
    expect(page.get_by_role("link", name="Version 3")).to_be_visible()
    assert app.get("/v1/types/NEWS_TODAY/templates/in_app").json["body"] == "the first text"


@pytest.mark.parametrize(
    ("channel", "text", "place", "there"),
    [
        ("in_app", "Hello\n\U0001f600 {{ user.name }\nBye", (2, 3), "{{ user.name }"),
        ("email", "<mjml>\n<mj-body>\n é<mj-text>x\n</mj-body>\n</mjml>", (3, 3), "<mj-text>x"),
    ],
)
def test_the_place_of_a_fault_is_marked_in_the_editor(
    dashboard: Dashboard,
    app: Asker,
    open_window: OpenWindow,
    channel: str,
    text: str,
    place: tuple[int, int],
    there: str,
) -> None:
    put_type(app, f"MARKED_{channel.upper()}", default_channels=[channel])
    page = dashboard.open(open_window, f"/types/MARKED_{channel.upper()}/templates/{channel}")
    page.get_by_label("Body").fill(text)
    line, column = place
    expect(page.locator("#preview")).to_contain_text(f"(line {line}, column {column})")
    expect(page.locator(".line-numbers .marked")).to_have_text(str(line))
    page.get_by_role("button", name=f"Go to line {line}, column {column}").click()
    chosen = "document.activeElement.value.slice(document.activeElement.selectionStart)"
    assert page.evaluate(chosen).startswith(there)
    page.get_by_label("Body").fill("Hello")
    expect(page.locator("#preview")).to_contain_text("Hello")
    expect(page.locator(".line-numbers .marked")).to_have_count(0)
    open_window.windows[-1].faults.clear()  # Chromium logs the answers 422, if there are any


def test_an_email_is_shown_in_a_frame_that_runs_nothing(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    put_type(app, "LETTER", default_channels=["email"])
    script = "<script>parent.harmed=1</script><img src=x onerror=parent.harmed=1>"
    put_template(app, "LETTER", "email", f"<p style='color: red'>Dear reader</p>{script}", "Hello")
    page = dashboard.open(open_window, "/types/LETTER/templates/email")
    mail = page.frame_locator("iframe[title='The email']")
    expect(mail.get_by_text("Dear reader")).to_have_css("color", "rgb(255, 0, 0)")
    page.get_by_label("Body").fill("<mjml><mj-body><mj-text>By MJML</mj-text></mj-body></mjml>")
    expect(mail.get_by_text("By MJML")).to_be_visible()
    assert page.evaluate("window.harmed") is None
    # That it blocked them is what the browser logs.
    window = open_window.windows[-1]
    assert all("sandbox" in fault or "Policy" in fault for fault in window.faults)
    window.faults.clear()


def test_a_key_is_made_rotated_and_revoked(dashboard: Dashboard, open_window: OpenWindow) -> None:
    page = dashboard.open(open_window, "/keys")
    press(page, "New API key")
    page.get_by_label("Label").fill("billing")
    page.get_by_label("events:write").check()
    page.get_by_label("keys:read").check()
    press(page, "Create")
    first = page.get_by_label("API key", exact=True).input_value()
    assert dashboard.server.with_key(first).get("/v1/keys").status == 200

    row = page.get_by_role("row").filter(has_text="billing")
    row.get_by_role("button", name="Rotate").click()
    page.get_by_role("dialog").get_by_label("The old key stays valid").select_option("3600")
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    second = page.get_by_label("API key", exact=True).input_value()
    assert second != first
    for key in (first, second):
        assert dashboard.server.with_key(key).get("/v1/keys").status == 200
    assert second not in page.url
    page.goto(dashboard.url("/keys"))
    assert second not in page.content()
    log = dashboard.server.installation.log.read_text()
    assert first not in log
    assert second not in log

    old = page.get_by_role("row").filter(has_text="billing").filter(has_text="ending")
    old.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("status")).to_have_text("The key is revoked.")
    assert dashboard.server.with_key(first).get("/v1/keys").status == 401
    assert dashboard.server.with_key(second).get("/v1/keys").status == 200


def test_keys_of_users_and_providers_are_rotated(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/keys")
    for region, label in (
        ("Keys for user tokens", "Secret"),
        ("Keys of APNs providers", "Private key (.p8)"),
    ):
        page.get_by_role("region", name=region).get_by_role("button", name="Rotate").click()
        page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        assert len(page.get_by_label(label, exact=True).input_value()) > 30


def test_an_app_is_created_changed_and_deleted(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/keys")
    page.goto(f"{dashboard.origin}/admin/apps")
    page.get_by_role("link", name="New app").click()
    page.get_by_label("Name").fill("Shop")
    page.get_by_label("Bundle id").fill("com.example.shop")
    press(page, "Create")
    key = page.get_by_label("API key, for your server").input_value()
    page.get_by_role("link", name="Open the app").click()
    page.get_by_role("link", name="App and keys").click()
    page.get_by_label("Allowed origins").fill("https://shop.example\nhttps://www.shop.example")
    page.get_by_label("Notifications that a user gets in an hour").fill("20")
    press(page, "Save")
    app = dashboard.server.with_key(key)
    limits = app.get("/v1/app").json
    assert (limits["user_per_hour"], limits["category_per_hour"]) == (20, None)
    assert app.get("/v1/app").json["allowed_origins"] == [
        "https://shop.example",
        "https://www.shop.example",
    ]
    press(page, "Delete the app")
    page.get_by_label("Type its name to continue").fill("Shop")
    press(page, "Delete permanently")
    expect(page.get_by_role("status")).to_contain_text("The app is deleted.")
    assert app.get("/v1/app").status == 401


def test_a_viewer_sees_no_button_that_changes_something(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/types", dashboard.make(Role.VIEWER))
    for path in ("/types", "/types/POST_LIKE", "/keys", EDITORS[0]):
        page.goto(dashboard.url(path))
        main = page.get_by_role("main")
        shown = [each.inner_text() for each in main.get_by_role("button").all()]
        assert set(shown) <= {"Update"}, path


def test_hostile_texts_are_shown_as_they_are(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/types", width=390)
    for number, text in enumerate(HOSTILE):
        name, literal = f"HOSTILE_{number}", "{% raw %}" + text + "{% endraw %}"
        fields = {"display_name": text[:100], "default_channels": ["in_app", "email"]}
        # Some texts are refused in some fields; then it is the rest that is shown.
        if app.ask("PUT", f"/v1/types/{name}", fields).status != 200:
            put_type(app, name)
        put_template(app, name, "in_app", literal, literal if len(literal) < 500 else None)
        put_template(app, name, "email", literal, "x")
        app.post("/v1/keys", {"label": text[:64], "scopes": ["stats:read"]})
        check_harmless(page, dashboard.url(f"/types/{name}/templates/email"))
        check_harmless(page, dashboard.url(f"/types/{name}/templates/in_app"))
        expect(page.get_by_label("Body")).to_have_value(literal)
    for path in ("/types", "/types/HOSTILE_0", "/types/HOSTILE_0/edit", "/keys"):
        check_harmless(page, dashboard.url(path))


@pytest.mark.core
@pytest.mark.rest("in all looks")
def test_no_page_has_a_fault(dashboard: Dashboard, open_window: OpenWindow, packages: Path) -> None:
    page = dashboard.open(open_window, "/types")
    urls = [
        *map(dashboard.url, (*PAGES, *EDITORS)),
        *(f"{dashboard.origin}{each}" for each in SERVER),
    ]
    for url in urls:
        page.goto(url)
        assert find_faults_in_all_looks(page, packages) == [], url


@pytest.mark.parametrize("button", ["New API key", "Rotate", "Delete the app"])
def test_a_dialog_has_no_fault(
    dashboard: Dashboard, open_window: OpenWindow, packages: Path, button: str
) -> None:
    page = dashboard.open(open_window, "/keys")
    page.get_by_role("button", name=button).first.click()
    assert find_faults_in_all_looks(page, packages) == []
