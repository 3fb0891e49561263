"""The app's own categories on a running server: types, preferences, devices, the inbox."""

import uuid
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import draft, explain, inbox, make_type, make_user, send_and_wait

BUILT_IN = ["marketing", "news", "safety", "security", "social", "transactional"]


@pytest.fixture
def app(server: Server) -> Asker:
    """A client of an app without categories."""
    return server.with_key(server.make_app()["api_key"])


def put(app: Asker, name: str = "billing", **fields: Any) -> dict[str, Any]:
    answer = app.ask("PUT", f"/v1/categories/{name}", {"title": "Bills", **fields})
    assert answer.status in {200, 201}, answer.body
    category: dict[str, Any] = answer.json
    return category


def preferences(app: Asker, user_id: str, query: str = "") -> Any:
    return app.get(f"/v1/users/{user_id}/preferences{query}").json


def test_a_category_is_created_replaced_listed_and_deleted(app: Asker) -> None:
    path = "/v1/categories/billing"
    body = {"title": "Bills", "description": "What you owe.", "default_channels": ["email"]}
    made = app.ask("PUT", path, body)
    expected = {**body, "name": "billing", "user_can_disable": True, "origin": "own"}
    assert (made.status, made.json) == (201, expected)
    assert app.ask("PUT", path, {"title": "Invoices"}).status == 200
    listed = app.get("/v1/categories").json
    assert [each["name"] for each in listed["items"]] == ["billing", *BUILT_IN]
    assert listed["next"] is None
    assert listed["items"][0] == {
        "name": "billing",
        "title": "Invoices",
        "description": None,
        "default_channels": ["in_app"],
        "user_can_disable": True,
        "origin": "own",
    }
    assert app.delete(path).status == 204
    assert app.delete(path).status == 404


def test_the_list_comes_in_pages(app: Asker) -> None:
    first = app.get("/v1/categories?limit=4").json
    rest = app.get(f"/v1/categories?limit=4&after={first['next']}").json
    assert [each["name"] for each in first["items"] + rest["items"]] == BUILT_IN
    assert rest["next"] is None


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_categories_stay_as_they_are(app: Asker, name: str) -> None:
    path = f"/v1/categories/{name}"
    assert app.ask("PUT", path, {"title": "Mine"}).problem["code"] == "conflict"
    assert app.delete(path).status == 409


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("Billing", {"title": "x"}, "name"),
        ("a%20b", {"title": "x"}, "name"),
        ("x" * 65, {"title": "x"}, "name"),
        ("-a", {"title": "x"}, "name"),
        ("a", {}, "title"),
        ("a", {"title": ""}, "title"),
        ("a", {"title": "x" * 101}, "title"),
        ("a", {"title": "a\nb"}, "title"),
        ("a", {"title": "x", "description": "x" * 501}, "description"),
        ("a", {"title": "x", "description": "a\0"}, "description"),
        ("a", {"title": "x", "default_channels": []}, "default_channels"),
        ("a", {"title": "x", "default_channels": ["fax"]}, "default_channels[0]"),
        ("a", {"title": "x", "default_channels": ["sms", "sms"]}, "default_channels"),
        ("a", {"title": "x", "mandatory": True}, "mandatory"),
    ],
)
def test_a_field_that_is_wrong_is_named(
    app: Asker, name: str, body: dict[str, Any], field: str
) -> None:
    answer = app.ask("PUT", f"/v1/categories/{name}", body)
    assert (answer.status, answer.fields) == (422, [field])


def test_there_are_fifty_at_most(app: Asker) -> None:
    for number in range(50):
        put(app, f"c{number}")
    answer = app.ask("PUT", "/v1/categories/one-more", {"title": "x"})
    assert (answer.status, answer.problem["code"]) == (409, "conflict")
    assert len(app.get("/v1/categories?limit=100").json["items"]) == 56


def test_an_unknown_category_is_refused_with_those_that_there_are(app: Asker) -> None:
    put(app)
    answer = app.ask("PUT", "/v1/types/BILL", {"category": "bills"})
    (error,) = answer.problem["errors"]
    assert error["field"] == "category"
    for name in (*BUILT_IN, "billing"):
        assert name in error["reason"]


def test_a_type_takes_the_channels_of_its_category(app: Asker) -> None:
    put(app, default_channels=["in_app", "email"])
    made = app.ask("PUT", "/v1/types/BILL", {"category": "billing"}).json
    assert (made["category"], made["default_channels"]) == ("billing", ["in_app", "email"])
    named = app.ask("PUT", "/v1/types/B2", {"category": "billing", "default_channels": ["sms"]})
    assert named.json["default_channels"] == ["sms"]
    conflict = app.delete("/v1/categories/billing")
    assert (conflict.status, conflict.problem["code"]) == (409, "conflict")
    for name in ("BILL", "B2"):
        assert app.delete(f"/v1/types/{name}").status == 204
    assert app.delete("/v1/categories/billing").status == 204


def test_users_turn_it_off_and_on_again(app: Asker) -> None:
    put(app)
    bill, user_id = make_type(app, category="billing"), make_user(app)
    assert preferences(app, user_id)["categories"]["billing"] is True
    path = f"/v1/users/{user_id}/preferences"
    changed = app.ask("PATCH", path, {"categories": {"billing": False}}).json
    assert changed["categories"]["billing"] is False
    explained = preferences(app, user_id, "?explain=true")["categories"]["billing"]
    assert (explained["value"], explained["source"]) == (False, "user")
    verdict = explain(app, draft(bill, user_id=user_id))["in_app"]
    assert (verdict["verdict"], verdict["reason"]) == ("drop", "category_off")
    assert app.ask("PATCH", path, {"categories": {"billing": None}}).status == 200
    send_and_wait(app, draft(bill, user_id=user_id))
    (item,) = inbox(app, user_id)
    assert item["category"] == "billing"


def test_what_users_cannot_turn_off_they_get(app: Asker) -> None:
    put(app, user_can_disable=False)
    bill, user_id = make_type(app, category="billing"), make_user(app)
    off = {"categories": {"billing": False}, "types": {bill: {"in_app": False}}}
    assert app.ask("PATCH", f"/v1/users/{user_id}/preferences", off).status == 200
    explained = preferences(app, user_id, "?explain=true")
    assert explained["categories"]["billing"]["source"] == "mandatory"
    assert explained["types"][bill]["in_app"]["value"] is True
    assert app.get(f"/v1/types/{bill}").json["user_can_disable"] is False
    assert explain(app, draft(bill, user_id=user_id))["in_app"]["verdict"] == "send"
    put(app, user_can_disable=True)
    assert explain(app, draft(bill, user_id=user_id))["in_app"]["reason"] == "category_off"


def test_preferences_for_a_category_that_there_is_not_are_refused(app: Asker) -> None:
    user_id = make_user(app)
    path = f"/v1/users/{user_id}/preferences"
    answer = app.ask("PATCH", path, {"categories": {"billing": False, "news": False}})
    assert (answer.status, answer.fields) == (422, ["categories.billing"])
    device = {"platform": "clarion", "preferences": {"categories": {"billing": False}}}
    answer = app.post("/v1/devices", device)
    assert (answer.status, answer.fields) == (422, ["preferences.categories.billing"])


def test_what_was_set_for_a_deleted_category_is_not_shown_and_can_be_reset(app: Asker) -> None:
    put(app)
    user_id = make_user(app)
    path = f"/v1/users/{user_id}/preferences"
    assert app.ask("PATCH", path, {"categories": {"billing": False}}).status == 200
    assert app.delete("/v1/categories/billing").status == 204
    assert "billing" not in preferences(app, user_id)["categories"]
    assert app.ask("PATCH", path, {"categories": {"billing": None}}).status == 200


def test_a_device_turns_it_off(app: Asker) -> None:
    put(app)
    wanted = {"platform": "clarion", "preferences": {"categories": {"billing": False}}}
    device = app.post("/v1/devices", wanted)
    assert device.status == 201, device.body
    seen = app.get(f"/v1/devices/{device.json['device_id']}").json["preferences"]["categories"]
    assert seen == {**dict.fromkeys(BUILT_IN, True), "billing": False}


def test_the_inbox_is_filtered_by_it(app: Asker) -> None:
    put(app)
    bill, other, user_id = make_type(app, category="billing"), make_type(app), make_user(app)
    for each in (bill, other):
        send_and_wait(app, draft(each, user_id=user_id))
    path = f"/v1/users/{user_id}/notifications?category="
    (item,) = app.get(f"{path}billing").json["items"]
    assert item["type"] == bill
    refused = app.get(f"{path}bills")
    assert (refused.status, refused.fields) == (422, ["category"])
    assert "billing" in refused.problem["errors"][0]["reason"]


def test_users_read_the_titles_and_change_nothing(server: Server) -> None:
    ana, name = InboxUser(server), f"c-{uuid.uuid4().hex}"
    assert server.app.ask("PUT", f"/v1/users/{ana.id}", {}).status == 201
    put(server.app, name, title="Team news")
    page = ana.me.get("/v1/categories?limit=100").json
    assert "Team news" in [each["title"] for each in page["items"]]
    for method in ("PUT", "DELETE"):
        body = {"title": "x"} if method == "PUT" else None
        assert ana.me.ask(method, f"/v1/categories/{name}", body).status == 403
    assert server.app.delete(f"/v1/categories/{name}").status == 204


def test_categories_of_another_app_are_not_known(server: Server, app: Asker) -> None:
    put(app)
    other = server.with_key(server.make_app()["api_key"])
    assert other.ask("PUT", "/v1/types/BILL", {"category": "billing"}).status == 422
    assert other.delete("/v1/categories/billing").status == 404
