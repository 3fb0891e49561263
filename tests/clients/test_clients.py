"""Both client libraries go through the same scenario with a real server."""

import datetime as dt
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from playwright.sync_api import Browser, Error

from tests.clients.page_client import MODULE, PageClient, open_page, serve_pages
from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.node import find_node

HERE = Path(__file__).parent
# The JavaScript client in Node, and in Chromium.
LANGUAGES = ["python", "javascript", "browser"]
# What needs an API key, which no page of another origin may use.
OF_SERVERS = {"put_user", "send", "send_batch", "publish", "explain", "get"}


class Client:
    """A client in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], language: str, app: Asker) -> None:
        self._process = process
        self.language = language
        self.app = app  # asks for the same app, without a library

    def begin(self, do: str, **given: Any) -> Callable[[], Any]:
        """Have something done; call the result to wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **given}) + "\n")
        self._process.stdin.flush()
        read = self._process.stdout.readline

        def finish() -> Any:
            answer = json.loads(read())
            return answer.get("ok", answer)

        return finish

    def do(self, do: str, **given: Any) -> Any:
        return self.begin(do, **given)()


class ShopClient(Client):
    """A shop: its server has the API key, and the page in the browser the token of a user."""

    def __init__(self, process: subprocess.Popen[str], app: Asker, page: PageClient) -> None:
        super().__init__(process, "browser", app)
        self._page = page

    def begin(self, do: str, **given: Any) -> Callable[[], Any]:
        begin = super().begin if do in OF_SERVERS else self._page.begin
        return begin(do, **given)


@contextmanager
def run_client(
    language: str, installation: Installation, app: dict[str, Any], chromium: Browser | None = None
) -> Iterator[Client]:
    url = f"http://127.0.0.1:{installation.port}"
    given = [url, app["api_key"], app["id"], app["user_secret"]]
    if language == "python":
        command = [sys.executable, "-m", "tests.clients.driver", *given]
    else:
        command = [find_node().node, str(HERE / "driver.mjs"), str(MODULE), *given]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=HERE.parents[1])
        )
        stack.callback(process.kill)
        asker = Asker(installation.port, app["api_key"])
        if chromium is None:
            yield Client(process, language, asker)
            return
        origin = stack.enter_context(serve_pages())
        assert asker.ask("PATCH", "/v1/app", {"allowed_origins": [origin]}).status == 200
        of_users = {"url": url, "appId": app["id"], "secret": app["user_secret"]}
        page = stack.enter_context(open_page(chromium, origin, of_users))
        yield ShopClient(process, asker, page)


def find_browser(request: pytest.FixtureRequest, language: str) -> Browser | None:
    if language != "browser":
        return None
    browser: Browser = request.getfixturevalue("chromium")
    return browser


@pytest.fixture(params=LANGUAGES)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    # An app of its own: it allows the origin of the page.
    app = server.make_app() if request.param == "browser" else server.first["app"]
    chromium = find_browser(request, request.param)
    with run_client(request.param, server.installation, app, chromium) as running:
        yield running


def like(user: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "POST_LIKE",
        "recipient": {"user_id": user},
        "actor": {"id": "ben", "name": "Ben"},
        "target": {"id": "post-1", "type": "post"},
    } | more


@pytest.fixture
def user(client: Client) -> str:
    user_id = f"user-{uuid.uuid4().hex}"
    assert client.do("put_user", user=user_id)["id"] == user_id
    return user_id


def next_change(client: Client, user: str, kind: str) -> Any:
    while (update := client.do("next", user=user))["type"] != kind:
        assert update["type"] in {"state", "notification", "read"}, update
    return update


def test_what_is_sent_is_streamed_read_and_streamed_again(client: Client, user: str) -> None:
    client.do("watch", user=user)
    assert client.do("next", user=user)["type"] == "state"
    event = client.do("send", event=like(user))
    assert event["status"] == "pending"
    arrived = next_change(client, user, "notification")
    assert arrived["unread_count"] == 1
    page = client.do("list", user=user, unread=True, limit=10)
    assert [item["id"] for item in page["items"]] == [arrived["item"]["id"]]
    read = client.do("read", user=user, id=arrived["item"]["id"])
    assert read["read_at"]
    assert next_change(client, user, "read")["unread_count"] == 0
    assert client.do("unread_count", user=user)["unread_count"] == 0
    assert client.do("dismiss", user=user, id=arrived["item"]["id"])["dismissed_at"]
    assert client.do("list", user=user)["items"] == []


def test_preferences_are_changed(client: Client, user: str) -> None:
    client.do("change_preferences", user=user, changes={"timezone": "Europe/Berlin"})
    assert client.do("preferences", user=user)["timezone"] == "Europe/Berlin"


def test_a_text_is_published_once_to_those_who_follow(client: Client, user: str) -> None:
    topic, key = f"t-{uuid.uuid4().hex}", uuid.uuid4().hex
    assert client.app.ask("PUT", f"/v1/users/{user}/topics/{topic}").status == 204
    client.do("watch", user=user)
    assert client.do("next", user=user)["type"] == "state"
    name = "idempotency_key" if client.language == "python" else "idempotencyKey"
    fields = {"title": "Nightly ü", "priority": "high", "tags": ["tada"], name: key}
    first, again = (
        client.do("publish", topic=topic, message="Backup done", **fields) for _ in range(2)
    )
    assert first == again
    assert first["topic"] == topic
    item = next_change(client, user, "notification")["item"]
    assert (item["title"], item["body"]) == ("🎉 Nightly ü", "Backup done")
    assert client.do("list", user=user)["unread_count"] == 1


def test_the_categories_have_titles(client: Client, user: str) -> None:
    titles = {each["name"]: each["title"] for each in client.do("categories", user=user)}
    assert titles["news"] == "News"


def test_a_batch_answers_for_each_event(client: Client, user: str) -> None:
    good, bad = client.do("send_batch", events=[like(user), like(user, type="NOT_A_TYPE")])
    assert (good["status"], bad["errors"][0]["field"]) == ("pending", "type")


def test_a_refusal_names_the_field_and_is_not_repeated(client: Client, user: str) -> None:
    refused = client.do("send", event=like(user, priority="loud"))
    assert refused["error"] == {"status": 422, "code": "invalid_fields", "fields": ["priority"]}


def test_an_event_is_explained_before_and_shown_after(client: Client, user: str) -> None:
    verdicts = client.do("explain", event=like(user))["verdicts"]
    assert [each["verdict"] for each in verdicts if each["channel"] == "in_app"] == ["send"]
    client.do("watch", user=user)
    assert client.do("next", user=user)["type"] == "state"
    event = client.do("send", event=like(user))
    item = next_change(client, user, "notification")["item"]
    assert client.do("get", name="get_event", id=event["event_id"])["type"] == "POST_LIKE"
    assert client.do("get", name="get_timeline", id=item["id"])["items"]
    assert client.do("get", name="get_user", id=user)["id"] == user


def test_a_scheduled_event_is_cancelled(client: Client, user: str) -> None:
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).isoformat()
    event = client.do("send", event=like(user, scheduled_at=later))
    cancelled = client.do("get", name="cancel_event", id=event["event_id"])
    assert cancelled["status"] == "cancelled"


def test_preferences_come_with_their_source(client: Client, user: str) -> None:
    explained = client.do("explained_preferences", user=user)
    assert explained["language"] == {"value": "en", "source": "default", "set_to": None}


def test_the_same_key_is_one_event(client: Client, user: str) -> None:
    key = uuid.uuid4().hex
    first, second = (client.do("send", event=like(user), key=key) for _ in range(2))
    assert first["event_id"] == second["event_id"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_over_a_restart_nothing_is_doubled_or_missed(
    request: pytest.FixtureRequest, language: str, tmp_path: Path
) -> None:
    """The request and the stream that meet a stopped server go on with the next one."""
    installation = Installation(tmp_path)
    app = installation.initialise()["app"]
    chromium = find_browser(request, language)
    with installation, run_client(language, installation, app, chromium) as client:
        client.do("put_user", user="ana")
        client.do("watch", user="ana")
        assert client.do("next", user="ana")["type"] == "state"
        installation.stop()
        sending = client.begin("send", event=like("ana"))
        installation.start()
        assert sending()["status"] == "pending"
        assert client.do("next", user="ana")["type"] == "end"
        assert next_change(client, "ana", "notification")["unread_count"] == 1
        assert len(client.do("list", user="ana")["items"]) == 1


def test_a_page_of_another_origin_reads_nothing_with_an_api_key(
    request: pytest.FixtureRequest, server: Server
) -> None:
    app, chromium = server.make_app(), request.getfixturevalue("chromium")
    given = {"url": f"http://127.0.0.1:{server.installation.port}", "apiKey": app["api_key"]}
    with serve_pages() as origin:
        asker = server.with_key(app["api_key"])
        asker.ask("PATCH", "/v1/app", {"allowed_origins": [origin]})
        with open_page(chromium, origin, given) as page, pytest.raises(Error, match="to fetch"):
            page.begin("put_user", user="ana")()
