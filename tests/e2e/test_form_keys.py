"""A form of the dashboard that is sent twice, as by a double click, takes effect once."""

import re
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

from clarion.access.model import Role
from clarion.store.opening import open_engine
from clarion.store.statement import statement
from tests.conftest import run_apart
from tests.e2e.administrators import Browser, sign_in
from tests.e2e.asking import Answer
from tests.e2e.conftest import Server
from tests.e2e.sending import make_type, make_user

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
KEY = re.compile(r'name="form_key" value="([\w-]+)"')
SECRET = re.compile(r'id="s-[\w-]+"([^<]*)')


@dataclass(frozen=True)
class Form:
    """A form, and the table that gets a row by it."""

    table: str
    page: str
    path: str
    fields: dict[str, str]


@pytest.fixture(scope="module")
def browser(server: Server) -> Browser:
    return sign_in(server.installation, role=Role.ADMIN)


def read_key(browser: Browser, path: str) -> str:
    found = KEY.search(browser.get(path).body.decode())
    assert found, path
    return found[1]


def send_form(browser: Browser, form: Form, key: str, **changes: str) -> Answer:
    fields = form.fields | changes | {"csrf_token": browser.csrf_token, "form_key": key}
    answer = browser.ask("POST", form.path, urlencode(fields).encode(), headers=FORM)
    assert answer.status in (200, 303), answer.body
    return answer


def count_rows(server: Server, table: str) -> int:
    count = statement(f"count_{table}_in_test", f"SELECT COUNT(*) FROM {table}")  # noqa: S608 - one of those below

    async def run() -> Any:
        url = server.installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            return (await engine.fetch(count))[0][0]
        finally:
            await engine.close()

    return int(run_apart(run()))


@pytest.fixture
def form(server: Server, request: pytest.FixtureRequest) -> Form:
    """The form of a name; what it needs is made first."""
    name, root = f"f{uuid.uuid4().hex}", f"/admin/apps/{server.first['app']['id']}"
    user_id, type_ = make_user(server.app), make_type(server.app, "Hello")
    assert server.app.ask("PUT", f"/v1/topics/{name}", {}).status == 201
    keys, template = f"{root}/keys", f"{root}/types/{type_}/templates/in_app"
    stored = {"body": "Hello", "user_id": user_id, "sample": "{}"}
    forms = {
        "send": ("events", f"{root}/send", "", {"type": type_, "user_id": user_id, "data": "{}"}),
        "send to me": ("events", template, "/send", stored),
        "broadcast": ("topic_messages", f"{root}/topics/{name}/broadcast", "", {"body": "3:2"}),
        "key": ("api_keys", keys, "", {"label": name, "scopes": "events:write"}),
        "user key": ("user_keys", keys, "/../user-keys", {"algorithm": "HS256"}),
        "provider key": ("provider_keys", keys, "/../provider-keys", {}),
        "app": ("apps", "/admin/new-app", "", {"name": name, "bundle_id": f"com.example.{name}"}),
        "invitation": ("administrators", "/admin/new-administrator", "", {"username": name}),
    }
    table, page, action, fields = forms[request.param]
    return Form(table, page, (page + action).replace("/keys/..", ""), fields)


@pytest.mark.parametrize(
    "form",
    [
        "send",
        "send to me",
        "broadcast",
        "key",
        "user key",
        "provider key",
        "app",
        "invitation",
    ],
    indirect=True,
)
def test_it_takes_effect_once(server: Server, browser: Browser, form: Form) -> None:
    before, key = count_rows(server, form.table), read_key(browser, form.page)
    one, two = (send_form(browser, form, key) for _ in range(2))
    assert count_rows(server, form.table) == before + 1
    # The second answer is the one that is seen: it leads to the same, and has the same secret.
    assert (one.status, one.headers.get("location")) == (two.status, two.headers.get("location"))
    assert SECRET.findall(one.body.decode()) == SECRET.findall(two.body.decode())


@pytest.mark.parametrize("form", ["send", "key"], indirect=True)
def test_it_takes_effect_again_when_it_was_opened_again(
    server: Server, browser: Browser, form: Form
) -> None:
    before = count_rows(server, form.table)
    for _ in range(2):
        send_form(browser, form, read_key(browser, form.page))
    assert count_rows(server, form.table) == before + 2


@pytest.mark.parametrize("form", ["send", "key"], indirect=True)
def test_what_was_changed_meanwhile_is_sent(server: Server, browser: Browser, form: Form) -> None:
    """As by a reader who goes back to the form."""
    before, key = count_rows(server, form.table), read_key(browser, form.page)
    for text in ("first", "second"):
        send_form(browser, form, key, actor=text, label=text)
    assert count_rows(server, form.table) == before + 2
