"""API keys and callers over real HTTP: made once, seen by their own app, refused when revoked."""

import datetime as dt
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jwt
import pytest

from clarion.access.model import Scope
from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.lanes import limit_s


def new_key() -> dict[str, Any]:
    """Return a body for a key whose label no other test has."""
    return {"label": f"🔑 {uuid.uuid4().hex}", "scopes": ["events:write", "keys:read"]}


def count_of(asker: Asker, body: dict[str, Any]) -> int:
    return [key["label"] for key in all_keys(asker)].count(body["label"])


def all_keys(asker: Asker, limit: int = 100) -> list[dict[str, Any]]:
    keys: list[dict[str, Any]] = []
    after = ""
    while True:
        page = asker.get(f"/v1/keys?limit={limit}{after}").json
        assert len(page["items"]) <= limit
        keys += page["items"]
        if page["next"] is None:
            return keys
        after = f"&after={page['next']}"


@pytest.fixture(scope="module")
def other_app(server: Server) -> dict[str, Any]:
    """A second app, made by the command line while the server runs."""
    return server.make_app_by_command()


def test_a_new_key_authenticates(server: Server) -> None:
    body = new_key()
    made = server.app.post("/v1/keys", body)
    assert made.status == 201
    assert made.json["scopes"] == ["events:write", "keys:read"]
    assert (made.json["label"], made.json["expires_at"]) == (body["label"], None)
    assert dt.datetime.fromisoformat(made.json["created_at"]).tzinfo is not None
    caller = server.with_key(made.json["api_key"]).get("/v1/caller").json
    assert caller == {
        "kind": "app",
        "app_id": server.first["app"]["id"],
        "key_id": made.json["id"],
        "scopes": ["events:write", "keys:read"],
        "user_id": None,
        "administrator_id": None,
        "role": None,
    }


def test_the_secret_is_shown_once(server: Server) -> None:
    made = server.app.post("/v1/keys", new_key()).json
    (listed,) = [key for key in all_keys(server.app) if key["id"] == made["id"]]
    assert listed == {name: value for name, value in made.items() if name != "api_key"}


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_hold_every_key_once_in_order(server: Server, limit: int) -> None:
    made = {server.app.post("/v1/keys", new_key()).json["id"] for _ in range(5)}
    ids = [key["id"] for key in all_keys(server.app, limit)]
    assert ids == sorted(set(ids))
    assert made < set(ids)


def test_a_page_has_20_items_if_nothing_is_said(server: Server) -> None:
    for _ in range(20):
        server.app.post("/v1/keys", new_key())
    page = server.app.get("/v1/keys").json
    assert len(page["items"]) == 20
    assert page["next"] == page["items"][-1]["id"]


def test_a_revoked_key_is_refused_at_once_and_stays_in_the_list(server: Server) -> None:
    made = server.app.post("/v1/keys", new_key()).json
    holder = server.with_key(made["api_key"])
    assert holder.get("/v1/keys").status == 200
    revoked = server.app.delete(f"/v1/keys/{made['id']}")
    assert (revoked.status, revoked.json["id"]) == (200, made["id"])
    assert holder.get("/v1/keys").problem["code"] == "unauthenticated"
    assert revoked.json in all_keys(server.app)


def test_a_key_revoked_by_the_command_line_is_refused_within_two_seconds(server: Server) -> None:
    made = server.app.post("/v1/keys", new_key()).json
    holder = server.with_key(made["api_key"])
    assert holder.get("/v1/keys").status == 200
    revoked = server.installation.run("key", "revoke", server.first["app"]["id"], made["id"])
    assert revoked.returncode == 0
    give_up = time.monotonic() + limit_s(2.5)
    while holder.get("/v1/keys").status == 200:
        assert time.monotonic() < give_up


def test_revoking_again_changes_nothing(server: Server) -> None:
    made = server.app.post("/v1/keys", new_key()).json
    first = server.app.delete(f"/v1/keys/{made['id']}").json
    assert server.app.delete(f"/v1/keys/{made['id']}").json == first


def test_a_key_ends_at_its_time(server: Server) -> None:
    end = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=2)
    made = server.app.post("/v1/keys", new_key() | {"expires_at": end.isoformat()}).json
    holder = server.with_key(made["api_key"])
    assert holder.get("/v1/keys").status == 200
    give_up = time.monotonic() + limit_s(10)
    while holder.get("/v1/keys").status == 200:
        assert time.monotonic() < give_up
    # A node knows the time of PostgreSQL to half of the time that asking for it took.
    assert dt.datetime.now(dt.UTC) >= end - dt.timedelta(milliseconds=100)


def test_a_repeat_gets_the_same_secret_and_says_so(server: Server) -> None:
    body, once = new_key(), {"Idempotency-Key": uuid.uuid4().hex}
    first = server.app.post("/v1/keys", body, headers=once)
    again = server.app.post("/v1/keys", body, headers=once)
    assert (again.status, again.json) == (201, first.json)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert count_of(server.app, body) == 1


def test_the_same_idempotency_key_with_another_body_is_refused(server: Server) -> None:
    once = {"Idempotency-Key": uuid.uuid4().hex}
    server.app.post("/v1/keys", new_key(), headers=once)
    again = server.app.post("/v1/keys", new_key(), headers=once)
    assert (again.status, again.problem["code"]) == (422, "idempotency_key_reused")


def test_of_many_repeats_at_once_one_key_is_made(server: Server) -> None:
    body, once = new_key(), {"Idempotency-Key": uuid.uuid4().hex}
    with ThreadPoolExecutor(16) as threads:
        posts = [threads.submit(server.app.post, "/v1/keys", body, headers=once) for _ in range(32)]
        answers = [post.result() for post in posts]
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["api_key"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert count_of(server.app, body) == 1


def test_two_apps_do_not_share_idempotency_keys(server: Server, other_app: dict[str, Any]) -> None:
    body, once = new_key(), {"Idempotency-Key": uuid.uuid4().hex}
    mine = server.app.post("/v1/keys", body, headers=once).json
    theirs = server.with_key(other_app["api_key"]).post("/v1/keys", body, headers=once)
    assert theirs.status == 201
    assert theirs.json["id"] != mine["id"]


@pytest.mark.parametrize(
    ("scope", "get", "post"), [("keys:read", 200, 403), ("keys:write", 403, 201)]
)
def test_a_key_does_what_its_scopes_say(server: Server, scope: str, get: int, post: int) -> None:
    holder = server.make_key(scope)
    assert holder.get("/v1/keys").status == get
    assert holder.post("/v1/keys", {"label": "x", "scopes": [scope]}).status == post


@pytest.mark.parametrize("wanted", [["*"], ["keys:write", "events:write"]])
def test_a_key_cannot_make_a_key_that_may_do_more(server: Server, wanted: list[str]) -> None:
    answer = server.make_key("keys:write").post("/v1/keys", {"label": "x", "scopes": wanted})
    assert (answer.status, answer.fields) == (422, ["scopes"])
    assert "events:write" in answer.problem["detail"]


def test_a_star_means_all_scopes(server: Server) -> None:
    scopes = server.make_key("*").get("/v1/caller").json["scopes"]
    assert scopes == sorted(scope.value for scope in Scope)


def test_an_app_neither_sees_nor_revokes_the_keys_of_another(
    server: Server, other_app: dict[str, Any]
) -> None:
    other = server.with_key(other_app["api_key"])
    mine = server.app.post("/v1/keys", new_key()).json
    assert mine["id"] not in [key["id"] for key in all_keys(other)]
    answer = other.delete(f"/v1/keys/{mine['id']}")
    assert (answer.status, answer.problem["code"]) == (404, "not_found")
    assert server.with_key(mine["api_key"]).get("/v1/keys").status == 200


def user_token(card: dict[str, Any], **changes: Any) -> str:
    claims = {"sub": "ana", "aud": card["id"], "exp": int(time.time()) + 60} | changes
    return jwt.encode(claims, card["user_secret"], algorithm="HS256")


def test_users_do_not_share_idempotency_keys(server: Server) -> None:
    """The stored response holds the secret of a device: it is for the user who registered it."""
    card, once = server.first["app"], {"Idempotency-Key": uuid.uuid4().hex}
    body = {"platform": "clarion"}
    ana, bo = (server.with_key(user_token(card, sub=name)) for name in ("ana", "bo"))
    first = ana.post("/v1/devices", body, headers=once)
    others = [
        bo.post("/v1/devices", body, headers=once),
        server.app.post("/v1/devices", body, headers=once),
    ]
    assert [answer.status for answer in (first, *others)] == [201, 201, 201]
    assert len({answer.json["secret"] for answer in (first, *others)}) == 3
    again = ana.post("/v1/devices", body, headers=once)
    assert (again.status, again.json) == (201, first.json)


def test_a_user_is_known_by_a_token_that_the_app_signed(server: Server) -> None:
    caller = server.with_key(user_token(server.first["app"])).get("/v1/caller")
    assert (caller.json["kind"], caller.json["user_id"]) == ("user", "ana")
    assert caller.json["app_id"] == server.first["app"]["id"]


def test_a_user_is_no_application(server: Server) -> None:
    answer = server.with_key(user_token(server.first["app"])).get("/v1/keys")
    assert (answer.status, answer.problem["code"]) == (403, "forbidden")


def test_a_token_of_one_app_does_not_open_another(
    server: Server, other_app: dict[str, Any]
) -> None:
    forged = user_token(server.first["app"] | {"id": other_app["id"]})
    assert server.with_key(forged).get("/v1/caller").status == 401


@pytest.mark.parametrize("changes", [{"exp": 1}, {"nbf": 9_999_999_999}, {"sub": ""}])
def test_a_token_that_does_not_hold_is_refused(server: Server, changes: dict[str, Any]) -> None:
    token = user_token(server.first["app"], **changes)
    assert server.with_key(token).get("/v1/caller").problem["code"] == "unauthenticated"


def test_the_rate_limit_is_in_the_headers(server: Server) -> None:
    holder = server.make_key()
    first, second = (holder.get("/v1/keys").headers for _ in range(2))
    assert first["ratelimit-limit"] == "60000"
    assert int(second["ratelimit-remaining"]) <= int(first["ratelimit-remaining"])
    assert 1 <= int(first["ratelimit-reset"]) <= 60
    assert first["cache-control"] == "no-store"


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Asker]:
    installation = Installation(tmp_path, requests_per_minute="3", tls_listen="off")
    first = installation.initialise()
    with installation:
        yield Asker(installation.port, first["app"]["api_key"])


def test_beyond_the_limit_the_answer_is_429_with_the_time_to_wait(strict: Asker) -> None:
    # A minute may end in between, so a few more are asked than one minute allows.
    answers = [strict.get("/v1/caller") for _ in range(8)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert {answer.status for answer in answers} == {200, 429}
    assert refused[-1].problem["code"] == "too_many_requests"
    assert 1 <= int(refused[-1].headers["retry-after"]) <= 60
    assert refused[-1].headers["ratelimit-remaining"] == "0"
    assert Asker(strict.port).get("/health").status == 200
