"""Take the pictures of the README and the docs: `.venv/bin/python tools/screenshots.py`."""

import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402 - after the path is set

from clarion.store.opening import open_engine  # noqa: E402
from clarion.store.statement import Unit, statement  # noqa: E402
from tests.browser.conftest import FLAGS, find_chromium  # noqa: E402
from tests.browser.dashboard import Dashboard, serve  # noqa: E402
from tests.conftest import run_apart  # noqa: E402
from tests.e2e.asking import Asker  # noqa: E402
from tests.e2e.sending import send, wait_for_event  # noqa: E402

IMAGES = ROOT / "docs" / "images"
ACTS = ("Like Ben’s post", "Comment on Ben’s post", "Sign in to Ben’s account from a new device")
PEOPLE = {
    "ana": ("Ana Souza", "Europe/Lisbon", "pt"),
    "ben": ("Ben Okafor", "Africa/Lagos", "en"),
    "chloe": ("Chloé Martin", "Europe/Paris", "fr"),
    "dmitri": ("Dmitri Petrenko", "Europe/Kyiv", "uk"),
    "emi": ("Emi Tanaka", "Asia/Tokyo", "ja"),
}
TYPES = ("POST_LIKE", "POST_COMMENT", "FOLLOWER_NEW", "SECURITY_NEW_DEVICE", "NEWS_SYSTEM_UPDATE")
ADD_COUNT = statement(
    "add_count_for_picture",
    """INSERT INTO analytics (app_id, metric, step, at, type, channel, platform, label, value)
    VALUES (:app_id, :metric, 'minute', :at, '', :channel, '', :label, :value)
    ON CONFLICT DO NOTHING""",
)
# Of a hundred events: metric, channel, label, and how many.
SHARES = (
    ("events", "", "", 100),
    ("messages", "", "accepted", 62),
    ("deliveries", "in_app", "sent", 100),
    ("deliveries", "in_app", "delivered", 100),
    ("deliveries", "push", "sent", 70),
    ("deliveries", "push", "delivered", 67),
    ("deliveries", "push", "failed", 3),
    ("deliveries", "email", "sent", 34),
    ("deliveries", "email", "delivered", 33),
    ("deliveries", "email", "failed", 1),
    ("delivery_latency", "push", "50", 30),
    ("delivery_latency", "push", "100", 25),
    ("delivery_latency", "push", "250", 10),
    ("delivery_latency", "email", "500", 4),
    ("decisions", "push", "quiet_hours", 14),
    ("decisions", "push", "no_device", 9),
    ("decisions", "email", "channel_off", 6),
    ("decisions", "push", "limit_reached", 2),
)

SUBJECT = "{{ order }} is on its way"
MAIL = """<mjml>
  <mj-body background-color="#f4f5f8">
    <mj-section background-color="#3457d5">
      <mj-column>
        <mj-text color="#ffffff" font-size="22px">
          On its way
        </mj-text>
      </mj-column>
    </mj-section>
    <mj-section background-color="#ffffff">
      <mj-column>
        <mj-text>Hello {{ user.name }},</mj-text>
        <mj-text>we have sent {{ order }} to you.</mj-text>
        <mj-button background-color="#3457d5" href="#">
          Follow it
        </mj-button>
      </mj-column>
    </mj-section>
  </mj-body>
</mjml>"""


def main() -> None:
    with serve(Path(tempfile.mkdtemp()), demo="on") as dashboard, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*FLAGS])
        page = browser.new_page(viewport={"width": 1000, "height": 620})
        page.goto(f"{dashboard.origin}/demo")
        show_bell(page)
        take(page, "bell")
        show_dashboard(dashboard, browser)
        browser.close()


def take(page: Page, name: str) -> None:
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    print(f"Wrote {path}")


def show_bell(page: Page) -> None:
    ben = page.get_by_role("region", name="Ben").locator("clarion-inbox")
    for count, act in enumerate(ACTS, start=1):
        page.get_by_role("button", name=act).click()
        expect(ben.locator(".badge")).to_have_text(str(count))
    ben.locator(".bell").click()
    expect(ben.locator("li")).to_have_count(len(ACTS))


def show_dashboard(dashboard: Dashboard, browser: Browser) -> None:
    app = dashboard.server.app
    event_id = make_events(app)
    run_apart(add_history(dashboard))
    notification = app.get(f"/v1/events/{event_id}/notifications").json["items"][0]["id"]
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_cookies(dashboard.cookies)
    page = context.new_page()
    pages = {
        "overview": "/overview",
        "timeline": f"/notifications/{notification}",
        "explain": "/explain?user_id=ana&type=POST_COMMENT&at=2026-11-17T23:30",
        "people": "/people/ben/preferences",
        "templates": "/types/ORDER_SHIPPED/templates/email",
    }
    write_template(app)
    for name, path in pages.items():
        page.goto(dashboard.url(path))
        if name == "overview":
            # The second figures come five seconds after the first.
            expect(page.locator(".uplot")).to_have_count(4)
            page.wait_for_timeout(6_000)
        if name == "templates":
            mail = page.frame_locator("iframe")
            expect(mail.get_by_role("link", name="Follow it")).to_be_visible()
        take(page, name)


def write_template(app: Asker) -> None:
    put(app, "/v1/types/ORDER_SHIPPED", {"display_name": "Orders", "default_channels": ["email"]})
    template = {"subject": SUBJECT, "body": MAIL, "variables": ["order"]}
    for _ in range(3):
        put(app, "/v1/types/ORDER_SHIPPED/templates/email", template)


def make_events(app: Asker) -> str:
    """Create people, devices and notifications; return an event on all channels."""
    chance = random.Random(7)  # noqa: S311 - each time the same picture
    for user_id, (name, timezone, language) in PEOPLE.items():
        fields = {"name": name, "timezone": timezone, "language": language}
        put(app, f"/v1/users/{user_id}", fields | {"email": f"{user_id}@example.com"})
    app.post("/v1/devices", {"platform": "clarion", "user_id": "ana", "label": "Ana’s phone"})
    app.post("/v1/devices", {"platform": "clarion", "user_id": "ben", "label": "Ben’s tablet"})
    preferences = {"categories": {"news": False}, "types": {"POST_LIKE": {"push": False}}}
    app.ask("PATCH", "/v1/users/ben/preferences", preferences)
    for _ in range(40):
        send_one(app, chance.choice(TYPES), chance.choice([*PEOPLE]))
    event_id = send_one(
        app, "SECURITY_NEW_DEVICE", "ana", channels=["in_app", "push", "email", "sms"]
    )
    wait_for_event(app, event_id)
    return event_id


def send_one(app: Asker, type_: str, user_id: str, **more: Any) -> str:
    event = {
        "type": type_,
        "recipient": {"user_id": user_id},
        "actor": {"id": "lea", "name": "Léa"},
        "target": {"id": "lisbon", "type": "post"},
        "data": {"snippet": "What a view!"},
    }
    return send(app, event | more)


def put(app: Asker, path: str, body: dict[str, Any]) -> None:
    answer = app.ask("PUT", path, body)
    assert answer.status in {200, 201}, answer.body  # noqa: S101 - a picture without it is wrong


async def add_history(dashboard: Dashboard) -> None:
    """Add the counts of an hour, as if events had come in all the time."""
    chance = random.Random(7)  # noqa: S311 - each time the same picture
    now = int(time.time() // 60 * 60_000)
    rows = []
    for minute in range(1, 60):
        events = 900 + 350 * math.sin(minute / 9) + chance.random() * 120
        for metric, channel, label, share in SHARES:
            noise = 0.9 + chance.random() / 5 if label in {"failed", "250", "500"} else 1
            value = int(events * share * noise / 100)
            rows.append((dashboard.app_id, metric, now - minute * 60_000, channel, label, value))
    url = dashboard.server.installation.database_url
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    await engine.write(Unit("history", (ADD_COUNT.many(rows),), dashboard.app_id))
    await engine.close()


if __name__ == "__main__":
    main()
