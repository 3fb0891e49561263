"""An event on a channel without a text is refused, unless its type says it may be silent there."""

from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import (
    draft,
    explain,
    get_event,
    inbox,
    make_type,
    make_user,
    send_and_wait,
)

PATHS = ("/v1/events", "/v1/explain")


@pytest.fixture(scope="module")
def app(server: Server) -> Asker:
    return server.with_key(server.make_app()["api_key"])


@pytest.fixture(scope="module")
def user_id(app: Asker) -> str:
    return make_user(app)


def reasons(app: Asker, event: dict[str, Any], path: str = "/v1/events") -> dict[str, str]:
    """Send an event that is refused; return why, by field."""
    answer = app.post(path, event)
    assert (answer.status, answer.json.get("code")) == (422, "invalid_fields"), answer.body
    return {each["field"]: each["reason"] for each in answer.problem["errors"]}


@pytest.mark.parametrize("path", PATHS)
def test_a_type_without_any_template_takes_no_events(app: Asker, user_id: str, path: str) -> None:
    app.ask("PUT", "/v1/types/MUTE", {})
    assert reasons(app, draft("MUTE", user_id=user_id), path) == {
        "type": "MUTE has no template for in_app. "
        "Add one with PUT /v1/types/MUTE/templates/in_app, "
        "or list the channel in optional_channels of PUT /v1/types/MUTE"
    }
    assert app.get("/v1/events").json["items"] == []


def test_a_batch_refuses_only_the_events_without_a_text(app: Asker, user_id: str) -> None:
    app.ask("PUT", "/v1/types/MUTE", {})
    events = [draft(each, user_id=user_id) for each in ("MUTE", make_type(app))]
    refused, accepted = app.post("/v1/events/batch", {"events": events}).json["results"]
    assert (refused["status"], refused["errors"][0]["field"]) == ("refused", "type")
    assert accepted["status"] == "pending"


@pytest.mark.parametrize("path", PATHS)
def test_channels_that_the_event_names_must_have_a_text(
    app: Asker, user_id: str, path: str
) -> None:
    event = draft(make_type(app), user_id=user_id) | {"channels": ["in_app", "push", "email"]}
    (field,) = found = reasons(app, event, path)
    assert field == "channels"
    assert found[field].startswith(f"{event['type']} has no template for push, email. ")


def test_an_optional_channel_may_have_no_text(app: Asker, user_id: str) -> None:
    channels: dict[str, Any] = {
        "default_channels": ["in_app", "push"],
        "optional_channels": ["push"],
    }
    event = draft(make_type(app, **channels), user_id=user_id)
    before = len(inbox(app, user_id))
    assert send_and_wait(app, event)["status"] == "completed"
    assert len(inbox(app, user_id)) == before + 1
    assert app.get(f"/v1/types/{event['type']}").json["optional_channels"] == ["push"]


def test_only_optional_channels_may_have_no_text(app: Asker, user_id: str) -> None:
    channels: dict[str, Any] = {
        "default_channels": ["in_app", "push", "sms"],
        "optional_channels": ["push"],
    }
    event = draft(make_type(app, **channels), user_id=user_id)
    assert "has no template for sms. " in reasons(app, event)["type"]


def test_a_type_that_is_silent_everywhere_says_so_itself(app: Asker, user_id: str) -> None:
    app.ask("PUT", "/v1/types/COUNTED", {"optional_channels": ["in_app"]})
    event = draft("COUNTED", user_id=user_id)
    assert explain(app, event)["in_app"]["reason"] == "no_template"
    assert get_event(app, send_and_wait(app, event)["event_id"])["status"] == "completed"


@pytest.mark.parametrize("channel", ["stub", "webhook"])
def test_the_text_of_the_inbox_serves_other_programs(
    app: Asker, user_id: str, channel: str
) -> None:
    event = draft(make_type(app), user_id=user_id) | {"channels": [channel]}
    assert explain(app, event)[channel]["reason"] != "no_template"


def test_a_webhook_needs_the_variables_of_the_text_that_it_uses(app: Asker, user_id: str) -> None:
    event = draft(make_type(app), user_id=user_id) | {"channels": ["webhook"], "data": {}}
    assert reasons(app, event) == {"data.order": "is required by a template"}


@pytest.mark.parametrize("channel", ["in_app", "push", "email", "sms", "webhook", "stub"])
def test_built_in_types_have_a_text_for_every_channel(
    app: Asker, user_id: str, channel: str
) -> None:
    for each in app.get("/v1/types").json["items"]:
        if each["origin"] == "built_in":
            event = {"type": each["type"], "recipient": {"user_id": user_id}}
            shown = explain(app, event | {"channels": [channel]})
            assert shown[channel]["reason"] != "no_template"


def test_no_optional_channel_is_named_twice(app: Asker) -> None:
    answer = app.ask("PUT", "/v1/types/TWICE", {"optional_channels": ["push", "push"]})
    assert (answer.status, answer.fields) == (422, ["optional_channels"])
