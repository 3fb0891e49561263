"""Which web pages of other origins may use the API, as their browsers are told."""

import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser

PAGE = "https://app.example.com"
OTHER = "https://evil.example.com"
ANYONE = "access-control-allow-origin"
PATH = "/v1/me/unread-count"


@pytest.fixture
def ana(server: Server) -> Iterator[InboxUser]:
    """A user of an app that allows pages of one origin."""
    server.app.ask("PATCH", "/v1/app", {"allowed_origins": [PAGE]})
    user = InboxUser(server, f"ana-{uuid.uuid4().hex}")
    server.app.ask("PUT", f"/v1/users/{user.id}", {})
    yield user
    server.app.ask("PATCH", "/v1/app", {"allowed_origins": []})


def test_a_browser_may_ask_before_it_sends(server: Server) -> None:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    answer = server.anyone.ask("OPTIONS", "/v1/me/notifications/read-all", headers=asked)
    assert answer.status == 204
    assert answer.headers[ANYONE] == "*"
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_pages_of_an_allowed_origin_read_the_answer(ana: InboxUser) -> None:
    answer = ana.me.get(PATH, headers={"Origin": PAGE})
    assert (answer.status, answer.headers[ANYONE]) == (200, "*")
    assert "retry-after" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", [OTHER, "null", f"{PAGE}.evil.example", f"{PAGE}:8443", "x" * 900]
)
def test_pages_of_another_origin_are_refused_and_told_why(ana: InboxUser, origin: str) -> None:
    answer = ana.me.get(PATH, headers={"Origin": origin})
    assert (answer.status, answer.problem["code"]) == (403, "origin_not_allowed")
    assert "PATCH /v1/app" in answer.problem["detail"]
    assert answer.headers[ANYONE] == "*"


def test_what_pages_of_another_origin_send_has_no_effect(ana: InboxUser) -> None:
    change = {"language": "de"}
    answer = ana.me.ask("PATCH", "/v1/me/preferences", change, headers={"Origin": OTHER})
    assert answer.status == 403
    assert ana.me.get("/v1/me/preferences").json["language"] == "en"


def test_who_sends_no_origin_is_no_page(ana: InboxUser) -> None:
    answer = ana.me.get(PATH)
    assert (answer.status, ANYONE in answer.headers) == (200, False)


def test_pages_of_the_server_itself_need_no_permission(ana: InboxUser) -> None:
    own = f"http://127.0.0.1:{ana.server.installation.port}"
    answer = ana.me.get(PATH, headers={"Origin": own})
    assert (answer.status, ANYONE in answer.headers) == (200, False)


@pytest.mark.parametrize("origin", [PAGE, OTHER])
def test_no_page_reads_what_an_api_key_is_answered(ana: InboxUser, origin: str) -> None:
    answer = ana.server.app.get(f"/v1/users/{ana.id}", headers={"Origin": origin})
    assert (answer.status, ANYONE in answer.headers) == (200, False)


def test_a_page_can_read_that_its_token_is_not_valid(server: Server, ana: InboxUser) -> None:
    expired = Asker(server.installation.port, ana.make_token(life_s=-100))
    answer = expired.get(PATH, headers={"Origin": PAGE})
    assert (answer.status, answer.headers[ANYONE]) == (401, "*")


def test_a_change_counts_within_seconds(ana: InboxUser) -> None:
    assert ana.me.get(PATH, headers={"Origin": PAGE}).status == 200
    ana.server.app.ask("PATCH", "/v1/app", {"allowed_origins": [OTHER]})
    assert ana.me.get(PATH, headers={"Origin": PAGE}).status == 403
    assert ana.me.get(PATH, headers={"Origin": OTHER}).status == 200


def test_a_stream_is_for_allowed_origins_alone(ana: InboxUser) -> None:
    answer = ana.me.get("/v1/me/stream", headers={"Origin": OTHER})
    assert (answer.status, answer.problem["code"]) == (403, "origin_not_allowed")


@pytest.mark.parametrize("path", ["/static/clarion-inbox.js", "/static/clarion.js"])
def test_any_page_may_load_the_scripts(server: Server, path: str) -> None:
    answer = server.anyone.get(path, headers={"Origin": OTHER})
    assert (answer.status, answer.headers[ANYONE]) == (200, "*")
    assert answer.headers["content-type"].startswith("text/javascript")
