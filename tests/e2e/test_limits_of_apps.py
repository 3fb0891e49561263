"""Schemas, templates and data of an app cannot freeze the server, whatever they are."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import draft, make_type, make_user

# The longest that another request may take meanwhile, on a loaded machine. Unlimited, each of these
# requests held the server for 1 to 40 s, or ended it.
STALL_S = 0.5
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


def test_deep_data_is_refused_alone(app: Asker) -> None:
    good = draft(make_type(app, data_schema=TREE), user_id=make_user(app))
    refused = set()
    for levels in (100, 900, *range(960, 977)):
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
