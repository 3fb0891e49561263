"""Notification types and templates over real HTTP."""

import uuid
from typing import Any

import pytest

from tests.e2e.conftest import Server

BUILT_IN = {
    "POST_LIKE": "social",
    "POST_COMMENT": "social",
    "POST_SHARE": "social",
    "COMMENT_REPLY": "social",
    "FOLLOWER_NEW": "social",
    "SAFETY_CONTENT_FLAGGED": "safety",
    "SAFETY_ACCOUNT_WARNING": "safety",
    "SECURITY_NEW_DEVICE": "security",
    "SECURITY_PASSWORD_CHANGED": "security",
    "SECURITY_ACCOUNT_LOCKED": "security",
    "NEWS_SYSTEM_UPDATE": "news",
    "MARKETING_PROMOTION": "marketing",
    "TOPIC_MESSAGE": "transactional",
}
FULL: dict[str, Any] = {
    "display_name": "Sendung 📦",
    "category": "transactional",
    "default_channels": ["email", "in_app"],
    "optional_channels": ["sms", "email"],
    "priority": "high",
    "user_can_disable": False,
    "is_active": False,
    "rate_limit": {"per_user_per_hour": 3, "overflow": "wait"},
    "dedupe": {"window_s": 60, "mode": "aggregate"},
    "digest": {"window_s": 3_600},
    "data_schema": {"type": "object", "required": ["order"]},
    "send_when_read": True,
}


def new_type() -> str:
    return f"/v1/types/ORDER_{uuid.uuid4().hex}"


@pytest.fixture
def path(server: Server) -> str:
    """The path of a type of the app's own."""
    path = new_type()
    assert server.app.ask("PUT", path, {}).status == 200
    return path


def listed(server: Server, key: str = "") -> dict[str, dict[str, Any]]:
    asker = server.with_key(key) if key else server.app
    items, after = [], ""
    while True:
        page = asker.get(f"/v1/types?limit=7{after}").json
        items += page["items"]
        if page["next"] is None:
            return {each["type"]: each for each in items}
        after = f"&after={page['next']}"


def test_every_app_has_the_built_in_types(server: Server) -> None:
    types = listed(server, server.make_app()["api_key"])
    assert {name: each["category"] for name, each in types.items()} == BUILT_IN
    assert list(types) == sorted(types)
    for each in types.values():
        assert (each["rate_limit"], each["is_active"], each["origin"]) == (None, True, "built_in")


def test_a_type_is_created_read_and_listed(server: Server) -> None:
    path = new_type()
    made = server.app.ask("PUT", path, FULL)
    expected = FULL | {"type": path.rpartition("/")[2], "origin": "own"}
    assert (made.status, made.json) == (200, expected)
    assert server.app.get(path).json == expected
    assert listed(server)[expected["type"]] == expected


def test_what_is_left_out_has_its_default(server: Server, path: str) -> None:
    server.app.ask("PUT", path, FULL)
    name = path.rpartition("/")[2]
    assert server.app.ask("PUT", path, {}).json == {
        "type": name,
        "display_name": name,
        "category": "transactional",
        "default_channels": ["in_app"],
        "optional_channels": [],
        "priority": "medium",
        "user_can_disable": True,
        "is_active": True,
        "rate_limit": None,
        "dedupe": None,
        "digest": None,
        "data_schema": None,
        "send_when_read": False,
        "origin": "own",
    }


def test_a_built_in_type_is_changed_and_reset(server: Server) -> None:
    asker = server.with_key(server.make_app()["api_key"])
    original = asker.get("/v1/types/POST_LIKE").json
    changed = asker.ask("PUT", "/v1/types/POST_LIKE", {"rate_limit": {"per_user_per_hour": 2}})
    limit = {"per_user_per_hour": 2, "overflow": "drop"}
    assert changed.json == original | {"rate_limit": limit, "origin": "changed"}
    asker.ask("PUT", "/v1/types/POST_LIKE/templates/push", {"body": "Mine"})
    assert asker.delete("/v1/types/POST_LIKE").status == 204
    assert asker.get("/v1/types/POST_LIKE").json == original
    assert asker.get("/v1/types/POST_LIKE/templates/push").json["version"] == 0
    answer = asker.delete("/v1/types/POST_LIKE")
    assert (answer.status, "is_active" in answer.problem["detail"]) == (404, True)


def test_an_own_type_is_deleted(server: Server, path: str) -> None:
    assert server.app.delete(path).status == 204
    assert server.app.get(path).status == 404
    assert server.app.delete(path).status == 404


BAD: list[tuple[dict[str, object], str]] = [
    ({"colour": "red"}, "colour"),
    ({"display_name": ""}, "display_name"),
    ({"display_name": "a\0"}, "display_name"),
    ({"category": "gossip"}, "category"),
    ({"default_channels": []}, "default_channels"),
    ({"default_channels": ["pigeon"]}, "default_channels"),
    ({"default_channels": ["push", "push"]}, "default_channels"),
    ({"priority": "urgent"}, "priority"),
    ({"priority": 4}, "priority"),
    ({"digest": {}}, "digest"),
    ({"digest": {"window_s": 60, "daily_at": "09:00"}}, "digest"),
    ({"digest": {"daily_at": "24:00"}}, "digest.daily_at"),
    ({"is_active": "perhaps"}, "is_active"),
    ({"rate_limit": {}}, "rate_limit.per_user_per_hour"),
    ({"rate_limit": {"per_user_per_hour": 0}}, "rate_limit"),
    ({"dedupe": {"window_s": 60, "mode": "forget"}}, "dedupe"),
    ({"digest": {"window_s": -1}}, "digest"),
    ({"data_schema": {"type": "objekt"}}, "data_schema"),
    ({"data_schema": {"$ref": "file:///etc/passwd"}}, "data_schema"),
    ({"data_schema": {"description": "x" * 65_536}}, "data_schema"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_a_field_that_is_wrong_is_named_and_nothing_is_stored(
    server: Server, path: str, body: dict[str, object], field: str
) -> None:
    before = server.app.get(path).json
    answer = server.app.ask("PUT", path, FULL | body)
    assert answer.status == 422
    (named,) = answer.fields
    assert named == field or named.startswith((f"{field}[", f"{field}."))
    assert server.app.get(path).json == before


@pytest.mark.parametrize("name", ["7UP", "a%20b", "x" * 101, "%C3%BC"])
def test_an_invalid_name_is_named(server: Server, name: str) -> None:
    answer = server.app.ask("PUT", f"/v1/types/{name}", {})
    assert (answer.status, answer.fields) == (422, ["type"])
    for method in ("GET", "DELETE"):
        assert server.app.ask(method, f"/v1/types/{name}").status == 404


@pytest.mark.parametrize(
    ("method", "tail", "body", "scope"),
    [
        ("GET", "", None, "types:read"),
        ("PUT", "", {}, "types:write"),
        ("GET", "/templates", None, "types:read"),
        ("GET", "/templates/push", None, "types:read"),
        ("GET", "/templates/push/versions", None, "types:read"),
        ("PUT", "/templates/push", {"body": "x"}, "types:write"),
        ("POST", "/templates/push/preview", {}, "types:read"),
        ("DELETE", "", None, "types:write"),
    ],
)
def test_each_needs_its_scope(
    server: Server, path: str, method: str, tail: str, body: Any, scope: str
) -> None:
    server.app.ask("PUT", f"{path}/templates/push", {"body": "x"})
    other = "types:read" if scope == "types:write" else "types:write"
    answer = server.make_key(other).ask(method, path + tail, body)
    assert (answer.status, scope in answer.problem["detail"]) == (403, True)
    assert server.make_key(scope).ask(method, path + tail, body).status < 300


def test_types_of_another_app_are_not_found(server: Server, path: str) -> None:
    other = server.with_key(server.make_app()["api_key"])
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/templates")):
        assert other.ask(method, path + tail).status == 404
    assert server.app.get(path).status == 200
