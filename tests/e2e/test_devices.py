"""Devices over real HTTP: addresses at other push services, and preferences of each device."""

import time
import uuid
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation

P256DH = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
QUIET = [hour < 9 for hour in range(24)]


def subscribe(endpoint: str) -> dict[str, Any]:
    keys = {"p256dh": P256DH, "auth": AUTH}
    return {"platform": "web", "subscription": {"endpoint": endpoint, "keys": keys}}


def new_endpoint() -> str:
    return f"https://push.example.com/{uuid.uuid4().hex}"


@pytest.fixture
def user_id(server: Server) -> str:
    name = uuid.uuid4().hex
    assert server.app.ask("PUT", f"/v1/users/{name}", {}).status == 201
    return name


@pytest.fixture
def me(server: Server, user_id: str) -> Asker:
    """The user's own client."""
    app = server.first["app"]
    claims = {"sub": user_id, "aud": app["id"], "exp": int(time.time()) + 600}
    return server.with_key(jwt.encode(claims, app["user_secret"], algorithm="HS256"))


def test_devices_of_other_push_services_are_registered_once(me: Asker) -> None:
    token = uuid.uuid4().hex
    for given in (
        {"platform": "ios", "token": token},
        {"platform": "fcm", "token": f"fcm:{token}"},
        subscribe(new_endpoint()),
    ):
        first, again = me.post("/v1/devices", given), me.post("/v1/devices", given)
        assert (first.status, again.status) == (201, 200)
        assert first.json["device_id"] == again.json["device_id"]
    shown = me.get("/v1/me/devices")
    assert [each["platform"] for each in shown.json["items"]] == ["ios", "android", "web"]
    assert token.encode() not in shown.body


def test_a_repeat_with_the_same_key_gets_the_same_response(me: Asker) -> None:
    once, given = {"Idempotency-Key": uuid.uuid4().hex}, subscribe(new_endpoint())
    first, again = (me.post("/v1/devices", given, headers=once) for _ in range(2))
    assert (first.status, first.json) == (again.status, again.json)
    assert again.headers["idempotent-replayed"] == "true"


def test_what_is_wrong_with_an_address_is_named(me: Asker) -> None:
    bad = subscribe("http://push.example.com/x")
    assert me.post("/v1/devices", bad).fields == ["subscription.endpoint"]
    both = subscribe(new_endpoint()) | {"token": "x" * 64}
    assert me.post("/v1/devices", both).fields == ["token"]
    for_ios = subscribe(new_endpoint()) | {"platform": "apns"}
    assert me.post("/v1/devices", for_ios).fields == ["subscription"]
    more = subscribe(new_endpoint())
    more["subscription"]["more"] = 1
    assert me.post("/v1/devices", more).status == 422


def test_a_user_sets_what_a_device_receives(server: Server, me: Asker) -> None:
    given = {"platform": "clarion", "preferences": {"quiet_hours": QUIET}}
    path = f"/v1/devices/{me.post('/v1/devices', given).json['device_id']}"
    off = {"preferences": {"categories": {"marketing": False}, "types": {"POST_LIKE": False}}}
    changed = me.ask("PATCH", path, off)
    assert changed.status == 200, changed.body
    seen = server.app.get(path).json["preferences"]
    assert seen == changed.json["preferences"]
    assert (seen["enabled"], seen["quiet_hours"]) == (True, QUIET)
    assert [name for name, on in seen["categories"].items() if not on] == ["marketing"]
    assert seen["types"] == {"POST_LIKE": False}
    wrong = me.ask("PATCH", path, {"preferences": {"quiet_hours": [True], "types": {"NO": False}}})
    assert sorted(wrong.fields) == ["preferences.quiet_hours", "preferences.types.NO"]
    assert server.app.get(path).json["preferences"] == seen


def test_one_device_too_many_says_which_it_revoked(me: Asker) -> None:
    made = [me.post("/v1/devices", {"platform": "clarion"}).json for _ in range(4)]
    revoked = [each.get("revoked_device_id") for each in made]
    assert revoked == [None, None, None, made[0]["device_id"]]


def test_no_address_is_found_in_the_files_of_the_server(tmp_path: Path) -> None:
    """As with `strings`: not in the database, its write-ahead log, or the server's log."""
    installation = Installation(tmp_path)
    first = installation.initialise()
    with installation:
        app = Asker(installation.port, first["app"]["api_key"])
        for given in (
            {"platform": "ios", "token": "PLANTED" * 9},
            {"platform": "android", "token": "PLANTED:token"},
            subscribe("https://push.example.com/PLANTED"),
        ):
            for label in ("visible-label", "other-label"):  # registered, then refreshed
                once = {"Idempotency-Key": uuid.uuid4().hex}
                answer = app.post("/v1/devices", given | {"label": label}, headers=once)
                assert answer.status in {200, 201}, answer.body
        found = read_files(installation)  # while the server runs: most is in the log
    for text in (found, read_files(installation)):
        assert b"visible-label" in text or b"other-label" in text
        for planted in (b"PLANTED", b"planted", P256DH.encode(), AUTH.encode()):
            assert planted not in text


def read_files(installation: Installation) -> bytes:
    files = sorted(installation.data.glob("clarion.db*"))
    assert files
    return b"".join(each.read_bytes() for each in (*files, installation.log))
