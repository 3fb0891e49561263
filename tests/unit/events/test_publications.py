"""Requests to publish → publications, and the faults of hostile ones."""

from typing import Any

import msgspec
import pytest

from clarion.catalog.model import Priority
from clarion.errors import InvalidFields, MalformedBody
from clarion.events.emoji import decorate
from clarion.events.publications import EMPTY, Publication, read_publication

JSON = {b"content-type": b"application/json"}


def read(
    body: bytes | dict[str, Any] = b"hi",
    headers: dict[bytes, bytes] | None = None,
    query: bytes = b"",
    topic: str = "backups",
) -> Publication:
    if isinstance(body, dict):
        body, headers = msgspec.json.encode(body), {**(headers or {}), **JSON}
    return read_publication(topic, headers or {}, query, body)


def faults(*arguments: Any, **more: Any) -> dict[str, str]:
    """Return the reason for each header or field that is refused."""
    with pytest.raises(InvalidFields) as caught:
        read(*arguments, **more)
    return {each.field: each.reason for each in caught.value.faults}


FULL = Publication(
    topic="backups",
    message="Backup done",
    title="Nightly",
    priority=Priority.HIGH,
    tags=("tada", "db 1"),
    click="https://example.com/7",
)


@pytest.mark.parametrize(
    ("body", "headers", "query"),
    [
        (
            b"Backup done\n",
            {
                b"title": b" Nightly",
                b"priority": b"high",
                b"tags": b"tada, db 1,,tada",
                b"click": b"https://example.com/7",
            },
            b"",
        ),
        (
            b"Backup done",
            {
                b"x-title": b"Nightly",
                b"x-priority": b"4",
                b"x-tags": b"tada,db 1",
                b"x-click": b"https://example.com/7",
                b"content-type": b"application/x-www-form-urlencoded",
            },
            b"",
        ),
        (
            b"",
            {b"t": b"Nightly", b"prio": b"HIGH", b"ta": b"tada,db 1"},
            b"message=Backup+done&click=https%3A%2F%2Fexample.com%2F7",
        ),
        (b"", {}, b"m=Backup%20done&t=Nightly&p=4&tag=tada,db%201&Click=https://example.com/7"),
        (
            {
                "message": "Backup done",
                "title": "Nightly",
                "priority": 4,
                "tags": ["tada", "db 1"],
                "click": "https://example.com/7",
            },
            {},
            b"",
        ),
    ],
    ids=["headers", "x-headers", "aliases", "query", "json"],
)
def test_everything_can_be_given_in_each_way(body: Any, headers: Any, query: bytes) -> None:
    assert read(body, headers, query) == FULL


def test_the_body_counts_before_headers_and_these_before_the_query() -> None:
    headers = {b"message": b"header", b"title": b"header"}
    got = read(b"body", headers, b"message=query&title=query&priority=1")
    assert (got.message, got.title, got.priority) == ("body", "header", Priority.LOW)
    assert read({"title": "json"}, headers).title == "json"
    assert read({"title": "json"}, headers).message == "header"


@pytest.mark.parametrize("body", [b"", b" \n", {}, {"message": " "}])
def test_an_empty_body_says_that_something_happened(body: Any) -> None:
    assert read(body).message == EMPTY


@pytest.mark.parametrize(
    ("given", "priority"),
    [
        ("1", Priority.LOW),
        ("min", Priority.LOW),
        ("2", Priority.LOW),
        ("low", Priority.LOW),
        ("3", Priority.MEDIUM),
        ("default", Priority.MEDIUM),
        ("4", Priority.HIGH),
        ("5", Priority.CRITICAL),
        ("max", Priority.CRITICAL),
        ("Urgent", Priority.CRITICAL),
        ("critical", Priority.CRITICAL),
    ],
)
def test_the_priorities_of_ntfy_are_mapped(given: str, priority: Priority) -> None:
    assert read(headers={b"priority": given.encode()}).priority is priority
    assert read({"priority": given}).priority is priority


@pytest.mark.parametrize("value", [b"u=1, i", b"u=4", b"i", b"u=0,i=?1"])
def test_the_priority_that_browsers_send_is_another(value: bytes) -> None:
    assert read(headers={b"priority": value}).priority is None


@pytest.mark.parametrize("value", ["0", "6", "-1", "high!", "1e1", "٣", "true"])
def test_a_priority_that_there_is_not_is_refused(value: str) -> None:
    assert "Priority" in faults(headers={b"priority": value.encode()})
    assert "priority" in faults({"priority": value})


def test_titles_may_be_utf_8_or_encoded_words() -> None:
    assert read(headers={b"title": "Größe 🎉".encode()}).title == "Größe 🎉"
    assert read(headers={b"title": b"=?UTF-8?B?8J+OiSBkb25l?="}).title == "🎉 done"
    assert read(headers={b"x-tags": b"=?utf-8?q?gr=C3=BCn?="}).tags == ("grün",)


def test_every_fault_is_named_by_where_it_was_given() -> None:
    headers = {b"title": b"\xff", b"x-priority": b"9", b"tags": b"a\x07", b"click": b"javascript:1"}
    found = faults(b"\xff\xfe", headers, b"nothing=1", topic="a b")
    assert set(found) == {"topic", "body", "Title", "X-Priority", "Tags", "Click", "nothing"}
    assert "UTF-8" in found["body"]
    assert "1 to 5" in found["X-Priority"]
    assert found["Click"] == "must not be a javascript: link"


@pytest.mark.parametrize(
    "word",
    [
        b"=?UTF-8?B?aGkNCkJjYzogeEB5Lno=?=",
        b"=?utf-8?q?hi=0D=0ABcc:_x=40y.z?=",
        b"a\tb\x0b",
        b"a\x00",
    ],
)
def test_a_header_cannot_smuggle_line_breaks_into_an_email(word: bytes) -> None:
    assert "Title" in faults(headers={b"title": word})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"title": "a\nb"}, "title"),
        ({"title": "a\0"}, "title"),
        ({"title": ""}, "title"),
        ({"title": "x" * 257}, "title"),
        ({"message": "x" * 4097}, "message"),
        ({"message": "ü" * 2049}, "message"),
        ({"message": "a\0b"}, "message"),
        ({"message": ["a"]}, "message"),
        ({"tags": ["x"] * 1 + [str(n) for n in range(20)]}, "tags"),
        ({"tags": ["x" * 65]}, "tags"),
        ({"tags": [1]}, "tags[0]"),
        ({"click": "data:text/html,x"}, "click"),
        ({"click": " https://x"}, "click"),
        ({"click": "https://" + "x" * 2048}, "click"),
        ({"click": ""}, "click"),
        ({"topic": "other"}, "topic"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_field_that_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    assert field in faults(body)


@pytest.mark.parametrize("size", [4097, 1 << 20])
def test_a_long_text_is_refused(size: int) -> None:
    assert read(b"x" * 4096).message == "x" * 4096
    assert faults(b"x" * size) == {"body": "must have at most 4,096 bytes"}


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "ü", "x" * 201, "x" * 100_000, "a\n", "a\0"])
def test_a_name_that_no_topic_has_is_refused(topic: str) -> None:
    assert "topic" in faults(topic=topic)


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff", b'{"a":' * 50_000, b"", b"null"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises((MalformedBody, InvalidFields)):
        read_publication("backups", JSON, b"", body)


@pytest.mark.parametrize(
    "name", ["delay", "at", "in", "attach", "filename", "actions", "email", "call"]
)
def test_what_would_change_the_message_is_not_ignored(name: str) -> None:
    for place in (name, f"x-{name}"):
        found = faults(headers={place.encode(): b"x"})
        assert "is not supported" in found[place.title()]
    assert "is not supported" in faults(query=f"{name}=x".encode())[name]


@pytest.mark.parametrize("query", [b"a=1&" * 51, b"title=%FF", b"\xff=1"])
def test_a_query_that_cannot_be_read_is_refused(query: bytes) -> None:
    assert set(faults(query=query)) == {"query"}


def test_other_headers_are_no_part_of_it() -> None:
    headers = {b"user-agent": b"curl", b"x-request-id": b"7", b"accept": b"*/*", b"title": b""}
    assert read(headers=headers) == Publication(topic="backups", message="hi")


def test_tags_with_an_emoji_are_shown_before_the_title() -> None:
    assert decorate("Backup", ["db", "white_check_mark", "tada"]) == "✅ 🎉 Backup"
    assert decorate("Backup", []) == "Backup"
