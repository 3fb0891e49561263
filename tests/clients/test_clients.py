"""Both client libraries go through the same scenario with a real server."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.node import find_node

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "clients.md"
MODULE = HERE.parents[1] / "clients" / "js" / "clarion.js"
LIMIT_S = 30
LANGUAGES = ["python", "javascript"]


class Client:
    """A client in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], language: str) -> None:
        self._process = process
        self.language = language

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


@contextmanager
def run_client(language: str, installation: Installation, app: dict[str, Any]) -> Iterator[Client]:
    url = f"http://127.0.0.1:{installation.port}"
    given = [url, app["api_key"], app["id"], app["user_secret"]]
    if language == "python":
        command = [sys.executable, "-m", "tests.clients.driver", *given]
    else:
        command = [find_node().node, str(HERE / "driver.mjs"), str(MODULE), *given]
    with subprocess.Popen(
        command, stdin=PIPE, stdout=PIPE, text=True, cwd=HERE.parents[1]
    ) as process:
        try:
            yield Client(process, language)
        finally:
            process.kill()


@pytest.fixture(params=LANGUAGES)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    with run_client(request.param, server.installation, server.first["app"]) as running:
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


def test_a_text_is_published_once_to_those_who_follow(
    server: Server, client: Client, user: str
) -> None:
    topic, key = f"t-{uuid.uuid4().hex}", uuid.uuid4().hex
    assert server.app.ask("PUT", f"/v1/users/{user}/topics/{topic}").status == 204
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


def test_the_same_key_is_one_event(client: Client, user: str) -> None:
    key = uuid.uuid4().hex
    first, second = (client.do("send", event=like(user), key=key) for _ in range(2))
    assert first["event_id"] == second["event_id"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_over_a_restart_nothing_is_doubled_or_missed(language: str, tmp_path: Path) -> None:
    """The request and the stream that meet a stopped server go on with the next one."""
    installation = Installation(tmp_path)
    app = installation.initialise()["app"]
    with installation, run_client(language, installation, app) as client:
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


def test_the_example_of_the_docs_runs(server: Server) -> None:
    app, url = server.first["app"], f"http://127.0.0.1:{server.installation.port}"
    code = PAGE.read_text().partition("```python\n")[2].partition("```")[0]
    names = {"API_KEY": app["api_key"], "APP_ID": app["id"], "USER_SECRET": app["user_secret"]}
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    code = given + code.replace("http://127.0.0.1:8080", url)
    command = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().endswith(" pending\n")
            assert process.stdout.readline().startswith("state ")
            # The first event may have arrived before the list was read.
            server.app.post("/v1/events", like("ana", type="POST_COMMENT"))
            assert process.stdout.readline().startswith("notification ")
        finally:
            process.kill()
