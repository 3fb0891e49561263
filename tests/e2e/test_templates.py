"""Templates over real HTTP: versions, previews, and what is refused."""

import uuid
from typing import Any

import pytest

from tests.e2e.conftest import Server

TEMPLATE = {
    "subject": "Order {{ order }}",
    "body": "<p>Hello {{ user.name }}, {{ order }} is on its way.</p>",
    "variables": ["order"],
}
VALUES = {"data": {"order": "<7>"}, "user": {"name": "Ana & Bo"}}


@pytest.fixture
def path(server: Server) -> str:
    """The path of the email template of a type of the app."""
    type_path = f"/v1/types/ORDER_{uuid.uuid4().hex}"
    assert server.app.ask("PUT", type_path, {}).status == 200
    return f"{type_path}/templates/email"


def test_every_put_is_a_version_and_the_newest_counts(server: Server, path: str) -> None:
    for version in (1, 2, 3):
        template = TEMPLATE | {"subject": f"Version {version}"}
        written = server.app.ask("PUT", path, template)
        assert written.status == 200
        assert written.json == template | {
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
        assert server.app.ask("PUT", path + tail, TEMPLATE | body).status == 200
    assert server.app.get(f"{path}?language=pt-BR").json["version"] == 1
    assert server.app.get(f"{path}?language=de").json["version"] == 2
    assert server.app.get(path).status == 404
    items = server.app.get(path.rpartition("/")[0]).json["items"]
    assert [(each["channel"], each["language"]) for each in items] == [
        ("email", "de"),
        ("email", "pt-BR"),
    ]


@pytest.mark.parametrize("channel", ["in_app", "push", "email", "sms"])
def test_built_in_types_have_templates(server: Server, channel: str) -> None:
    answer = server.app.get(f"/v1/types/POST_COMMENT/templates/{channel}").json
    assert (answer["version"], answer["created_at"], answer["variables"]) == (0, None, [])


@pytest.mark.parametrize(
    ("body", "rendered"),
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
def test_a_built_in_template_is_previewed(
    server: Server, body: dict[str, Any], rendered: str
) -> None:
    answer = server.app.post("/v1/types/POST_LIKE/templates/push/preview", body)
    assert answer.json == {
        "subject": "New like",
        "body": rendered,
        "language": "en",
        "version": 0,
        "segments": None,
    }


@pytest.mark.parametrize(
    ("snippet", "segments"),
    [
        ("", {"encoding": "GSM-7", "units": 23, "count": 1}),
        ("€" * 100, {"encoding": "UCS-2", "units": 127, "count": 2}),
    ],
)
def test_the_segments_of_a_text_message_are_shown(
    server: Server, snippet: str, segments: dict[str, Any]
) -> None:
    body = {"data": {"snippet": snippet}} if snippet else {}
    answer = server.app.post("/v1/types/POST_LIKE/templates/sms/preview", body)
    assert answer.json["segments"] == segments


def test_values_are_escaped_in_an_email(server: Server, path: str) -> None:
    server.app.ask("PUT", path, TEMPLATE)
    answer = server.app.post(f"{path}/preview", VALUES)
    assert answer.json == {
        "subject": "Order <7>",
        "body": "<p>Hello Ana &amp; Bo, &lt;7&gt; is on its way.</p>",
        "language": "en",
        "version": 1,
        "segments": None,
    }


def test_plain_text_for_email_is_not_escaped(server: Server, path: str) -> None:
    server.app.ask("PUT", path, TEMPLATE | {"body": "Order {{ order }}"})
    assert server.app.post(f"{path}/preview", VALUES).json["body"] == "Order <7>"


def test_mjml_is_checked_and_previewed_as_html(server: Server, path: str) -> None:
    body = (
        "<mjml><mj-body><mj-section><mj-column><mj-text>Order {{ order }}</mj-text>"
        "</mj-column></mj-section></mj-body></mjml>"
    )
    assert server.app.ask("PUT", path, TEMPLATE | {"body": body}).json["body"] == body
    shown = server.app.post(f"{path}/preview", VALUES).json["body"]
    assert shown.lower().startswith("<!doctype html>")
    assert "Order &lt;7&gt;" in shown
    for wrong in (body[:-9], body.replace("mj-text>Order", "mj-text><"), "<mjml></mjml"):
        answer = server.app.ask("PUT", path, TEMPLATE | {"body": wrong})
        assert (answer.status, answer.fields) == (422, ["body"])
        assert "(line 1, column " in answer.json["errors"][0]["reason"]


def test_a_user_gets_the_nearest_language(server: Server, path: str) -> None:
    for language in ("en", "pt"):
        server.app.ask("PUT", path, TEMPLATE | {"language": language})
    for wanted, got in (("pt-BR", "pt"), ("fr", "en")):
        answer = server.app.post(f"{path}/preview?language={wanted}", VALUES)
        assert answer.json["language"] == got


def test_a_template_can_be_previewed_before_it_is_stored(server: Server, path: str) -> None:
    body = VALUES | {"body": "<b>{{ order | upcase }}!</b>", "variables": ["order"]}
    answer = server.app.post(f"{path}/preview", body)
    assert (answer.json["body"], answer.json["version"]) == ("<b>&lt;7&gt;!</b>", None)
    assert server.app.get(path).status == 404


@pytest.mark.parametrize(
    ("values", "field"),
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
    server: Server, path: str, values: dict[str, Any], field: str
) -> None:
    server.app.ask("PUT", path, TEMPLATE)
    answer = server.app.post(f"{path}/preview", values)
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
    answer = server.app.ask("PUT", path, TEMPLATE | change)
    assert (answer.status, answer.fields) == (422, [field])
    assert server.app.get(path).status == 404


def test_two_languages_at_once_are_refused(server: Server, path: str) -> None:
    answer = server.app.ask("PUT", f"{path}?language=de", TEMPLATE | {"language": "fr"})
    assert (answer.status, answer.fields) == (422, ["language"])


@pytest.mark.parametrize("text", ["", "x", "pt_BR"])
def test_an_invalid_language_is_named(server: Server, path: str, text: str) -> None:
    for method, tail, body in (("GET", "", None), ("POST", "/preview", {})):
        answer = server.app.ask(method, f"{path}{tail}?language={text}", body)
        assert (answer.status, answer.fields) == (422, ["language"])


def test_an_invalid_channel_is_named(server: Server, path: str) -> None:
    wrong = path.replace("email", "pigeon")
    for method, tail, body in (("GET", "", None), ("PUT", "", TEMPLATE), ("POST", "/preview", {})):
        answer = server.app.ask(method, wrong + tail, body)
        assert (answer.status, answer.fields) == (422, ["channel"])


def test_an_unknown_type_has_no_templates(server: Server) -> None:
    path = f"/v1/types/T{uuid.uuid4().hex}/templates"
    for method, tail, body in (
        ("GET", "", None),
        ("GET", "/push", None),
        ("GET", "/push/versions", None),
        ("PUT", "/push", TEMPLATE),
        ("POST", "/push/preview", {}),
    ):
        assert server.app.ask(method, path + tail, body).status == 404


def test_a_template_that_exceeds_a_limit_is_stopped(server: Server, path: str) -> None:
    body = {"body": "{% for i in (1..1001) %}x{% endfor %}"}
    answer = server.app.post(f"{path}/preview", body)
    assert (answer.status, answer.fields) == (422, ["body"])
    assert "loop iterations" in answer.problem["detail"]
