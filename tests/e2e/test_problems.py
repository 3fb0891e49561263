"""Errors over real HTTP: always a problem, always naming what is wrong."""

import pytest

from tests.e2e.conftest import Server


@pytest.mark.parametrize(
    "authorization",
    [None, "Basic eDp5", "Bearer", "Bearer nonsense", "Bearer ck_x_y", "Bearer a.b.c"],
)
def test_without_a_good_credential_the_answer_is_401(
    server: Server, authorization: str | None
) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    answer = server.anyone.get("/v1/keys", headers=headers)
    assert (answer.status, answer.problem["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_without_the_scope_the_answer_is_403(server: Server) -> None:
    answer = server.make_key("events:write").get("/v1/keys")
    assert (answer.status, answer.problem["code"]) == (403, "forbidden")
    assert "keys:read" in answer.problem["detail"]


@pytest.mark.parametrize("path", ["/v1/nowhere", "/nowhere", "/v1/keys/a/b", "/v1/keys/%2F"])
def test_what_is_not_there_is_404(server: Server, path: str) -> None:
    answer = server.app.get(path)
    assert (answer.status, answer.problem["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["//v1/keys", "/v1//keys", "///v1/caller", "//health"])
def test_a_path_with_a_hole_leads_nowhere(server: Server, path: str) -> None:
    for asker in (server.anyone, server.app):
        assert asker.get(path).status in {401, 404}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "BREW"])
def test_another_method_is_405(server: Server, method: str) -> None:
    answer = server.app.ask(method, "/v1/keys")
    assert (answer.status, answer.problem["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{'label': 1}",
        b"",
        b"\xff",
        b'{"label": "a", "scopes": ["*"]} x',
        b'{"label": "\xff", "scopes": ["*"]}',
        b'{"label": "a\xed\xa0\x80", "scopes": ["*"]}',
        b'{"label": "\\ud800", "scopes": ["*"]}',
        b'{"label": "a", "scopes": ["*"], "expires_at": 1e999}',
        b'{"label": NaN, "scopes": ["*"]}',
    ],
)
def test_a_body_that_is_no_json_is_400_or_names_the_field(server: Server, body: bytes) -> None:
    answer = server.app.post("/v1/keys", body)
    assert (answer.status, answer.problem["code"]) in [
        (400, "malformed_body"),
        (422, "invalid_fields"),
    ]


def test_malformed_json_is_called_so(server: Server) -> None:
    answer = server.app.post("/v1/keys", b'{"label": ')
    assert (answer.status, answer.problem["code"]) == (400, "malformed_body")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"label": 7}, "label"),
        ({"label": None}, "label"),
        ({"label": ""}, "label"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\0b"}, "label"),
        ({"scopes": "events:write"}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["events:wrte"]}, "scopes"),
        ({"scopes": [7]}, "scopes"),
        ({"scopes": {"a": 1}}, "scopes"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": 7}, "expires_at"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-01:00"}, "expires_at"),
    ],
)
def test_a_field_that_is_wrong_is_named(
    server: Server, change: dict[str, object], field: str
) -> None:
    answer = server.app.post("/v1/keys", {"label": "a", "scopes": ["*"]} | change)
    assert (answer.status, answer.problem["code"]) == (422, "invalid_fields")
    assert [name.partition("[")[0].partition(".")[0] for name in answer.fields] == [field]
    assert all(error["reason"] for error in answer.problem["errors"])


@pytest.mark.parametrize("missing", ["label", "scopes"])
def test_a_field_that_is_missing_is_named(server: Server, missing: str) -> None:
    body = {"label": "a", "scopes": ["*"]}
    del body[missing]
    assert server.app.post("/v1/keys", body).fields == [missing]


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"text"', b"true"])
def test_a_body_that_is_no_object_is_refused(server: Server, body: bytes) -> None:
    answer = server.app.post("/v1/keys", body)
    assert answer.problem["code"] in {"invalid_fields", "malformed_body"}


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", "1.5", "9" * 30, ""])
def test_a_page_size_that_is_none_is_named(server: Server, limit: str) -> None:
    answer = server.app.get(f"/v1/keys?limit={limit}")
    assert (answer.status, answer.fields) == (422, ["limit"])


@pytest.mark.parametrize("key", ["x" * 256, " "])
def test_an_idempotency_key_that_is_none_is_named(server: Server, key: str) -> None:
    answer = server.app.post(
        "/v1/keys", {"label": "a", "scopes": ["*"]}, headers={"Idempotency-Key": key}
    )
    assert (answer.status, answer.fields) == (422, ["Idempotency-Key"])


STRANGE = ["%00", "a%00b", "%ff", "%F0%9F%9A%80", "%0d%0aX-Evil:1", "x" * 5_000, "'%20OR%201=1"]


@pytest.mark.parametrize("text", STRANGE)
def test_a_strange_id_is_just_not_there(server: Server, text: str) -> None:
    assert server.app.delete(f"/v1/keys/{text}").problem["code"] == "not_found"


@pytest.mark.parametrize("text", STRANGE)
def test_a_strange_cursor_does_no_harm(server: Server, text: str) -> None:
    answer = server.app.get(f"/v1/keys?after={text}")
    assert answer.status in {200, 422}
    assert "x-evil" not in answer.headers


def test_no_problem_shows_how_the_server_is_made(server: Server) -> None:
    for answer in (server.app.post("/v1/keys", b"{"), server.app.get("/v1/keys?limit=x")):
        text = answer.body.decode().lower()
        assert not [word for word in ("litestar", "msgspec", "traceback", ".py") if word in text]


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("GET", "/v1/events?statsu=failed", "after, limit, status"),
        ("GET", "/v1/users/ana?statsu=1", "none"),
        ("GET", "/v1/users/ana/notifications?statsu=1", "after, category, limit, unread"),
        ("GET", "/v1/users/ana/unread-count?statsu=1", "none"),
        ("POST", "/v1/events?statsu=1", "none"),
    ],
)
def test_a_parameter_that_is_not_known_is_refused(
    server: Server, method: str, path: str, known: str
) -> None:
    """It is misspelt, and would have no effect."""
    answer = server.app.ask(method, path)
    reason = f"is not a parameter of this operation; it takes {known}"
    assert (answer.status, answer.problem["code"]) == (422, "invalid_fields")
    assert answer.problem["errors"] == [{"field": "statsu", "reason": reason}]
