"""Templates over real HTTP: written in versions, tried out, refused with a reason."""

import uuid
from typing import Any

import pytest

from tests.e2e.conftest import Server

WORDS = {
    "subject": "Order {{ order }}",
    "body": "<p>Hello {{ user.name }}, {{ order }} is on its way.</p>",
    "variables": ["order"],
}
FILLING = {"data": {"order": "<7>"}, "user": {"name": "Ana & Bo"}}


@pytest.fixture
def path(server: Server) -> str:
    """The path of the mail of a type of the app's own."""
    kind = f"/v1/types/ORDER_{uuid.uuid4().hex}"
    assert server.app.ask("PUT", kind, {}).status == 200
    return f"{kind}/templates/email"


def test_every_put_is_a_version_and_the_newest_counts(server: Server, path: str) -> None:
    for version in (1, 2, 3):
        words = WORDS | {"subject": f"Version {version}"}
        written = server.app.ask("PUT", path, words)
        assert written.status == 200
        assert written.json == words | {
            "type": path.split("/")[3],
            "channel": "email",
            "language": "en",
            "version": version,
            "created_at": written.json["created_at"],
        }
        assert server.app.get(path).json == written.json
    first = server.app.get(f"{path}/versions?limit=2").json
    assert [each["version"] for each in first["items"]] == [3, 2]
    rest = server.app.get(f"{path}/versions?limit=2&after={first['next']}").json
    assert ([each["version"] for each in rest["items"]], rest["next"]) == ([1], None)


def test_each_language_has_its_own(server: Server, path: str) -> None:
    for tail, body in (
        ("", {"language": "pt-br"}),
        ("?language=de", {}),
        ("?language=DE", {"language": "de"}),
    ):
        assert server.app.ask("PUT", path + tail, WORDS | body).status == 200
    assert server.app.get(f"{path}?language=pt-BR").json["version"] == 1
    assert server.app.get(f"{path}?language=de").json["version"] == 2
    assert server.app.get(path).status == 404
    items = server.app.get(path.rpartition("/")[0]).json["items"]
    assert [(each["channel"], each["language"]) for each in items] == [
        ("email", "de"),
        ("email", "pt-BR"),
    ]


@pytest.mark.parametrize("channel", ["in_app", "push", "email", "sms"])
def test_ready_made_types_have_words(server: Server, channel: str) -> None:
    answer = server.app.get(f"/v1/types/POST_COMMENT/templates/{channel}").json
    assert (answer["version"], answer["created_at"], answer["variables"]) == (0, None, [])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "Someone liked your post"),
        ({"actor": {"name": "Ana"}}, "Ana liked your post"),
        ({"actor": {"name": "Ana"}, "count": 2}, "Ana and 1 other liked your post"),
        ({"actor": {"name": "Ana"}, "count": 4}, "Ana and 3 others liked your post"),
        (
            {"actor": {"name": "Ana"}, "data": {"snippet": "Hi <3"}},
            "Ana liked your post: “Hi <3”",
        ),
    ],
)
def test_a_ready_made_template_is_tried(server: Server, body: dict[str, Any], said: str) -> None:
    answer = server.app.post("/v1/types/POST_LIKE/templates/push/preview", body)
    assert answer.json == {"subject": "New like", "body": said, "language": "en", "version": 0}


def test_in_a_mail_values_are_escaped(server: Server, path: str) -> None:
    server.app.ask("PUT", path, WORDS)
    answer = server.app.post(f"{path}/preview", FILLING)
    assert answer.json == {
        "subject": "Order <7>",
        "body": "<p>Hello Ana &amp; Bo, &lt;7&gt; is on its way.</p>",
        "language": "en",
        "version": 1,
    }


def test_a_person_gets_the_nearest_language(server: Server, path: str) -> None:
    for language in ("en", "pt"):
        server.app.ask("PUT", path, WORDS | {"language": language})
    for wanted, got in (("pt-BR", "pt"), ("fr", "en")):
        answer = server.app.post(f"{path}/preview?language={wanted}", FILLING)
        assert answer.json["language"] == got


def test_words_can_be_tried_before_they_are_stored(server: Server, path: str) -> None:
    body = FILLING | {"body": "{{ order | upcase }}!", "variables": ["order"]}
    answer = server.app.post(f"{path}/preview", body)
    assert (answer.json["body"], answer.json["version"]) == ("&lt;7&gt;!", None)
    assert server.app.get(path).status == 404


@pytest.mark.parametrize(
    ("filling", "field"),
    [
        ({"user": {"name": "Ana"}}, "data.order"),
        ({"data": {"order": None}, "user": {"name": "Ana"}}, "data.order"),
        ({"data": {"order": 7}}, "user"),
        ({"data": {"order": 7}, "user": {}}, "user"),
        ({"data": {"order": 7}, "user": {"id": "x"}}, "user.name"),
        ({"data": 7}, "data"),
        ({"count": 0}, "count"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_missing_is_named(
    server: Server, path: str, filling: dict[str, Any], field: str
) -> None:
    server.app.ask("PUT", path, WORDS)
    answer = server.app.post(f"{path}/preview", filling)
    assert (answer.status, answer.fields) == (422, [field])


BAD: list[tuple[dict[str, object], str]] = [
    ({"colour": "red"}, "colour"),
    ({"body": ""}, "body"),
    ({"body": None}, "body"),
    ({"body": "{{ order"}, "body"),
    ({"body": "{% include 'x' %}"}, "body"),
    ({"body": "{{ order | safe }}"}, "body"),
    ({"body": "{{ price }}"}, "body"),
    ({"body": "a\0"}, "body"),
    ({"body": "x" * 65_537}, "body"),
    ({"subject": "{% if %}"}, "subject"),
    ({"subject": " "}, "subject"),
    ({"variables": ["a b"]}, "variables"),
    ({"variables": ["order", "actor"]}, "variables"),
    ({"variables": ["order", "order"]}, "variables"),
    ({"variables": "order"}, "variables"),
    ({"language": "english"}, "language"),
]


@pytest.mark.parametrize(("change", "field"), BAD)
def test_a_template_that_is_wrong_is_named_and_nothing_is_stored(
    server: Server, path: str, change: dict[str, object], field: str
) -> None:
    answer = server.app.ask("PUT", path, WORDS | change)
    assert (answer.status, answer.fields) == (422, [field])
    assert server.app.get(path).status == 404


def test_two_languages_at_once_are_refused(server: Server, path: str) -> None:
    answer = server.app.ask("PUT", f"{path}?language=de", WORDS | {"language": "fr"})
    assert (answer.status, answer.fields) == (422, ["language"])


@pytest.mark.parametrize("text", ["", "x", "pt_BR"])
def test_a_language_that_is_none_is_named(server: Server, path: str, text: str) -> None:
    for method, tail, body in (("GET", "", None), ("POST", "/preview", {})):
        answer = server.app.ask(method, f"{path}{tail}?language={text}", body)
        assert (answer.status, answer.fields) == (422, ["language"])


def test_a_channel_that_is_none_is_named(server: Server, path: str) -> None:
    wrong = path.replace("email", "pigeon")
    for method, tail, body in (("GET", "", None), ("PUT", "", WORDS), ("POST", "/preview", {})):
        answer = server.app.ask(method, wrong + tail, body)
        assert (answer.status, answer.fields) == (422, ["channel"])


def test_a_type_that_is_not_there_has_no_templates(server: Server) -> None:
    path = f"/v1/types/T{uuid.uuid4().hex}/templates"
    for method, tail, body in (
        ("GET", "", None),
        ("GET", "/push", None),
        ("GET", "/push/versions", None),
        ("PUT", "/push", WORDS),
        ("POST", "/push/preview", {}),
    ):
        assert server.app.ask(method, path + tail, body).status == 404


def test_a_template_that_does_too_much_is_stopped(server: Server, path: str) -> None:
    body = {"body": "{% for i in (1..1001) %}x{% endfor %}"}
    answer = server.app.post(f"{path}/preview", body)
    assert (answer.status, answer.fields) == (422, ["body"])
    assert "turns of loops" in answer.problem["detail"]
