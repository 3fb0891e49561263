"""A zero character, which PostgreSQL cannot store, in every text of every body of the API."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import STANDARD, Server

# Of a request that may be refused for what it names, but not fail.
SERVER_FAULT = 500


def list_bodies(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield each operation with bodies that have a zero character in one of their texts."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content and path.startswith("/v1/"):
                for body in list_spoiled(document, content["schema"], content["example"]):
                    yield method.upper(), re.sub(r"\{\w+\}", "zero", path), body


def list_spoiled(document: dict[str, Any], schema: dict[str, Any], example: Any) -> Iterator[Any]:
    """Yield the example with each of its texts spoiled, and with each field that it lacks."""
    yield from spoil_each(example)
    name = schema.get("$ref", "").rpartition("/")[2]
    fields = document["components"]["schemas"].get(name, schema).get("properties", {})
    if isinstance(example, dict):
        for field in fields.keys() - example.keys():
            yield {**example, field: "a\0b"}


def spoil_each(value: Any) -> Iterator[Any]:
    """Yield the value once for each text in it, with a zero character in that text."""
    if isinstance(value, str):
        yield f"{value}\0"
    elif isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            for spoiled in spoil_each(value[key]):
                changed = copy.copy(value)
                changed[key] = spoiled
                yield changed


@pytest.mark.parametrize("constellation", [STANDARD], indirect=True)
def test_no_zero_character_is_a_fault_of_the_server(server: Server) -> None:
    document = server.app.get("/openapi.json").json
    callers = [server.with_key(server.make_app()["api_key"]), server.make_admin()]
    faults, count = [], 0
    for method, path, body in list_bodies(document):
        for caller in callers:
            answer = caller.ask(method, path, body)
            count += 1
            if answer.status >= SERVER_FAULT:
                faults.append((method, path, body))
    assert faults == []
    assert count > 400
