"""Bad events over real HTTP: the answer names the field, and nothing is stored."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import draft, explain, inbox, make_type, make_user

SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "items": {"type": "array", "maxItems": 2}},
}
LONG = "x" * 300
PAST, FAR = "2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def moment(**more: float) -> str:
    return (datetime.now(UTC) + timedelta(**more)).isoformat()


@pytest.fixture(scope="module")
def app(server: Server) -> Asker:
    """An app of its own: what it stores by mistake is visible."""
    return server.with_key(server.make_app()["api_key"])


@pytest.fixture(scope="module")
def good(app: Asker) -> dict[str, Any]:
    """An event without faults."""
    return draft(make_type(app, data_schema=SCHEMA), user_id=make_user(app))


@pytest.fixture(autouse=True)
def nothing_is_stored(app: Asker, good: dict[str, Any]) -> Iterator[None]:
    yield
    assert app.get("/v1/events").json["items"] == []
    assert inbox(app, good["recipient"]["user_id"]) == []


# What is changed in a good event, and the field that the answer names.
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"type": "NO_SUCH_TYPE"}, "type"),
    ({"type": ""}, "type"),
    ({"type": LONG}, "type"),
    ({"type": "A\0B"}, "type"),
    ({"type": 7}, "type"),
    ({"type": None}, "type"),
    ({"data": {}}, "data.order"),
    ({"data": {"order": None}}, "data.order"),
    ({"data": {"order": 7}}, "data.order"),
    ({"data": {"order": "A", "items": [1, 2, 3]}}, "data.items"),
    ({"data": {"order": "A", "text": "x" * 1_000_000}}, "data"),
    ({"data": {"order": "A\0"}}, "data"),
    ({"data": {"order": "A", "\0": 1}}, "data"),
    ({"data": []}, "data"),
    ({"data": None}, "data"),
    ({"recipient": {"user_id": "nobody"}}, "recipient.user_id"),
    ({"recipient": {"user_id": ""}}, "recipient.user_id"),
    ({"recipient": {"user_id": LONG}}, "recipient.user_id"),
    ({"recipient": {"user_id": "a/b"}}, "recipient.user_id"),
    ({"recipient": {"user_id": 7}}, "recipient.user_id"),
    ({"recipient": {"user_id": "ü"}}, "recipient.user_id"),
    ({"recipient": {"user_ids": []}}, "recipient.user_ids"),
    ({"recipient": {"user_ids": ["x"] * 10_001}}, "recipient.user_ids"),
    ({"recipient": {"user_ids": ["nobody", "nobody"]}}, "recipient.user_ids[0]"),
    ({"recipient": {"user_ids": [7]}}, "recipient.user_ids[0]"),
    ({"recipient": {"user_ids": "ana"}}, "recipient.user_ids"),
    ({"recipient": {"topic": ""}}, "recipient.topic"),
    ({"recipient": {"topic": "a b"}}, "recipient.topic"),
    ({"recipient": {"segment": "vip"}}, "recipient.segment"),
    ({"recipient": {"all": False}}, "recipient.all"),
    ({"recipient": {"all": 1}}, "recipient.all"),
    ({"recipient": {}}, "recipient"),
    ({"recipient": None}, "recipient"),
    ({"recipient": {"all": True, "topic": "news"}}, "recipient"),
    ({"recipient": {"everybody": True}}, "recipient.everybody"),
    ({"sent_at": "now"}, "sent_at"),
    ({"priority": 4}, "priority"),
    ({"priority": -1}, "priority"),
    ({"priority": "urgent"}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": True}, "priority"),
    ({"channels": []}, "channels"),
    ({"channels": ["pigeon"]}, "channels[0]"),
    ({"dedupe_key": ""}, "dedupe_key"),
    ({"dedupe_key": LONG}, "dedupe_key"),
    ({"dedupe_key": "\0"}, "dedupe_key"),
    ({"deeplink": "x" * 2_049}, "deeplink"),
    ({"deeplink": "app://\0"}, "deeplink"),
    ({"actor": {"name": LONG}}, "actor.name"),
    ({"actor": {"name": "\0"}}, "actor.name"),
    ({"actor": {"name": "Bo\r\nBcc: all@example.com"}}, "actor.name"),
    ({"actor": {"nickname": "Bo"}}, "actor.nickname"),
    ({"actor": "Bo"}, "actor"),
    ({"target": {"id": 7}}, "target.id"),
    ({"scheduled_at": PAST}, "scheduled_at"),
    ({"scheduled_at": FAR}, "scheduled_at"),
    ({"scheduled_at": "2999-01-01T00:00:00"}, "scheduled_at"),
    ({"scheduled_at": "soon"}, "scheduled_at"),
    ({"scheduled_at": 1}, "scheduled_at"),
    ({"expires_at": PAST}, "expires_at"),
    ({"ttl_s": 0}, "ttl_s"),
    ({"ttl_s": 31 * 24 * 3600}, "ttl_s"),
    ({"ttl_s": "60"}, "ttl_s"),
]


@pytest.mark.parametrize(("change", "field"), FAULTS, ids=lambda each: str(each)[:60])
def test_a_fault_is_named(
    app: Asker, good: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    answer = app.post("/v1/events", good | change)
    assert (answer.status, set(answer.fields)) == (422, {field})
    in_batch = app.post("/v1/events/batch", {"events": [good | change]})
    assert in_batch.status == 202
    (result,) = in_batch.json["results"]
    assert (result["status"], result["errors"]) == ("refused", answer.problem["errors"])


@pytest.mark.parametrize(
    ("change", "field"),
    [each for each in FAULTS if "user_id" not in each[1]],
    ids=lambda each: str(each)[:60],
)
def test_explain_never_breaks_on_a_fault(
    app: Asker, good: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    """Some of what cannot be sent can be asked about: a past time, or somebody unknown."""
    answer = app.post("/v1/explain", good | change)
    assert answer.status in {200, 422}
    if answer.status == 422:
        assert set(answer.fields) <= {field, "recipient.user_id", "user_id"}


def test_somebody_unknown_can_be_asked_about(app: Asker, good: dict[str, Any]) -> None:
    verdict = explain(app, good | {"recipient": {"user_id": "nobody"}})["in_app"]
    assert (verdict["verdict"], verdict["reason"], verdict["rule"]) == (
        "drop",
        "user_unknown",
        "user",
    )


@pytest.mark.parametrize(
    "recipient", [{"all": True}, {"topic": "news"}, {"user_ids": ["ana"]}, {}, {"user_id": "a/b"}]
)
def test_explain_needs_a_single_user(
    app: Asker, good: dict[str, Any], recipient: dict[str, Any]
) -> None:
    answer = app.post("/v1/explain", good | {"recipient": recipient})
    assert (answer.status, answer.fields) == (422, ["recipient.user_id"])


def test_explain_refuses_several_recipients(app: Asker, good: dict[str, Any]) -> None:
    answer = app.post("/v1/explain", good | {"recipient": {**good["recipient"], "topic": "news"}})
    assert (answer.status, answer.fields) == (422, ["recipient"])


def test_all_faults_are_named_at_once(app: Asker, good: dict[str, Any]) -> None:
    change = {"recipient": {}, "data": {}, "scheduled_at": PAST}
    answer = app.post("/v1/events", good | change)
    assert answer.fields == ["recipient", "scheduled_at", "data.order"]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"datas": {}, "data": {"order": 7}}, ["datas", "data.order"]),
        ({"data.order": "A-7", "data": {}}, ["data.order", "data.order"]),
        ({"channels_": ["email"], "data": {}}, ["channels_", "data.order"]),
        ({"recipients": {}, "recipient": {"user_id": "bo"}}, ["recipients", "recipient.user_id"]),
        ({"recipient": {"user": "bo", "user_id": "cy"}}, ["recipient.user", "recipient.user_id"]),
        ({"recipient": {"x": 1, "user_id": "a/b"}}, ["recipient.x", "recipient.user_id"]),
        (
            {"recipient": {"user_ids": ["bo", 7]}, "data": {}},
            ["recipient.user_ids[1]", "data.order"],
        ),
    ],
    ids=lambda each: str(each)[:60],
)
def test_a_misspelt_field_hides_no_other_fault(
    app: Asker, good: dict[str, Any], change: dict[str, Any], fields: list[str]
) -> None:
    assert app.post("/v1/events", good | change).fields == fields


@pytest.mark.parametrize("more", [{"ttl_s": 60}, {"scheduled_at": moment(hours=2)}], ids=[0, 1])
def test_a_life_must_make_sense(app: Asker, good: dict[str, Any], more: dict[str, Any]) -> None:
    answer = app.post("/v1/events", good | {"expires_at": moment(hours=1)} | more)
    assert (answer.status, answer.fields) == (422, ["expires_at"])


def test_who_is_missing_is_named_by_their_place(app: Asker, good: dict[str, Any]) -> None:
    ana = good["recipient"]["user_id"]
    change = {"recipient": {"user_ids": [ana, ana, "bo", ana, "cy"]}}
    answer = app.post("/v1/events", good | change)
    assert answer.fields == ["recipient.user_ids[2]", "recipient.user_ids[4]"]


def test_backslashes_are_no_zero_characters(app: Asker, good: dict[str, Any]) -> None:
    event = good | {"data": {"order": "\\u0000"}}
    assert explain(app, event)["in_app"]["verdict"] == "send"


@pytest.mark.parametrize("count", [0, 1_001])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_the_size_of_a_batch(
    app: Asker, good: dict[str, Any], count: int, *, is_wrapped: bool
) -> None:
    events = [good] * count
    body = {"events": events} if is_wrapped else events
    answer = app.post("/v1/events/batch", json.dumps(body).encode())
    assert (answer.status, answer.fields) == (422, ["events"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "events"),
        (b'{"events": 7}', "events"),
        (b"7", "body"),
        (b'{"event": [], "events": []}', "event"),
    ],
)
def test_what_is_no_batch_is_named(app: Asker, body: bytes, field: str) -> None:
    answer = app.post("/v1/events/batch", body)
    assert (answer.status, answer.fields) == (422, [field])


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch", "/v1/explain"])
@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"nul", b"[1, 2"])
def test_what_is_no_json_is_malformed(app: Asker, path: str, body: bytes) -> None:
    answer = app.post(path, body)
    code = answer.problem["code"]
    # A list that ends too soon may be seen to be no event before its end.
    assert (answer.status, code) in {(400, "malformed_body"), (422, "invalid_fields")}
    assert code == "malformed_body" or body.startswith(b"[")


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch", "/v1/explain"])
@pytest.mark.parametrize("body", ["", "[" * 100_000, '{"a":' * 100_000], ids=["none", "[", "{"])
def test_what_says_nothing_or_never_ends_is_refused(app: Asker, path: str, body: str) -> None:
    answer = app.post(path, body.encode())
    assert answer.status in {400, 422}
    assert answer.problem["code"] in {"malformed_body", "invalid_fields"}


@pytest.mark.parametrize("depth", [100, 5_000])
def test_data_may_not_be_nested_without_end(app: Asker, good: dict[str, Any], depth: int) -> None:
    body = json.dumps(good).replace('"A-7"', "[" * depth + "]" * depth).encode()
    for path in ("/v1/events", "/v1/explain"):
        answer = app.post(path, body)
        assert answer.status in {400, 422}
        assert answer.problem["code"] in {"malformed_body", "invalid_fields"}


def test_a_body_has_a_limit(app: Asker, good: dict[str, Any]) -> None:
    body = json.dumps(good | {"data": {"order": "x" * 50_000_000}}).encode()
    answer = app.post("/v1/events", body)
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_idempotency_key_has_a_length(app: Asker, good: dict[str, Any], key: str) -> None:
    answer = app.post("/v1/events", good, headers={"Idempotency-Key": key})
    assert (answer.status, answer.fields) == (422, ["Idempotency-Key"])


@pytest.mark.parametrize("status", ["lost", ""])
def test_a_status_that_is_not_listed_is_named(app: Asker, status: str) -> None:
    answer = app.get(f"/v1/events?status={status}")
    assert (answer.status, answer.fields) == (422, ["status"])


@pytest.mark.parametrize("name", ["x", "%0A", "0190f000-0000-7000-8000-000000000001", "%F0%9F%9A"])
def test_what_is_not_there_is_404(app: Asker, name: str) -> None:
    for answer in (
        app.get(f"/v1/events/{name}"),
        app.delete(f"/v1/events/{name}"),
        app.post(f"/v1/events/{name}/replay"),
        app.get(f"/v1/notifications/{name}"),
        app.get(f"/v1/notifications/{name}/deliveries"),
        app.get(f"/v1/notifications/{name}/timeline"),
    ):
        assert (answer.status, answer.problem["code"]) == (404, "not_found")


def test_a_type_that_is_not_active_takes_no_events(app: Asker, good: dict[str, Any]) -> None:
    asleep = make_type(app, is_active=False)
    answer = app.post("/v1/events", good | {"type": asleep})
    assert (answer.status, answer.fields) == (422, ["type"])


def test_a_bad_zone_and_bad_hours_are_named(app: Asker, good: dict[str, Any]) -> None:
    path = f"/v1/users/{good['recipient']['user_id']}"
    answer = app.ask("PATCH", path, {"timezone": "Mars/Olympus"})
    assert (answer.status, answer.fields) == (422, ["timezone"])
    answer = app.ask("PATCH", f"{path}/preferences", {"quiet_hours": [True] * 25})
    assert (answer.status, answer.fields) == (422, ["quiet_hours"])


def test_a_template_without_end_is_stopped(app: Asker, good: dict[str, Any]) -> None:
    endless = "{% for a in (1..9999) %}{% for b in (1..9999) %}x{% endfor %}{% endfor %}"
    path = f"/v1/types/{good['type']}/templates/in_app/preview"
    answer = app.post(path, {"body": endless, "data": {"order": "A"}})
    assert (answer.status, answer.fields) == (422, ["body"])
