"""Errors over real HTTP: always a problem, always naming what is wrong."""

from typing import Any

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


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "PROPFIND"])
def test_another_method_is_405(server: Server, method: str) -> None:
    answer = server.app.ask(method, "/v1/keys")
    assert (answer.status, answer.problem["code"]) == (405, "method_not_allowed")


def test_a_method_that_is_none_is_refused(server: Server) -> None:
    answer = server.app.ask("BREW", "/v1/keys")
    assert (answer.status, answer.problem["code"]) == (400, "malformed_request")
    assert "GET, POST" in answer.problem["detail"]


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
    ("method", "path", "body", "reasons"),
    [
        (
            "POST",
            "/v1/events",
            {"type": "POST_COMENT", "recipient": {"user_ids": ["x1", "x2"]}, "prority": 1},
            {
                "prority": "there is no such field; did you mean priority?",
                "type": "there is no type POST_COMENT; did you mean POST_COMMENT?",
                "recipient.user_ids[0]": "there is no user x1; create the user with PUT "
                "/v1/users/x1",
                "recipient.user_ids[1]": "there is no user x2; create the user with PUT "
                "/v1/users/x2",
            },
        ),
        (
            "POST",
            "/v1/events",
            {"type": "No", "recipient": {"segment": "vip"}, "ttl_s": "1", "scheduled_at": "2026"},
            {
                "ttl_s": "must be an integer or null, not a string",
                "scheduled_at": "must be a time, like 2026-01-31T12:00:00Z",
                "type": "there is no type No",
                "recipient.segment": "there is no segment vip; create it with PUT /v1/segments/vip",
            },
        ),
        (
            "POST",
            "/v1/explain",
            {"type": "POST_COMENT", "recipient": {"user_id": "x"}, "deeplink": "javascript:1"},
            {
                "deeplink": "must not be a javascript: link",
                "type": "there is no type POST_COMENT; did you mean POST_COMMENT?",
            },
        ),
        (
            "PUT",
            "/v1/users/x1",
            {"email": "none", "phone": 12, "timezone": "Mars/X", "langauge": "en"},
            {
                "langauge": "there is no such field; did you mean language?",
                "phone": "must be a string or null, not an integer",
                "email": "must be an email address, like ana@example.com",
                "timezone": "must be an IANA time zone name, like Europe/Berlin",
            },
        ),
        (
            "POST",
            "/v1/keys",
            {"label": "", "scopes": [], "expires_at": "2020-01-01T00:00:00"},
            None,
        ),
        ("POST", "/v1/devices", {"platform": "andriod", "token": "/", "modl": "x"}, None),
        (
            "PUT",
            "/v1/types/FAULTS",
            {"display_name": " ", "default_channels": ["emial"], "priority": "hi", "digset": 1},
            None,
        ),
        (
            "PUT",
            "/v1/types/POST_LIKE/templates/email",
            {"body": "{{", "variables": ["1"], "language": "-", "sbject": "x"},
            None,
        ),
        ("PUT", "/v1/categories/faults", {"title": " ", "default_channels": [], "x": 1}, None),
        (
            "PUT",
            "/v1/providers/email/faults",
            {"kind": "smtp", "settings": {"hots": "a", "port": "1", "security": "ssl"}},
            {
                "settings.hots": "there is no such field; did you mean host?",
                "settings.host": "is required",
                "settings.from": "is required",
                "settings.port": "must be an integer or null, not a string",
                "settings.security": "must be one of none, starttls, tls",
            },
        ),
    ],
)
def test_all_faults_of_a_body_are_in_one_answer(
    server: Server, method: str, path: str, body: dict[str, Any], reasons: dict[str, str] | None
) -> None:
    answer = server.app.ask(method, path, body)
    assert (answer.status, answer.problem["code"]) == (422, "invalid_fields")
    found = {each["field"]: each["reason"] for each in answer.problem["errors"]}
    if reasons is None:  # each field has one
        assert sorted(name.partition("[")[0] for name in found) == sorted(body)
    else:
        assert found == reasons


def test_a_type_that_is_not_there_is_followed_by_the_one_like_it(server: Server) -> None:
    app = server.with_key(server.make_app()["api_key"])
    assert app.ask("PUT", "/v1/types/order.shipped", {}).status == 200
    missing = app.get("/v1/types/order.shiped")
    assert missing.status == 404
    assert missing.problem["detail"] == (
        "There is no type order.shiped; did you mean order.shipped? "
        "Create a type with PUT /v1/types/{type}."
    )
    # Of another app nothing is suggested.
    assert "shipped" not in server.app.get("/v1/types/order.shiped").problem["detail"]


@pytest.mark.parametrize(
    "path", ["", "/preferences", "/notifications", "/devices", "/topics", "/unread-count"]
)
def test_of_a_user_who_is_not_there_the_answer_says_how_to_create_one(
    server: Server, path: str
) -> None:
    answer = server.app.get(f"/v1/users/nobody{path}")
    assert (answer.status, answer.problem["detail"]) == (
        404,
        "This app has no user nobody. Create the user with PUT /v1/users/nobody.",
    )


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
        ("GET", "/v1/events?statsu=failed", "after, limit, status; did you mean status?"),
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
