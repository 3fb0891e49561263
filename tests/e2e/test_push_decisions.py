"""What is decided for pushes, by the devices of the user, as a running server explains it."""

from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import ANY_HOUR, draft, explain, make_type, make_user, set_preferences

ALWAYS = [True] * 24


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def order(app: Asker) -> str:
    name = make_type(app, default_channels=["push"])
    assert app.ask("PUT", f"/v1/types/{name}/templates/push", {"body": "x"}).status in {200, 201}
    return name


@pytest.fixture
def user_id(app: Asker) -> str:
    name = make_user(app)
    set_preferences(app, name, quiet_hours=ANY_HOUR)
    return name


def register(app: Asker, user_id: str, **changes: Any) -> str:
    answer = app.post("/v1/devices", {"platform": "clarion", "user_id": user_id} | changes)
    assert answer.status == 201, answer.body
    return str(answer.json["device_id"])


def decided(app: Asker, order: str, user_id: str, **more: Any) -> tuple[str, str, str | None]:
    verdict = explain(app, draft(order, user_id=user_id) | more)["push"]
    return verdict["verdict"], verdict["reason"], verdict["until"]


def test_a_push_needs_a_device_that_wants_it(app: Asker, order: str, user_id: str) -> None:
    assert decided(app, order, user_id) == ("drop", "no_device", None)
    first = register(app, user_id, preferences={"enabled": False})
    assert decided(app, order, user_id) == ("drop", "devices_off", None)
    register(app, user_id, preferences={"types": {order: False}})
    assert decided(app, order, user_id) == ("drop", "devices_off", None)
    app.ask("PATCH", f"/v1/devices/{first}", {"preferences": {"enabled": None}})
    assert decided(app, order, user_id) == ("send", "allowed", None)
    app.post(f"/v1/devices/{first}/invalidate", {})
    assert decided(app, order, user_id) == ("drop", "devices_off", None)


def test_a_push_waits_for_the_first_device_that_is_not_quiet(
    app: Asker, order: str, user_id: str
) -> None:
    first = register(app, user_id, preferences={"quiet_hours": ALWAYS})
    assert decided(app, order, user_id) == ("hold", "quiet_hours", None)
    assert decided(app, order, user_id, priority="critical")[0] == "send"
    noon = {"at": "2026-12-01T12:30:00Z"}
    at_noon = [hour == 12 for hour in range(24)]
    register(app, user_id, preferences={"quiet_hours": at_noon}, timezone="UTC")
    until = "2026-12-01T13:00:00.000Z"
    assert decided(app, order, user_id, **noon) == ("hold", "quiet_hours", until)
    app.ask("PATCH", f"/v1/devices/{first}", {"preferences": {"quiet_hours": None}})
    assert decided(app, order, user_id, **noon) == ("send", "allowed", None)
