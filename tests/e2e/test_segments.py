"""Segments: their API, and events whose recipient is one."""

import uuid
from typing import Any

import pytest

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import (
    draft,
    get_event,
    inbox,
    make_type,
    make_user,
    send,
    send_and_wait,
    wait_for_event,
)


@pytest.fixture
def app(server: Server) -> Asker:
    """An app without other users."""
    return server.with_key(server.make_app()["api_key"])


def put(app: Asker, name: str, text: str) -> Answer:
    return app.ask("PUT", f"/v1/segments/{name}", {"filter": text})


def count(app: Asker, name: str) -> int:
    answer = app.post(f"/v1/segments/{name}/count")
    assert answer.status == 200, answer.body
    assert set(answer.json) == {"count"}
    found: int = answer.json["count"]
    return found


def test_a_segment_is_created_replaced_listed_and_deleted(app: Asker) -> None:
    text = "language = 'de' and tag = 'vip' and last_seen_at > '2026-01-01'"
    made = put(app, "vip", text)
    assert (made.status, made.json["name"], made.json["filter"]) == (201, "vip", text)
    assert put(app, "vip", "tag = 'vip'").status == 200
    assert put(app, "all", "tag != 'x'").status == 201
    page = app.get("/v1/segments?limit=1").json
    rest = app.get(f"/v1/segments?after={page['next']}").json
    assert [each["name"] for each in page["items"] + rest["items"]] == ["all", "vip"]
    assert app.get("/v1/segments/vip").json["filter"] == "tag = 'vip'"
    assert app.delete("/v1/segments/vip").status == 204
    for answer in (app.get("/v1/segments/vip"), app.delete("/v1/segments/vip")):
        assert (answer.status, answer.problem["code"]) == (404, "not_found")
    assert app.post("/v1/segments/vip/count").status == 404


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "character 1: expected a field"),
        ("tag = 'a' or", "character 13: expected a field, like language or attributes.plan"),
        ("name = 'x'", "there is no field name: use language, timezone, status, tag"),
        ("tag = 'a\0'", "must not contain control characters"),
        ("(" * 4000, "parentheses may be nested 16 levels deep"),
        ("not " * 1000, "expected a field"),
        ("tag in (" + ",".join(["'a'"] * 500) + ")", "a list has at most 100 values"),
        ("x" * 100_000, "must have at most 4,096 characters"),
        ("attributes.a = 1e999", "a number must be less than 1e+300"),
        ("tag = 'a'; DROP TABLE users", "character 10: did not expect ;"),
    ],
)
def test_a_filter_that_is_not_valid_is_refused(app: Asker, text: str, reason: str) -> None:
    for answer in (put(app, "bad", text), app.post("/v1/segments/count", {"filter": text})):
        assert (answer.status, answer.fields) == (422, ["filter"])
        assert reason in answer.problem["errors"][0]["reason"]
    assert app.get("/v1/segments").json["items"] == []


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a%20b", {"filter": "tag = 'a'"}),
        ("x" * 65, {"filter": "tag = 'a'"}),
        ("vip", {}),
        ("vip", {"filter": 5}),
        ("vip", {"filter": None}),
        ("vip", {"filter": "tag = 'a'", "more": 1}),
    ],
)
def test_a_request_that_is_not_valid_is_refused(app: Asker, name: str, body: Any) -> None:
    assert app.ask("PUT", f"/v1/segments/{name}", body).status == 422


def test_lone_surrogates_are_refused(app: Asker) -> None:
    body = rb"""{"filter": "tag = '\ud800'"}"""
    assert app.ask("PUT", "/v1/segments/bad", body).status == 400


def test_users_are_counted(app: Asker) -> None:
    make_user(app, language="de", tags=["vip"], attributes={"age": 42, "plan": "pro"})
    make_user(app, language="de", tags=["vip"], status="inactive")
    make_user(app, language="en", tags=["vip", "beta"], attributes={"age": 7})
    put(app, "vip", "tag = 'vip'")
    assert count(app, "vip") == 2
    for text, expected in {
        "language = 'de'": 1,
        "tag = 'vip' and not tag = 'beta'": 1,
        "attributes.age >= 7": 2,
        "attributes.age > 7 or attributes.plan = 'pro'": 1,
        "attributes.plan != 'pro'": 1,
        "status = 'active'": 2,
        "status = 'inactive'": 0,
        "last_seen_at > '2020-01-01'": 0,
        "created_at > '2020-01-01'": 2,
        "timezone in ('UTC', 'Europe/Berlin')": 2,
    }.items():
        answer = app.post("/v1/segments/count", {"filter": text})
        assert (answer.status, answer.json) == (200, {"count": expected}), text


def test_users_come_and_go_by_themselves(app: Asker) -> None:
    ana = make_user(app, tags=["vip"], attributes={"plan": "pro"})
    put(app, "pro", "attributes.plan = 'pro'")
    assert count(app, "pro") == 1
    assert app.ask("PATCH", f"/v1/users/{ana}", {"attributes": {"plan": None}}).status == 200
    assert count(app, "pro") == 0
    assert app.ask("PUT", f"/v1/users/{ana}", {"attributes": {"plan": "pro"}}).status == 200
    assert count(app, "pro") == 1


def test_an_event_reaches_each_user_of_a_segment_once(app: Asker) -> None:
    order = make_type(app)
    members = [make_user(app, tags=["vip", "beta"]) for _ in range(3)]
    others = [make_user(app, tags=["beta"]), make_user(app, tags=["vip"], status="inactive")]
    put(app, "vip", "tag in ('vip', 'x') or tag = 'vip' and tag = 'beta'")
    seen = send_and_wait(app, draft(order, segment="vip"))
    assert (seen["status"], seen["notification_count"]) == ("completed", 3)
    assert seen["recipient"] == {
        "segment": "vip",
        "filter": "tag in ('vip', 'x') or tag = 'vip' and tag = 'beta'",
    }
    assert [len(inbox(app, each)) for each in members] == [1, 1, 1]
    assert [len(inbox(app, each)) for each in others] == [0, 0]


def test_an_event_for_a_segment_without_users_is_over_at_once(app: Asker) -> None:
    put(app, "none", "tag = 'none'")
    seen = send_and_wait(app, draft(make_type(app), segment="none"))
    assert (seen["status"], seen["notification_count"]) == ("completed", 0)


def test_the_filter_counts_that_was_in_force_when_the_event_was_accepted(app: Asker) -> None:
    order, ana, bo = make_type(app), make_user(app, tags=["a"]), make_user(app, tags=["b"])
    put(app, "some", "tag = 'a'")
    scheduled = draft(order, segment="some") | {"scheduled_at": "2099-01-01T00:00:00Z"}
    assert app.post("/v1/events", scheduled).status == 422  # more than a year ahead
    answer = app.post("/v1/events/batch", {"events": [draft(order, segment="some")]})
    (accepted,) = answer.json["results"]
    put(app, "some", "tag = 'b'")
    assert app.delete("/v1/segments/some").status == 204
    seen = wait_for_event(app, accepted["event_id"])
    assert seen["recipient"] == {"segment": "some", "filter": "tag = 'a'"}
    assert [len(inbox(app, each)) for each in (ana, bo)] == [1, 0]


@pytest.mark.parametrize("name", ["unknown", "a b", "", "x" * 100])
def test_a_segment_that_does_not_exist_is_refused(app: Asker, name: str) -> None:
    answer = app.post("/v1/events", draft(make_type(app), segment=name))
    assert (answer.status, answer.fields) == (422, ["recipient.segment"])


def test_the_segment_of_another_app_does_not_exist(server: Server, app: Asker) -> None:
    name = f"s-{uuid.uuid4().hex}"
    assert put(server.app, name, "tag = 'a'").status == 201
    answer = app.post("/v1/events", draft(make_type(app), segment=name))
    assert (answer.status, answer.fields) == (422, ["recipient.segment"])


def test_an_event_for_a_segment_can_be_cancelled(app: Asker) -> None:
    put(app, "all", "status = 'active'")
    make_user(app)
    soon = {"scheduled_at": "2027-01-01T00:00:00Z"}
    event_id = send(app, draft(make_type(app), segment="all") | soon)
    assert app.delete(f"/v1/events/{event_id}").status == 200
    assert get_event(app, event_id)["status"] == "cancelled"


@pytest.mark.parametrize("cursor", ["%00", "%F0%9F%9A%80", "'", "%FF"])
def test_any_cursor_is_answered(app: Asker, cursor: str) -> None:
    assert app.get(f"/v1/segments?after={cursor}").status in {200, 400, 422}


def test_a_decision_for_a_user_of_a_segment_is_explained(app: Asker) -> None:
    order, ana, bo = make_type(app), make_user(app, tags=["a"]), make_user(app, tags=["b"])
    put(app, "some", "tag = 'a'")
    asked = draft(order, segment="some")
    for user, is_recipient in ((ana, True), (bo, False), ("nobody", False)):
        answer = app.post("/v1/explain", asked | {"user_id": user})
        assert answer.status == 200, answer.body
        assert (answer.json["user_id"], answer.json["is_recipient"]) == (user, is_recipient)
        assert answer.json["verdicts"]


@pytest.mark.parametrize(
    ("recipient", "user_id", "field"),
    [
        ({"segment": "some"}, None, "user_id"),
        ({"segment": "some"}, "a b", "user_id"),
        ({"segment": "other"}, "ana", "recipient.segment"),
        ({"user_id": "ana"}, "ana", "user_id"),
        ({"topic": "news"}, None, "recipient.user_id"),
    ],
)
def test_an_explanation_names_what_it_needs(
    app: Asker, recipient: dict[str, str], user_id: str | None, field: str
) -> None:
    put(app, "some", "tag = 'a'")
    answer = app.post("/v1/explain", draft(make_type(app), **recipient) | {"user_id": user_id})
    assert (answer.status, answer.fields) == (422, [field])
