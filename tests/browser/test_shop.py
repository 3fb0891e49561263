"""The sample application in `examples/shop`, started as its README says."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.test_guides import LIST_SHOWN, RECORD_SHOWN
from tests.docs.conftest import clone
from tests.docs.reader import Clone, environment, only_one_at_a_time
from tests.e2e.asking import Asker
from tests.e2e.sending import wait_until
from tests.processes import free_port
from tests.web_push import Browser as Subscriber

__all__ = ["clone"]

LINES = 400
# The first test of a run waits for the installation.
pytestmark = pytest.mark.timeout(400)


@dataclass
class Shop:
    port: int
    clarion_port: int
    data: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> Asker:
        first = json.loads((self.data / "clarion" / "first-run.json").read_bytes())
        return Asker(self.clarion_port, first["app"]["api_key"])


@pytest.fixture(scope="module")
def shop(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """`./start` in a fresh clone, and Ctrl-C."""
    shop = Shop(free_port(), free_port(), tmp_path_factory.mktemp("shop"))
    given = {
        "SHOP_PORT": str(shop.port),
        "SHOP_CLARION_PORT": str(shop.clarion_port),
        "SHOP_DATA": str(shop.data),
    }
    folder = clone.folder / "examples" / "shop"
    log = shop.data / "printed"
    # Another worker may be installing.
    with log.open("w") as output, only_one_at_a_time(clone.home.parent / "shop.lock"):
        process = subprocess.Popen(
            [folder / "start"],
            env=environment(clone.home, **given),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        wait_until(lambda: is_up(process, log) or None)
    yield shop
    process.terminate()
    assert process.wait() == 0


def is_up(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return "Running on" in log.read_text()


def sign_in(page: Page, name: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Email").fill(f"{name.lower()}@example.com")
    page.get_by_label("Password").fill("tea")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("clarion-inbox .bell")).to_be_visible()


def end_quiet_hours(shop: Shop) -> None:
    """Have email sent at once: at night it would wait until the morning."""
    for user in shop.api.get("/v1/users").json["items"]:
        quiet = {"quiet_hours": [False] * 24}
        answer = shop.api.ask("PATCH", f"/v1/users/{user['id']}/preferences", quiet)
        assert answer.status == 200


def test_an_order_is_counted_live_read_and_mailed(shop: Shop, open_window: OpenWindow) -> None:
    page = open_window(shop.url).page
    sign_in(page, "Ana")
    end_quiet_hours(shop)
    other = page.context.new_page()
    other.goto(shop.url)
    expect(other.locator("clarion-inbox .bell")).to_have_attribute("aria-label", "Notifications")
    expect(other.locator("clarion-inbox .badge")).to_be_hidden()
    page.get_by_role("button", name="Order Green tea").click()
    expect(other.locator("clarion-inbox .badge")).to_have_text("1")
    other.locator("clarion-inbox .bell").click()
    expect(other.locator("clarion-inbox li")).to_contain_text("Thank you! Green tea is on its way.")
    other.locator("clarion-inbox li .entry").click()
    for each in (page, other):
        expect(each.locator("clarion-inbox .badge")).to_be_hidden()
    mail = f"{shop.url}/mail"
    wait_until(lambda: "Your order" in page.request.get(mail).text() or None)
    page.get_by_role("link", name="The mail that was sent").click()
    expect(page.get_by_role("article")).to_contain_text("To Ana <ana@example.com>")
    expect(page.get_by_role("article")).to_contain_text("Hello Ana, your Green tea is coming.")


def test_a_browser_subscribes_and_shows_what_is_pushed(shop: Shop, open_window: OpenWindow) -> None:
    """Chromium without a vendor's push service cannot subscribe itself: that part is given."""
    page = open_window(shop.url).page
    page.context.grant_permissions(["notifications"])
    sign_in(page, "Ben")
    subscription = json.loads(Subscriber().subscription("https://push.example.com/subscription"))
    page.evaluate("given => { PushManager.prototype.subscribe = async () => given; }", subscription)
    session, registrations = page.context.new_cdp_session(page), list[dict[str, Any]]()
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda found: registrations.extend(found["registrations"]),
    )
    session.send("ServiceWorker.enable")
    page.get_by_role("button", name="Notify me on this device").click()
    expect(page.locator("#status")).to_contain_text("This device gets notifications.")
    (ben,) = shop.api.get("/v1/users?email=ben@example.com").json["items"]
    (device,) = shop.api.get(f"/v1/users/{ben['id']}/devices").json["items"]
    assert device["platform"] == "web"
    page.evaluate("navigator.serviceWorker.ready.then(() => {})")
    (worker,) = page.context.service_workers
    if page.evaluate("Notification.permission") != "granted":
        worker.evaluate(RECORD_SHOWN)
    registration = {"origin": shop.url, "registrationId": registrations[0]["registrationId"]}
    pushed = '{"id": "m1", "title": "Order 1", "body": "Green tea", "deeplink": "/"}'
    session.send("ServiceWorker.deliverPushMessage", {**registration, "data": pushed})
    expected = [["Order 1", "Green tea", "m1"]]
    wait_until(lambda: worker.evaluate(LIST_SHOWN) == expected or None)


def test_a_wrong_password_signs_nobody_in(shop: Shop, open_window: OpenWindow) -> None:
    window = open_window(shop.url)
    sign_in(window.page, "Cy")
    window.page.get_by_role("button", name="Sign out Cy").click()
    assert window.page.request.get(f"{shop.url}/clarion-token").status == 401
    window.page.get_by_label("Name").fill("Cy")
    window.page.get_by_label("Email").fill("cy@example.com")
    window.page.get_by_label("Password").fill("coffee")
    window.page.get_by_role("button", name="Sign in").click()
    expect(window.page.get_by_text("The password is wrong.")).to_be_visible()
    window.faults.clear()  # browsers log every response that is an error


def test_it_is_small_and_pins_what_it_installs(clone: Clone) -> None:
    folder = clone.folder / "examples" / "shop"
    listed = subprocess.run(
        ["/usr/bin/env", "git", "-C", folder, "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    files = {*listed.stdout.split()} - {"README.md", "requirements.txt"}
    assert sum(len((folder / name).read_text().splitlines()) for name in files) <= LINES
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert all(line.startswith("#") or line.count("==") == 1 for line in lines)
