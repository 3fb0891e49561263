"""Preferences over real HTTP: effective values, their sources, and what is refused."""

import time
import uuid
from typing import Any

import jwt
import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server

DEFAULT_HOURS = [hour >= 22 or hour < 7 for hour in range(24)]
HOURS = [hour < 5 for hour in range(24)]
CHANNELS = ["in_app", "push", "email", "sms"]


@pytest.fixture
def user_id(server: Server) -> str:
    name = uuid.uuid4().hex
    assert server.app.ask("PUT", f"/v1/users/{name}", {"name": "Ana"}).status == 201
    return name


@pytest.fixture
def path(user_id: str) -> str:
    return f"/v1/users/{user_id}/preferences"


@pytest.fixture
def me(server: Server, user_id: str) -> Asker:
    """The user's own client."""
    app = server.first["app"]
    claims = {"sub": user_id, "aud": app["id"], "exp": int(time.time()) + 600}
    return server.with_key(jwt.encode(claims, app["user_secret"], algorithm="HS256"))


def explained(asker: Asker, path: str) -> dict[str, Any]:
    answer = asker.get(f"{path}?explain=true")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def values_of(explained: Any) -> Any:
    """Return explained preferences without their sources, as they are shown by default."""
    if not isinstance(explained, dict):
        return explained
    if set(explained) == {"value", "source", "set_to"}:
        return explained["value"]
    return {name: values_of(each) for name, each in explained.items()}


def test_by_default_everything_is_on_but_sms(server: Server, path: str) -> None:
    seen = server.app.get(path).json
    assert (seen["timezone"], seen["language"]) == ("UTC", "en")
    assert seen["quiet_hours"] == DEFAULT_HOURS
    assert set(seen["categories"].values()) == {True}
    assert seen["types"]["POST_LIKE"] == {name: name != "sms" for name in CHANNELS}


def test_by_default_the_source_is_the_default_or_that_it_is_mandatory(
    server: Server, path: str
) -> None:
    seen = explained(server.app, path)
    for name in ("timezone", "language", "quiet_hours"):
        assert (seen[name]["source"], seen[name]["set_to"]) == ("default", None)
    sources = {name: each["source"] for name, each in seen["categories"].items()}
    assert sources == {
        "social": "default",
        "news": "default",
        "marketing": "default",
        "transactional": "default",
        "safety": "mandatory",
        "security": "mandatory",
    }
    assert seen["types"]["POST_LIKE"]["sms"] == {
        "value": False,
        "source": "default",
        "set_to": None,
    }
    assert seen["types"]["SECURITY_NEW_DEVICE"]["sms"]["source"] == "mandatory"


FULL: dict[str, Any] = {
    "timezone": "Europe/Berlin",
    "language": "de",
    "quiet_hours": HOURS,
    "categories": {"social": False, "news": True},
    "types": {"POST_LIKE": {"push": False, "sms": True, "email": True}},
}


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_is_set_is_effective_and_has_the_user_as_source(
    server: Server, path: str, method: str
) -> None:
    answer = server.app.ask(method, path, FULL)
    assert answer.status == 200
    assert answer.json == server.app.get(path).json
    assert (answer.json["timezone"], answer.json["language"]) == ("Europe/Berlin", "de")
    assert answer.json["quiet_hours"] == HOURS
    assert (answer.json["categories"]["social"], answer.json["categories"]["news"]) == (False, True)
    seen = explained(server.app, path)
    assert answer.json == values_of(seen)
    assert not any(answer.json["types"]["POST_LIKE"].values())  # its category is off
    assert seen["timezone"] == {
        "value": "Europe/Berlin",
        "source": "user",
        "set_to": "Europe/Berlin",
    }
    assert seen["categories"]["social"] == {"value": False, "source": "user", "set_to": False}
    # What was set to its default is not stored.
    assert seen["categories"]["news"] == {"value": True, "source": "default", "set_to": None}
    assert seen["types"]["POST_LIKE"]["sms"] == {
        "value": False,
        "source": "category",
        "set_to": True,
    }


def test_put_resets_what_is_left_out_but_language_and_zone(server: Server, path: str) -> None:
    server.app.ask("PUT", path, FULL)
    answer = server.app.ask("PUT", path, {"categories": {"marketing": False}}).json
    assert (answer["timezone"], answer["language"]) == ("Europe/Berlin", "de")
    assert answer["quiet_hours"] == DEFAULT_HOURS
    assert [name for name, on in answer["categories"].items() if not on] == ["marketing"]
    assert answer["types"]["POST_LIKE"]["push"]


def test_patch_merges_and_null_resets(server: Server, path: str) -> None:
    server.app.ask("PUT", path, FULL)
    body = {
        "timezone": None,
        "quiet_hours": None,
        "categories": {"social": None, "marketing": False},
        "types": {"POST_LIKE": {"push": None}, "POST_SHARE": {"email": False}},
    }
    answer = server.app.ask("PATCH", path, body).json
    assert (answer["timezone"], answer["language"]) == ("UTC", "de")
    assert answer["quiet_hours"] == DEFAULT_HOURS
    assert [name for name, on in answer["categories"].items() if not on] == ["marketing"]
    assert (answer["types"]["POST_LIKE"]["push"], answer["types"]["POST_LIKE"]["sms"]) == (
        True,
        True,
    )
    assert not answer["types"]["POST_SHARE"]["email"]
    gone = server.app.ask("PATCH", path, {"types": None, "categories": None}).json
    assert all(gone["categories"].values())
    assert gone["types"]["POST_SHARE"]["email"]


def test_what_was_read_can_be_put_back(server: Server, path: str) -> None:
    before = server.app.ask("PUT", path, FULL).json
    assert server.app.ask("PUT", path, before).json == before
    assert explained(server.app, path)["types"]["POST_LIKE"]["push"]["set_to"] is False
    on = server.app.ask("PATCH", path, {"categories": {"social": True}}).json
    assert on["types"]["POST_LIKE"] == {"in_app": True, "push": False, "email": True, "sms": True}


def test_safety_and_security_cannot_be_switched_off(server: Server, path: str) -> None:
    body = {"categories": {"safety": False}, "types": {"SECURITY_NEW_DEVICE": {"push": False}}}
    answer = server.app.ask("PUT", path, body)
    assert answer.status == 200
    assert answer.json["categories"]["safety"]
    assert answer.json["types"]["SECURITY_NEW_DEVICE"]["push"]
    seen = explained(server.app, path)
    ignored = {"value": True, "source": "mandatory", "set_to": False}
    assert seen["categories"]["safety"] == ignored
    assert seen["types"]["SECURITY_NEW_DEVICE"]["push"] == ignored


def test_replacing_the_user_keeps_the_preferences(server: Server, path: str, user_id: str) -> None:
    server.app.ask("PUT", path, FULL)
    server.app.ask("PUT", f"/v1/users/{user_id}", {"name": "Other"})
    seen = server.app.get(path).json
    assert (seen["quiet_hours"], seen["timezone"]) == (HOURS, "UTC")


BAD: list[tuple[dict[str, object], str]] = [
    ({"quiet_hours": [True] * 25}, "quiet_hours"),
    ({"quiet_hours": [True] * 23}, "quiet_hours"),
    ({"quiet_hours": []}, "quiet_hours"),
    ({"quiet_hours": "22-07"}, "quiet_hours"),
    ({"quiet_hours": [1] * 24}, "quiet_hours"),
    ({"timezone": "Mars/Olympus"}, "timezone"),
    ({"timezone": 7}, "timezone"),
    ({"language": "english"}, "language"),
    ({"categories": {"gossip": False}}, "categories.gossip"),
    ({"categories": {"social": "no"}}, "categories"),
    ({"types": {"NO_SUCH": {"push": False}}}, "types.NO_SUCH"),
    ({"types": {"POST_LIKE": {"pigeon": False}}}, "types.POST_LIKE.pigeon"),
    ({"types": {"POST_LIKE": False}}, "types"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_is_wrong_is_named_and_nothing_is_stored(
    server: Server, path: str, method: str, body: dict[str, object], field: str
) -> None:
    before = server.app.get(path).json
    answer = server.app.ask(
        method, path, body | {"categories": body.get("categories", {"news": False})}
    )
    assert answer.status == 422
    (named,) = answer.fields
    assert named == field or named.startswith((f"{field}[", f"{field}."))
    assert server.app.get(path).json == before


def test_all_faults_are_named_at_once(server: Server, path: str) -> None:
    body = {"timezone": "x", "quiet_hours": [], "categories": {"a": True}, "types": {"b": {}}}
    answer = server.app.ask("PATCH", path, body)
    assert sorted(answer.fields) == ["categories.a", "quiet_hours", "timezone", "types.b"]


def test_users_see_and_change_their_own(server: Server, me: Asker, path: str) -> None:
    assert me.get("/v1/me/preferences").json == server.app.get(path).json
    assert me.ask("PUT", "/v1/me/preferences", FULL).status == 200
    assert me.ask("PATCH", "/v1/me/preferences", {"language": "fr"}).json["language"] == "fr"
    assert server.app.get(path).json == me.get("/v1/me/preferences").json
    assert explained(me, "/v1/me/preferences")["language"]["source"] == "user"
    assert me.ask("PATCH", "/v1/me/preferences", {"timezone": "x"}).fields == ["timezone"]


def test_users_cannot_name_another_and_apps_have_no_me(
    server: Server, me: Asker, path: str
) -> None:
    for method, body in (("GET", None), ("PUT", {}), ("PATCH", {})):
        assert me.ask(method, path, body).status == 403
        assert server.app.ask(method, "/v1/me/preferences", body).status == 403


def test_toggles_of_a_deleted_type_can_be_reset(server: Server, path: str) -> None:
    name = f"T{uuid.uuid4().hex}"
    server.app.ask("PUT", f"/v1/types/{name}", {})
    body: dict[str, Any] = {"types": {name: {"push": False}}}
    assert server.app.ask("PATCH", path, body).json["types"][name]["push"] is False
    server.app.delete(f"/v1/types/{name}")
    assert name not in server.app.get(path).json["types"]
    assert server.app.ask("PATCH", path, {"types": {name: None}}).status == 200


def test_quiet_hours_can_be_windows(server: Server, path: str) -> None:
    window = {"from": "22:30", "to": "07:00", "days": ["sun", "mon"]}
    answer = server.app.ask("PATCH", path, {"quiet_hours": window})
    assert answer.json["quiet_hours"] == [window | {"days": ["mon", "sun"]}]
    assert explained(server.app, path)["quiet_hours"]["value"] == answer.json["quiet_hours"]
    several = [{"from": "12:00", "to": "13:30"}, {"from": "22:00", "to": "06:00"}]
    stored = server.app.ask("PATCH", path, {"quiet_hours": several}).json["quiet_hours"]
    assert [(each["from"], each["to"], len(each["days"])) for each in stored] == [
        ("12:00", "13:30", 7),
        ("22:00", "06:00", 7),
    ]
    for wrong in (
        {"from": "25:00", "to": "07:00"},
        {"from": "22:00"},
        {"from": "22:00", "to": "07:00", "days": ["x"]},
    ):
        assert server.app.ask("PATCH", path, {"quiet_hours": wrong}).status == 422
    assert server.app.get(path).json["quiet_hours"] == stored
