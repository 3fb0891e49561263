"""Schemas, templates and data of an app cannot freeze the server, whatever they are."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.sending import (
    draft,
    get_event,
    make_type,
    make_user,
    send,
    wait_for_event,
    wait_until,
)
from tests.lanes import limit_s

# The longest that another request may take meanwhile, on a loaded machine. Unlimited, each of these
# requests held the server for 1 to 40 s, or ended it.
STALL_S = limit_s(0.5)
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
}


@pytest.fixture
def app(server: Server) -> Asker:
    """An app of its own: it uses up its budget."""
    return server.with_key(server.make_app()["api_key"])


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    yield
    assert server.anyone.get("/health").json["status"] == "healthy"


def double(keyword: str, levels: int) -> dict[str, Any]:
    """Return a schema of which each level refers twice to the one below it."""
    definitions: dict[str, Any] = {"n0": {"type": "string"}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/n{level - 1}"}
        definitions[f"n{level}"] = {keyword: [below, below]}
    return {"properties": {"order": {"$ref": f"#/$defs/n{levels}"}}, "$defs": definitions}


def nest(event: dict[str, Any], levels: int) -> bytes:
    """Return a batch with an event of deep data between two others, as JSON."""
    good, deep = json.dumps(event), '{"child":' * levels + "{}" + "}" * levels
    bad = json.dumps(event | {"data": {"order": "A-7", "child": 0}}).replace("0}", f"{deep}}}")
    return f'{{"events": [{good}, {bad}, {good}]}}'.encode()


def ask_beside(server: Server, ask: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return the answer, and the longest time that `/health` took meanwhile."""
    longest = 0.0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        while not asked.done():
            began = time.monotonic()
            server.anyone.get("/health")
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.01)
        return asked.result(), longest


@pytest.mark.parametrize(("keyword", "levels"), [("allOf", 29), ("anyOf", 26), ("oneOf", 40)])
def test_a_schema_that_multiplies_itself_is_refused(app: Asker, keyword: str, levels: int) -> None:
    answer = app.ask("PUT", "/v1/types/DOUBLED", {"data_schema": double(keyword, levels)})
    assert answer.status == 422, answer.body[:200]
    assert answer.fields == ["data_schema"]
    reason = answer.problem["errors"][0]["reason"]
    assert reason.startswith("at #/$defs/n")
    assert "10,000" in reason


def test_integers_of_many_digits_are_refused(app: Asker) -> None:
    """To read and write those of one body took 70 ms, in which nobody else was served."""
    event = draft(make_type(app), user_id=make_user(app)) | {"data": {"order": "A-7", "n": 0}}
    numbers = "[" + ",".join(["9" * 4_000] * 250) + "]"
    for body in (json.dumps(event), json.dumps({"events": [event]})):
        path = "/v1/events/batch" if "events" in body else "/v1/events"
        answer = app.post(path, body.replace('"n": 0', f'"n": {numbers}').encode())
        assert b"Integer value out of range" in answer.body, answer.body[:300]
    assert app.post("/v1/events", event | {"data": {"order": "A-7", "n": 10**600}}).status == 202


def test_deep_data_is_refused_alone(app: Asker) -> None:
    good = draft(make_type(app, data_schema=TREE), user_id=make_user(app))
    refused = set()
    for levels in (100, 900, *range(960, 975)):
        answer = app.post("/v1/events/batch", nest(good, levels))
        assert answer.status == 202, (levels, answer.body)
        first, result, last = answer.json["results"]
        assert first["status"] == last["status"] == "pending"
        refused |= {(error["field"], result["code"]) for error in result.get("errors", ())}
    assert refused == {("data", "invalid_fields")}


@pytest.mark.parametrize(
    "body",
    ["{{" * 4_000, "{{" * 30_000, "{% raw %}" * 7_000, "{% if count %}" * 4_000],
    ids=["values", "more values", "raw", "ifs"],
)
def test_a_preview_does_not_stop_the_others(server: Server, body: str) -> None:
    reader = server.make_key("types:read")
    preview = "/v1/types/POST_LIKE/templates/in_app/preview"
    answer, longest = ask_beside(server, lambda: reader.post(preview, {"body": body}))
    assert (answer.status, answer.fields) == (422, ["body"])
    assert longest < STALL_S


def put_template(app: Asker, type_: str, language: str, body: str = "x") -> Answer:
    path = f"/v1/types/{type_}/templates/sms?language={language}"
    return app.ask("PUT", path, {"body": body})


def test_languages_and_text_of_a_type_are_limited(app: Asker) -> None:
    type_ = make_type(app)
    for number in range(50):
        language = f"{chr(97 + number // 26)}{chr(97 + number % 26)}"
        assert put_template(app, type_, language).status == 200
    answer = put_template(app, type_, "zz")
    assert (answer.status, answer.fields) == (422, ["language"])
    assert "at most 50 languages" in answer.problem["errors"][0]["reason"]
    large = make_type(app)
    statuses = [put_template(app, large, f"a{chr(97 + n)}", "x" * 65_000).status for n in range(18)]
    assert (statuses[:16], statuses[-1]) == ([200] * 16, 422)
    assert put_template(app, large, "aa", "shorter").status == 200


def test_a_recursive_schema_checks_data_within_its_time(app: Asker) -> None:
    part = {"required": ["no"], "properties": {"child": {"$ref": "#/$defs/node"}}}
    branching = {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [part, part]}}}
    good = draft(make_type(app), user_id=make_user(app))
    hostile = {**good, "type": make_type(app, data_schema=branching)}
    deep = json.loads(nest(hostile, 60))["events"][1]
    answer = app.post("/v1/events/batch", {"events": [good, deep, good]})
    first, refused, last = answer.json["results"]
    assert first["status"] == last["status"] == "pending"
    assert [error["field"] for error in refused["errors"]] == ["data"]
    assert "processor time" in refused["errors"][0]["reason"]


def find_reason(app: Asker, event_id: str) -> str | None:
    """Return why an event waits, or that it does not."""
    event = get_event(app, event_id)
    found: str | None = event["last_error"]
    return found or ("completed" if event["status"] == "completed" else None)


def test_time_that_is_used_up_is_429_for_the_app_alone(tmp_path: Path) -> None:
    installation = Installation(tmp_path, app_template_cpu_s="1")
    key = installation.initialise()["app"]["api_key"]
    with installation:
        app = Asker(installation.port, key)
        user = make_user(app)
        own = make_type(app, "{% assign n = 'a' %}{{ n | upcase }}")
        path = "/v1/types/POST_LIKE/templates/in_app/preview"
        busy = "{% for i in (1..999) %}{% assign x = i | times: 2 %}{% endfor %}" * 90
        # The time is per minute: if a new one has begun, the event is decided, and it starts again.
        for _ in range(3):
            answers = [app.post(path, {"body": busy}) for _ in range(40)]
            last = answers[-1]
            assert {each.status for each in answers} == {422, 429}
            assert (last.problem["code"], int(last.headers["retry-after"]) > 0) == (
                "too_many_requests",
                True,
            )
            # What needs no sandbox goes on, and what does need it waits.
            assert app.post(path, {}).status == 200
            waiting = send(app, {"type": own, "recipient": {"user_id": user}})
            plain = send(app, {"type": "POST_LIKE", "recipient": {"user_id": user}})
            assert wait_for_event(app, plain)["status"] == "completed"
            error = wait_until(partial(find_reason, app, waiting))
            if error != "completed":
                break
        assert "seconds of processor time" in error
        assert get_event(app, waiting)["status"] in {"pending", "processing"}
