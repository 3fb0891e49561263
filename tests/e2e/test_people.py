"""People and what they follow over real HTTP."""

import uuid
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server

FULL: dict[str, Any] = {
    "name": "Ana Ünï 🚀",
    "email": "ana@example.com",
    "phone": "+49 151 12345678",
    "language": "pt-br",
    "timezone": "America/Sao_Paulo",
    "status": "inactive",
    "tags": ["vip", "beta"],
    "attributes": {"plan": "pro", "nested": {"list": [1, None]}},
}
STORED = FULL | {"phone": "+4915112345678", "language": "pt-BR"}
EMPTY: dict[str, Any] = {
    "name": None,
    "email": None,
    "phone": None,
    "language": "en",
    "timezone": "UTC",
    "status": "active",
    "tags": [],
    "attributes": {},
}
TIMES = {"id", "created_at", "updated_at"}


def new_path() -> str:
    return f"/v1/users/{uuid.uuid4().hex}"


def known(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in TIMES}


@pytest.fixture
def person(server: Server) -> str:
    """The path of a person about whom all is known."""
    path = new_path()
    assert server.app.ask("PUT", path, FULL).status == 201
    return path


def test_a_person_is_put_and_seen(server: Server, person: str) -> None:
    seen = server.app.get(person)
    assert (seen.status, known(seen.json)) == (200, STORED)
    assert seen.json["id"] == person.rpartition("/")[2]


def test_a_person_can_be_just_an_id(server: Server) -> None:
    made = server.app.ask("PUT", new_path(), {})
    assert (made.status, known(made.json)) == (201, EMPTY)


def test_put_again_replaces_all_that_is_left_out(server: Server, person: str) -> None:
    first = server.app.get(person).json
    again = server.app.ask("PUT", person, {"name": "Other"})
    assert (again.status, known(again.json)) == (200, EMPTY | {"name": "Other"})
    assert again.json["created_at"] == first["created_at"]


def test_patch_takes_over_what_is_given(server: Server, person: str) -> None:
    changes = {"name": None, "timezone": None, "attributes": {"plan": None, "size": 7}}
    changed = server.app.ask("PATCH", person, changes)
    expected = STORED | {
        "name": None,
        "timezone": "UTC",
        "attributes": {"nested": {"list": [1, None]}, "size": 7},
    }
    assert (changed.status, known(changed.json)) == (200, expected)
    assert server.app.get(person).json == changed.json


def test_null_takes_all_attributes_back(server: Server, person: str) -> None:
    changed = server.app.ask("PATCH", person, {"attributes": None, "tags": None})
    assert (changed.json["attributes"], changed.json["tags"]) == ({}, [])


BAD: list[tuple[dict[str, object], str]] = [
    ({"colour": "red"}, "colour"),
    ({"name": ""}, "name"),
    ({"name": "a\0b"}, "name"),
    ({"name": 7}, "name"),
    ({"email": "ana"}, "email"),
    ({"email": "ana@example.com\nBcc: x@example.com"}, "email"),
    ({"phone": "12345"}, "phone"),
    ({"language": "english"}, "language"),
    ({"timezone": "Mars/Olympus"}, "timezone"),
    ({"status": "asleep"}, "status"),
    ({"tags": ["x"] * 51}, "tags"),
    ({"tags": [""]}, "tags"),
    ({"tags": "vip"}, "tags"),
    ({"attributes": {"a": "x" * 16_384}}, "attributes"),
    ({"attributes": []}, "attributes"),
]


@pytest.mark.parametrize(("change", "field"), BAD)
def test_a_field_that_is_wrong_is_named_and_nothing_is_stored(
    server: Server, person: str, change: dict[str, object], field: str
) -> None:
    before, nobody = server.app.get(person).json, new_path()
    for method, path in (("PUT", person), ("PATCH", person), ("PUT", nobody)):
        answer = server.app.ask(method, path, change)
        assert answer.status == 422
        assert [name.partition("[")[0] for name in answer.fields] == [field]
    assert server.app.get(person).json == before
    assert server.app.get(nobody).status == 404


def test_all_faults_are_named_at_once(server: Server) -> None:
    answer = server.app.ask("PUT", new_path(), {"email": "x", "phone": "x", "timezone": "x"})
    assert sorted(answer.fields) == ["email", "phone", "timezone"]


def test_attributes_that_grow_too_large_by_merging_are_refused(server: Server, person: str) -> None:
    assert server.app.ask("PATCH", person, {"attributes": {"a": "x" * 12_000}}).status == 200
    answer = server.app.ask("PATCH", person, {"attributes": {"b": "x" * 12_000}})
    assert (answer.status, answer.fields) == (422, ["attributes"])


@pytest.mark.parametrize("text", ["a%20b", "x" * 129, "%C3%BC", "a%0Ab"])
def test_an_id_that_is_none_is_named(server: Server, text: str) -> None:
    answer = server.app.ask("PUT", f"/v1/users/{text}", {})
    assert (answer.status, answer.fields) == (422, ["id"])
    assert server.app.get(f"/v1/users/{text}").status == 404
    assert server.app.ask("PATCH", f"/v1/users/{text}", {}).status == 404


def test_who_is_not_there_is_404(server: Server) -> None:
    path = new_path()
    for method, tail, body in (
        ("GET", "", None),
        ("PATCH", "", {}),
        ("GET", "/topics", None),
        ("PUT", "/topics/news", None),
        ("GET", "/preferences", None),
        ("PUT", "/preferences", {}),
        ("PATCH", "/preferences", {}),
    ):
        assert server.app.ask(method, path + tail, body).status == 404, (method, tail)


@pytest.mark.parametrize(
    ("method", "tail", "scope"),
    [
        ("GET", "", "users:read"),
        ("PUT", "", "users:write"),
        ("PATCH", "", "users:write"),
        ("GET", "/topics", "users:read"),
        ("PUT", "/topics/news", "users:write"),
        ("DELETE", "/topics/news", "users:write"),
        ("GET", "/preferences", "users:read"),
        ("PUT", "/preferences", "users:write"),
        ("PATCH", "/preferences", "users:write"),
    ],
)
def test_each_needs_its_scope(
    server: Server, person: str, method: str, tail: str, scope: str
) -> None:
    other = "users:read" if scope == "users:write" else "users:write"
    body: dict[str, Any] | None = None if method in {"GET", "DELETE"} else {}
    answer = server.make_key(other).ask(method, person + tail, body)
    assert (answer.status, scope in answer.problem["detail"]) == (403, True)
    assert server.make_key(scope).ask(method, person + tail, body).status < 300


def test_people_of_another_app_are_not_there(server: Server, person: str) -> None:
    other = server.with_key(server.make_app()["api_key"])
    assert other.get(person).status == 404
    assert other.ask("PATCH", person, {"name": "x"}).status == 404
    assert known(server.app.get(person).json) == STORED


def followed(asker: Asker, person: str) -> list[str]:
    page = asker.get(f"{person}/topics?limit=100").json
    assert page["next"] is None
    return [each["topic"] for each in page["items"]]


def test_a_person_follows_topics_until_they_stop(server: Server, person: str) -> None:
    for topic in ("news", "team:7", "news"):
        assert server.app.ask("PUT", f"{person}/topics/{topic}").status == 204
    assert followed(server.app, person) == ["news", "team:7"]
    for _ in range(2):
        assert server.app.delete(f"{person}/topics/news").status == 204
    assert followed(server.app, person) == ["team:7"]


def test_followed_topics_come_in_pages(server: Server, person: str) -> None:
    for topic in ("c", "a", "b"):
        server.app.ask("PUT", f"{person}/topics/{topic}")
    first = server.app.get(f"{person}/topics?limit=2").json
    assert first == {"items": [{"topic": "a"}, {"topic": "b"}], "next": "b"}
    last = server.app.get(f"{person}/topics?limit=2&after={first['next']}").json
    assert last == {"items": [{"topic": "c"}], "next": None}


@pytest.mark.parametrize("topic", ["a%20b", "x" * 201, "%C3%BC"])
def test_a_topic_that_is_none_is_named(server: Server, person: str, topic: str) -> None:
    for method in ("PUT", "DELETE"):
        answer = server.app.ask(method, f"{person}/topics/{topic}")
        assert (answer.status, answer.fields) == (422, ["topic"])
