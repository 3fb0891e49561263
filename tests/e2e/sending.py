"""Sends events to a running server, and waits for their results."""

import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from tests.e2e.asking import Asker

T = TypeVar("T")
WAIT_LIMIT_S = 100.0
# Usually ten seconds. What is committed late is counted three minutes later.
COUNTED_LIMIT_S = 240.0
LOOK_EVERY_S = 0.02
ANY_HOUR = [False] * 24
UNDER_WAY = {"scheduled", "pending", "processing"}


def wait_until(look: Callable[[], T | None], limit_s: float = WAIT_LIMIT_S) -> T:
    """Call until something but None is returned."""
    give_up = time.monotonic() + limit_s
    while (found := look()) is None:
        assert time.monotonic() < give_up, f"nothing within {limit_s:g} s"
        time.sleep(LOOK_EVERY_S)
    return found


def make_user(app: Asker, *, quiet_hours: list[bool] | None = None, **fields: Any) -> str:
    """Create a user, by default without quiet hours."""
    name = f"p-{uuid.uuid4().hex}"
    assert app.ask("PUT", f"/v1/users/{name}", fields).status == 201
    set_preferences(app, name, quiet_hours=quiet_hours or ANY_HOUR)
    return name


def set_preferences(app: Asker, user_id: str, **fields: Any) -> None:
    answer = app.ask("PATCH", f"/v1/users/{user_id}/preferences", fields)
    assert answer.status == 200, answer.body


def set_stub(app: Asker, user_id: str, address: str) -> None:
    """Change the outcome that the stub channel has for a user."""
    answer = app.ask("PATCH", f"/v1/users/{user_id}", {"attributes": {"stub": address}})
    assert answer.status == 200, answer.body


def make_type(app: Asker, body: str = "{{ order }} is ready", **fields: Any) -> str:
    """Create a type with a template for the inbox."""
    name = f"ORDER_{uuid.uuid4().hex}"
    assert app.ask("PUT", f"/v1/types/{name}", fields).status == 200
    template = {"body": body, "variables": ["order"] if "{{ order }}" in body else []}
    answer = app.ask("PUT", f"/v1/types/{name}/templates/in_app", template)
    assert answer.status == 200, answer.body
    return name


def draft(type_: str, **recipient: Any) -> dict[str, Any]:
    return {"type": type_, "recipient": recipient, "data": {"order": "A-7"}}


def send(app: Asker, event: dict[str, Any], **headers: str) -> str:
    """Post an event, and return its id."""
    answer = app.post("/v1/events", event, headers=headers)
    assert answer.status == 202, answer.body
    assert set(answer.json) == {"event_id", "status", "created_at"}
    event_id: str = answer.json["event_id"]
    return event_id


def get_event(app: Asker, event_id: str) -> dict[str, Any]:
    answer = app.get(f"/v1/events/{event_id}")
    assert answer.status == 200, answer.body
    seen: dict[str, Any] = answer.json
    return seen


def wait_for_event(app: Asker, event_id: str) -> dict[str, Any]:
    """Wait until an event is decided for all its recipients, and return it."""

    def look() -> dict[str, Any] | None:
        seen = get_event(app, event_id)
        return None if seen["status"] in UNDER_WAY else seen

    return wait_until(look)


def send_and_wait(app: Asker, event: dict[str, Any]) -> dict[str, Any]:
    """Post an event, and return it when it is decided."""
    return wait_for_event(app, send(app, event))


def inbox(app: Asker, user_id: str) -> list[dict[str, Any]]:
    page = app.get(f"/v1/users/{user_id}/notifications?limit=100").json
    assert page["unread_count"] == sum(item["read_at"] is None for item in page["items"])
    items: list[dict[str, Any]] = page["items"]
    return items


def deliveries(app: Asker, notification_id: str) -> dict[str, dict[str, Any]]:
    """Return the deliveries of a notification by their channels."""
    answer = app.get(f"/v1/notifications/{notification_id}/deliveries")
    assert answer.status == 200, answer.body
    return {each["channel"]: each for each in answer.json["items"]}


def delivery(app: Asker, notification_id: str, *statuses: str) -> dict[str, Any]:
    """Wait until the stub's delivery has one of these statuses, and return it."""

    def look() -> dict[str, Any] | None:
        found = deliveries(app, notification_id)["stub"]
        return found if found["status"] in statuses else None

    return wait_until(look)


def timeline(app: Asker, notification_id: str) -> list[dict[str, Any]]:
    answer = app.get(f"/v1/notifications/{notification_id}/timeline")
    assert answer.status == 200, answer.body
    items: list[dict[str, Any]] = answer.json["items"]
    return items


def explain(app: Asker, event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the verdicts by their channels."""
    answer = app.post("/v1/explain", event)
    assert answer.status == 200, answer.body
    return {each["channel"]: each for each in answer.json["verdicts"]}
