"""The samples of the guides that a page in a browser uses, as they are written there."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.clients.page_client import serve_pages
from tests.docs.pages import IN_A_BROWSER, list_pages, read_blocks
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import send_and_wait, wait_until
from tests.web_push import Browser as Subscriber

OpenPage = Callable[..., Page]


def read_samples() -> dict[str, str]:
    blocks = [block for page in list_pages() for block in read_blocks(page)]
    return {block.title: block.text for block in blocks if block.title}


def read_sample(name: str) -> str:
    return read_samples()[name]


@pytest.fixture
def user(server: Server) -> InboxUser:
    user = InboxUser(server)
    assert server.app.ask("PUT", f"/v1/users/{user.id}", {}).status == 201
    return user


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.installation.port}"


@pytest.fixture
def open_page(server: Server, user: InboxUser, chromium: Browser) -> Iterator[OpenPage]:
    """Opens a page of another origin, with scripts, that the app allows."""
    with ExitStack() as stack:

        def open_page(head: str, scripts: Mapping[str, str]) -> Page:
            page = f'<!doctype html><link rel="icon" href="data:,">{head}'
            for name in scripts:
                page += f'<script src="/{name}"></script>'
            files = {
                f"/{name}": ("text/javascript", text.encode()) for name, text in scripts.items()
            }
            files["/worker.js"] = ("text/javascript", read_sample("worker.js").encode())
            files["/clarion-token"] = ("text/plain", user.token.encode())
            files["/"] = ("text/html; charset=utf-8", page.encode())
            origin = stack.enter_context(serve_pages(files, policy=""))
            allowed = server.app.ask("PATCH", "/v1/app", {"allowed_origins": [origin]})
            assert allowed.status == 200
            context = chromium.new_context(permissions=["notifications"])
            stack.callback(context.close)
            opened = context.new_page()
            opened.set_default_timeout(30_000)
            opened.goto(origin)
            return opened

        yield open_page


def comment(user: InboxUser, **more: Any) -> None:
    event = {"type": "POST_COMMENT", "recipient": {"user_id": user.id}, "actor": {"name": "Bo"}}
    send_and_wait(user.server.app, event | more)


def test_every_sample_for_a_browser_is_run_here() -> None:
    assert {*IN_A_BROWSER} <= {*read_samples()}


def test_the_bell_of_the_guide_shows_what_arrives_and_leaves_links_to_the_page(
    user: InboxUser, open_page: OpenPage
) -> None:
    html = read_sample("page.html").replace("https://notify.example.com", url_of(user.server))
    router = "const router = { push: (link) => { window.opened = link; } };"
    page = open_page(html, {"router.js": router, "clicks.js": read_sample("clicks.js")})
    expect(page.locator("clarion-inbox .bell")).to_be_visible()
    comment(user, deeplink="/posts/1")
    expect(page.locator("clarion-inbox .badge")).to_have_text("1")
    page.locator("clarion-inbox .bell").click()
    page.locator("clarion-inbox li .entry").click()
    page.wait_for_function("window.opened === '/posts/1'")


@pytest.mark.parametrize(
    ("sample", "call"),
    [
        ("watch.js", "({ url, token }) => void watch(url, () => token, note)"),
        ("socket.js", "({ gateway, token }) => void connect(gateway, token, null, note)"),
        (
            "open-stream.js",
            """async ({ url, token }) => {
              const source = await openStream(url, token);
              for (const name of ["state", "notification"])
                source.addEventListener(name, ({ data }) => note(JSON.parse(data)));
            }""",
        ),
    ],
)
def test_a_sample_receives_what_arrives(
    user: InboxUser, open_page: OpenPage, sample: str, call: str
) -> None:
    note = "window.noted = []; const note = ({ type }) => window.noted.push(type);"
    page = open_page("", {"note.js": note, sample: read_sample(sample)})
    gateway = f"ws://127.0.0.1:{user.server.installation.gateway_port}"
    page.evaluate(call, {"url": url_of(user.server), "gateway": gateway, "token": user.token})
    page.wait_for_function("window.noted.includes('state')")
    comment(user)
    page.wait_for_function("window.noted.includes('notification')")


LIST_SHOWN = """async () => {
  const shown = await self.registration.getNotifications();
  return shown.map(({ title, body, tag }) => [title, body, tag]);
}"""
# The Chromium of npm can show no notifications, whatever is permitted: they are only noted.
RECORD_SHOWN = """() => {
  const shown = [], prototype = ServiceWorkerRegistration.prototype;
  prototype.showNotification = async (title, options) => { shown.push({ title, ...options }); };
  prototype.getNotifications = async () => shown;
}"""


def test_a_browser_subscribes_and_its_worker_shows_what_is_pushed(
    user: InboxUser, open_page: OpenPage
) -> None:
    """Chromium without a vendor's push service cannot subscribe itself: that part is given."""
    page = open_page("", {})
    subscription = json.loads(Subscriber().subscription("https://push.example.com/subscription"))
    page.evaluate("given => { PushManager.prototype.subscribe = async () => given; }", subscription)
    names = {"CLARION": url_of(user.server), "PUBLIC_KEY": "x", "USER_TOKEN": user.token}
    page.evaluate("given => Object.assign(window, given)", names)
    session = page.context.new_cdp_session(page)
    registrations: list[str] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda found: registrations.extend(
            each["registrationId"] for each in found["registrations"]
        ),
    )
    session.send("ServiceWorker.enable")
    subscribe = read_sample("subscribe.js")
    page.evaluate(f"(async () => {{ {subscribe} }})()")
    (device,) = user.server.app.get(f"/v1/users/{user.id}/devices").json["items"]
    assert device["platform"] == "web"
    page.evaluate("navigator.serviceWorker.ready.then(() => {})")
    (worker,) = page.context.service_workers
    if page.evaluate("Notification.permission") != "granted":
        worker.evaluate(RECORD_SHOWN)
    pushed = '{"id": "m1", "title": "New comment", "body": "Bo commented", "deeplink": "/posts/1"}'
    session.send(
        "ServiceWorker.deliverPushMessage",
        {"origin": page.evaluate("origin"), "registrationId": registrations[0], "data": pushed},
    )
    expected = [["New comment", "Bo commented", "m1"]]
    wait_until(lambda: worker.evaluate(LIST_SHOWN) == expected or None)
