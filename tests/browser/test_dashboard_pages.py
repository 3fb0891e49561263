"""The pages of an app in the dashboard, in a real browser."""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from clarion.access.model import Role
from clarion.store.opening import open_engine
from clarion.store.statement import Unit, statement
from tests.browser.conftest import OpenWindow
from tests.browser.dashboard import LOOKS, Dashboard, find_faults, serve
from tests.browser.test_inbox_element import HOSTILE
from tests.conftest import run_apart
from tests.e2e.asking import Asker
from tests.e2e.sending import make_user, send, set_preferences, wait_for_event, wait_until

ALL_DAY = [True] * 24
# What plots write on their axes, by the plot.
NOTE_LABELS = """
window.labels = {};
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  queueMicrotask(() => (window.labels[this.canvas.closest(".plot")?.id] ??= []).push(text));
  return fill.call(this, text, ...place);
};
"""
READ_EVENTS = "Number(document.querySelector('.tile dd').textContent.replaceAll(',', ''))"
FAIL_EVENT = statement(
    "fail_event_in_test",
    """UPDATE events SET status = 'failed', retry_count = 5,
    last_error = 'email: try_later: <b>not now</b>' WHERE id = :id""",
)
FAIL_JOBS = statement("fail_jobs_in_test", "UPDATE jobs SET lane = -1 WHERE event_id = :id")


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with serve(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def app(dashboard: Dashboard) -> Asker:
    return dashboard.server.app


def comment(app: Asker, user_id: str, text: str = "What a view!") -> str:
    """Send an event to a user, wait until it is decided, and return the notification's id."""
    event = {
        "type": "POST_COMMENT",
        "recipient": {"user_id": user_id},
        "actor": {"id": "ben", "name": text[:256]},
        "target": {"id": "p1", "type": "post"},
        "data": {"snippet": text},
    }
    event_id = send(app, event)
    wait_for_event(app, event_id)
    notification_id: str = app.get(f"/v1/events/{event_id}/notifications").json["items"][0]["id"]
    return notification_id


def find_row(page: Page, text: str) -> Any:
    return page.get_by_role("row").filter(has_text=text)


def make_dead_letter(dashboard: Dashboard) -> str:
    """Store an event whose job has failed for good; five real tries would take half a minute."""
    app = dashboard.server.app
    later = datetime.now(UTC) + timedelta(hours=1)
    draft = {"type": "POST_COMMENT", "recipient": {"user_id": make_user(app)}}
    event_id = send(app, draft | {"scheduled_at": later.isoformat()})

    async def fail() -> None:
        url = dashboard.server.installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        steps = (FAIL_EVENT.step(id=event_id), FAIL_JOBS.step(id=event_id))
        await engine.write(Unit(event_id, steps, dashboard.app_id))
        await engine.close()

    run_apart(fail())
    return event_id


def test_the_overview_updates_by_itself(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/overview")
    expect(page.locator(".plot .uplot")).to_have_count(4)
    before = page.evaluate(READ_EVENTS)
    for _ in range(3):
        comment(app, make_user(app))
    # The policy forbids a function that the page itself would wait for.
    wait_until(lambda: page.evaluate(READ_EVENTS) >= before + 3 or None)
    expect(page.locator("#reasons")).to_contain_text("The user has no device")
    expect(page.locator("#channels")).to_contain_text("100.0 %")
    page.get_by_role("link", name="Last day").click()
    wait_until(lambda: page.evaluate(READ_EVENTS) >= before + 3 or None)


def test_all_ranges_show_what_the_tiles_count(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    comment(app, make_user(app))
    page = dashboard.open(open_window, "/overview")
    wait_until(lambda: page.evaluate(READ_EVENTS) > 0 or None)
    for name in ("1h", "24h", "30d"):
        page.goto(dashboard.url(f"/overview?range={name}"))
        counted = page.evaluate(READ_EVENTS)
        figures = page.request.get(dashboard.url(f"/overview/figures?range={name}")).json()
        assert sum(figures["throughput"][1]) >= counted > 0, name


def test_one_sample_is_drawn_on_an_axis_of_a_minute(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/people")
    page.add_init_script(NOTE_LABELS)
    page.goto(dashboard.url("/overview"))
    expect(page.locator(".plot .uplot")).to_have_count(4)
    moments = page.evaluate("window.labels.now.filter((each) => each.includes(':'))")
    assert moments, page.evaluate("window.labels")
    assert all(each.count(":") == 2 for each in moments), moments


def test_tiles_stay_in_their_boxes_and_tell_due_jobs_from_held_ones(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    draft = {"type": "POST_COMMENT", "recipient": {"user_id": make_user(app)}}
    send(app, draft | {"scheduled_at": later})
    page = dashboard.open(open_window, "/overview", width=390)
    tile = page.locator(".tile").filter(has_text="Queue")
    expect(tile).to_contain_text("due")
    expect(tile).to_contain_text("held for later")
    wide = "[...document.querySelectorAll('.tile')].filter((e) => e.scrollWidth > e.clientWidth)"
    page.evaluate("document.querySelectorAll('.tile dd').forEach((e) => e.prepend('1,000,0'))")
    assert page.evaluate(f"{wide}.length") == 0


def test_people_are_found_by_the_beginning_of_their_name(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    ids = [make_user(app, name=name) for name in ("Zoë Quill", "zoë Quist", "Bo Zoë", "Äzoë")]
    page = dashboard.open(open_window, "/people?q=ZOë+q")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.goto(dashboard.url("/people?q=äz"))
    expect(page.locator("tbody tr")).to_contain_text([ids[3]])
    page.goto(dashboard.url(f"/people?q={ids[2]}"))
    expect(page).to_have_url(dashboard.url(f"/people/{ids[2]}"))
    page.goto(dashboard.url("/notifications?q=zoë+qui"))
    expect(page.get_by_role("heading", name="Whose notifications?")).to_be_visible()
    page.get_by_role("link", name="Zoë Quill").click()
    expect(page.get_by_role("main")).to_contain_text("No notification matches.")


def test_a_person_is_created_and_an_id_that_is_taken_is_refused(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    taken = make_user(app)
    page = dashboard.open(open_window, "/people")
    page.get_by_role("link", name="New person").click()
    page.get_by_label("Id", exact=True).fill(taken)
    page.get_by_label("Tags").fill("vip, beta")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("is the id of a user already")
    expect(page.get_by_label("Tags")).to_have_value("vip, beta")
    open_window.windows[-1].faults.clear()  # Chromium logs the answer 422
    page.get_by_label("Id", exact=True).fill(f"{taken}-new")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("The user is created.")
    assert app.get(f"/v1/users/{taken}-new").json["tags"] == ["vip", "beta"]


def test_an_event_is_previewed_explained_and_sent(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app, name="Quentin Sender")
    page = dashboard.open(open_window, f"/people/{user_id}")
    page.get_by_role("link", name="Send an event").click()
    foreseen = page.locator("#foreseen")
    page.get_by_label("Type").select_option("POST_COMMENT")
    expect(page.get_by_label("Data")).to_have_value(re.compile("What a nice day"))
    expect(foreseen).to_contain_text("The user has no device")
    page.get_by_label("Data").fill('{"snippet": "Seen before it is sent"}')
    expect(foreseen).to_contain_text("Seen before it is sent")
    page.get_by_label("Type").select_option("POST_LIKE")
    expect(foreseen).to_contain_text("liked")
    expect(page.get_by_label("Data")).to_have_value(re.compile("Seen before"))
    page.get_by_label("Person").fill("quentin s")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("The event is accepted.")
    expect(page.locator("tbody tr")).to_contain_text("Quentin Sender")


# Each answer gets a tab of its own, so that the form stays as it is.
KEEP_FORM = """
window.submits = 0;
document.querySelector("main form").target = "_blank";
addEventListener("submit", () => window.submits++);
"""


def test_a_form_that_is_sent_twice_sends_one_event(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app)
    page = dashboard.open(open_window, f"/send?type=POST_LIKE&user_id={user_id}")
    page.evaluate(KEEP_FORM)
    for _ in range(2):
        with page.context.expect_page() as answer:
            page.get_by_role("button", name="Send", exact=True).click()
        expect(answer.value.get_by_role("status")).to_have_text("The event is accepted.")
    events = app.get("/v1/events?limit=100").json["items"]
    assert [each["recipient"].get("user_id") for each in events].count(user_id) == 1


def test_a_double_click_sends_a_form_once(dashboard: Dashboard, open_window: OpenWindow) -> None:
    page = dashboard.open(open_window, "/new-person")
    page.get_by_label("Id", exact=True).fill(f"twice-{uuid.uuid4().hex}")
    page.evaluate(KEEP_FORM)
    with page.context.expect_page() as answer:
        page.get_by_role("button", name="Create").dblclick()
    expect(answer.value.get_by_role("status")).to_have_text("The user is created.")
    assert page.evaluate("window.submits") == 1


def test_an_event_for_nobody_leads_to_a_new_person(
    dashboard: Dashboard, open_window: OpenWindow
) -> None:
    page = dashboard.open(open_window, "/send?type=POST_LIKE&user_id=nobody-yet")
    page.get_by_role("link", name="Create the user").click()
    expect(page.get_by_label("Id", exact=True)).to_have_value("nobody-yet")
    page.goto(dashboard.url("/explain?type=POST_LIKE&user_id=nobody-yet"))
    expect(page.get_by_role("alert")).to_contain_text("no user of this app")
    expect(page.get_by_role("link", name="Create the user nobody-yet")).to_be_visible()


def test_what_is_sent_arrives_in_two_windows(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    pages = [dashboard.open(open_window, "/overview") for _ in range(2)]
    before = max(page.evaluate(READ_EVENTS) for page in pages)
    comment(app, make_user(app))
    wait_until(lambda: all(page.evaluate(READ_EVENTS) > before for page in pages) or None)


def test_notifications_are_found_and_their_timeline_is_drawn(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app, name="Ana Found", email="found@example.com")
    id_ = comment(app, user_id)
    comment(app, make_user(app))
    page = dashboard.open(open_window, "/notifications")
    expect(find_row(page, user_id)).to_contain_text("Ana Found")
    for wanted in (user_id, "found@example.com", "ana f"):
        page.get_by_role("searchbox").fill(wanted)
        page.get_by_role("button", name="Search").click()
        expect(page.locator("tbody tr")).to_have_count(1)
    find_row(page, user_id).get_by_role("link", name="New comment").click()
    expect(page).to_have_url(dashboard.url(f"/notifications/{id_}"))
    entries = page.locator(".timeline li")
    expect(entries.first).to_contain_text("Event accepted")
    expect(entries.filter(has_text="Dropped")).to_contain_text("The user has no device")
    expect(entries.filter(has_text="Dropped")).to_contain_text("rule: devices")
    expect(entries.last).to_contain_text("Delivered")
    page.goto(dashboard.url(f"/notifications?q={id_}"))
    expect(page).to_have_url(dashboard.url(f"/notifications/{id_}"))


def test_a_notification_that_is_under_way_updates_by_itself(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app, email="a@example.com", quiet_hours=ALL_DAY)
    id_ = comment(app, user_id)
    app.ask("POST", "/v1/devices", {"platform": "clarion", "user_id": user_id})
    held = comment(app, user_id)
    page = dashboard.open(open_window, f"/notifications/{held}")
    expect(page.locator(".timeline")).to_contain_text("Quiet hours of the user")
    set_preferences(app, user_id, quiet_hours=[False] * 24)
    expect(page.locator(".timeline")).to_contain_text("Decided to send")
    assert id_ != held


def test_quiet_hours_are_changed_and_a_push_is_held_and_explained(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app, name="Eva", timezone="Europe/Lisbon")
    assert app.post("/v1/devices", {"platform": "clarion", "user_id": user_id}).status == 201
    page = dashboard.open(open_window, f"/people/{user_id}/preferences")
    page.get_by_label("Every day from").check()
    page.get_by_label("From", exact=True).fill("00:00")
    page.get_by_label("To", exact=True).fill("23:59")
    page.get_by_label("POST_LIKE by email").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Your changes are saved.")
    expect(page.get_by_text("00:00 to 23:59")).to_be_visible()
    expect(page.get_by_label("POST_LIKE by email")).not_to_be_checked()
    page.get_by_role("link", name="Explain").last.click()
    page.get_by_label("Type").select_option("POST_COMMENT")
    page.get_by_label("Time in their time zone").fill("2026-11-20T12:00")
    page.get_by_role("button", name="Explain").click()
    row = page.locator("table").first.get_by_role("row").filter(has_text="push")
    expect(row).to_contain_text("hold")
    expect(page.get_by_label("Data of the event, as JSON")).to_have_value(re.compile("snippet"))
    expect(row).to_contain_text("Quiet hours of the user")
    comment(app, user_id)
    page.goto(dashboard.url(f"/people/{user_id}/waiting"))
    expect(find_row(page, "POST_COMMENT")).to_contain_text("Quiet hours of the user")


def test_a_dead_letter_is_replayed(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    event_id = make_dead_letter(dashboard)
    page = dashboard.open(open_window, "/dead-letters")
    row = find_row(page, event_id)
    expect(row).to_contain_text("try_later: <b>not now</b>")
    row.get_by_role("link", name="POST_COMMENT").click()
    expect(page).to_have_url(dashboard.url(f"/events/{event_id}"))
    expect(page.get_by_role("main")).to_contain_text("try_later: <b>not now</b>")
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Replay chosen").click()
    expect(page.get_by_role("alert")).to_contain_text("choose at least one event")
    expect(page.get_by_role("status")).to_have_count(0)
    open_window.windows[-1].faults.clear()  # Chromium logs the answer 400
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Replay chosen").click()
    expect(page.get_by_role("status")).to_have_text("The events are being tried again.")
    expect(find_row(page, event_id)).to_have_count(0)
    assert wait_for_event(app, event_id)["status"] == "completed"


def test_a_person_is_changed_exported_and_erased(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app, name="Old name", email="erased@example.com")
    page = dashboard.open(open_window, "/people")
    page.get_by_label("Name, email address or id").fill("erased@example.com")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Old name").click()
    page.get_by_label("Name", exact=True).fill("New name")
    page.get_by_label("Time zone").fill("Nowhere/None")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[aria-invalid]")).to_have_count(1)
    expect(page.get_by_label("Name", exact=True)).to_have_value("New name")
    open_window.windows[-1].faults.clear()  # Chromium logs the answer 422
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("New name")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert (exported["user_id"], exported["user"]["name"]) == (user_id, "New name")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_label("Erase").check()
    page.get_by_label("Type the id").fill(user_id)
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("erased")
    assert app.get(f"/v1/users/{user_id}").status == 404


def test_a_wrong_id_is_an_error_in_the_dialog(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app)
    page = dashboard.open(open_window, f"/people/{user_id}")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_label("Erase").check()
    page.get_by_label("Type the id").fill("somebody")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("is not the id of this user; nothing was done")
    expect(dialog.get_by_label("Erase")).to_be_checked()
    expect(page.get_by_role("status")).to_have_count(0)
    open_window.windows[-1].faults.clear()  # Chromium logs the answer 422
    assert app.get(f"/v1/users/{user_id}").status == 200


def test_the_inbox_and_devices_of_a_person_are_shown(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app)
    app.post("/v1/devices", {"platform": "clarion", "user_id": user_id, "label": "Phone"})
    comment(app, user_id)
    page = dashboard.open(open_window, f"/people/{user_id}/inbox")
    expect(find_row(page, "New comment")).to_have_count(1)
    page.get_by_role("main").get_by_role("link", name="Devices").click()
    expect(find_row(page, "Phone")).to_contain_text("valid")


def test_a_viewer_sees_no_button_that_changes_something(
    dashboard: Dashboard, app: Asker, open_window: OpenWindow
) -> None:
    user_id = make_user(app)
    page = dashboard.open(open_window, f"/people/{user_id}", dashboard.make(Role.VIEWER))
    for path in (
        f"/people/{user_id}",
        f"/people/{user_id}/preferences",
        "/people",
        "/dead-letters",
    ):
        page.goto(dashboard.url(path))
        buttons = page.get_by_role("main").get_by_role("button").all_inner_texts()
        assert set(buttons) <= {"Search", "Export"}


def show_everything(dashboard: Dashboard, text: str) -> list[str]:
    """Store a text in every field that a page shows, and return the pages that do."""
    app = dashboard.server.app
    user_id = make_user(app, name=text[:200], tags=[text[:50]], attributes={"a": text[:256]})
    # Some texts are refused in some fields; then it is the rest that is shown.
    app.ask("POST", "/v1/devices", {"platform": "clarion", "user_id": user_id, "label": text[:64]})
    id_ = comment(app, user_id, text)
    person = [f"/people/{user_id}{tab}" for tab in ("", "/inbox", "/devices", "/preferences")]
    explain = f"/explain?user_id={user_id}&type=POST_COMMENT"
    return [*person, "/people", "/notifications", f"/notifications/{id_}", explain]


def test_hostile_texts_are_shown_as_they_are(dashboard: Dashboard, open_window: OpenWindow) -> None:
    page = dashboard.open(open_window, "/people", width=390)
    for text in HOSTILE:
        paths = show_everything(dashboard, text)
        for path in paths:
            page.goto(dashboard.url(path))
            assert page.evaluate("window.harmed") is None, path
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.goto(dashboard.url(paths[0]))
        shown = page.get_by_role("heading", level=1).text_content() or ""
        assert shown.strip() == text[:200].strip()


@pytest.mark.parametrize(
    "look",
    [pytest.param(LOOKS[0], marks=pytest.mark.core), *LOOKS[1:]],
    ids=lambda look: f"{look['color_scheme']}-{look['width']}",
)
def test_no_page_has_a_fault(
    dashboard: Dashboard,
    app: Asker,
    open_window: OpenWindow,
    packages: Path,
    look: dict[str, Any],
) -> None:
    user_id = make_user(app, name="Ana", tags=["vip"], quiet_hours=ALL_DAY)
    app.post("/v1/devices", {"platform": "clarion", "user_id": user_id, "label": "Phone"})
    id_ = comment(app, user_id)
    page = dashboard.open(open_window, "/overview", **look)
    person = [f"/people/{user_id}{each}" for each in ("", "/preferences", "/devices", "/inbox")]
    event_id = app.get(f"/v1/notifications/{id_}").json["event_id"]
    others = ["/notifications", f"/notifications/{id_}", "/people", "/dead-letters", "/explain"]
    others += ["/new-person", f"/send?type=POST_COMMENT&user_id={user_id}", f"/events/{event_id}"]
    explained = f"/explain?user_id={user_id}&type=POST_COMMENT"
    for path in ("/overview", *others, explained, *person, f"/people/{user_id}/waiting"):
        page.goto(dashboard.url(path))
        assert find_faults(page, packages) == [], path
