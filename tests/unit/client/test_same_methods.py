"""The clients for Python and JavaScript have the same methods, and the same text of an error."""

import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clarion import client
from clarion.client.errors import read_error
from tests.node import find_node

MODULE = Path(__file__).resolve().parents[3] / "clients" / "js" / "clarion.js"
SHOW = """
const [path, problem] = process.argv.slice(1);
const module = await import(path);
const methods = ({ prototype }) => Object.getOwnPropertyNames(prototype);
console.log(JSON.stringify({
  Clarion: methods(module.Clarion),
  Inbox: methods(module.Inbox),
  functions: Object.keys(module).filter((name) => /^[a-z]/.test(name)),
  error: new module.ClarionError(422, JSON.parse(problem)).message,
}));
"""
# What one language has in its standard library, or does by itself.
OF_PYTHON = {
    "Clarion": {"close", "call", "download"},  # no pool to close; `fetch` does the other two
    "Inbox": {"close"},
}
PROBLEM: dict[str, Any] = {
    "code": "invalid_fields",
    "detail": "type: there is no such type",
    "errors": [
        {"field": "type", "reason": "there is no such type"},
        {"field": "priority", "reason": "must be one of:\nlow, medium"},
    ],
}


@pytest.fixture(scope="module")
def javascript() -> dict[str, Any]:
    command = [find_node().node, "--input-type=module", "--eval", SHOW]
    given = [str(MODULE), json.dumps(PROBLEM)]
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def public_methods(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Clarion", "Inbox"])
def test_the_methods_are_the_same(javascript: dict[str, Any], name: str) -> None:
    theirs = {snake_case(each) for each in javascript[name] if each != "constructor"}
    ours = public_methods(getattr(client, name))
    assert ours - OF_PYTHON[name] == theirs
    assert public_methods(getattr(client, f"Async{name}")) == ours


def test_the_functions_are_the_same(javascript: dict[str, Any]) -> None:
    ours = {name for name in client.__all__ if inspect.isfunction(getattr(client, name))}
    assert ours == {snake_case(each) for each in javascript["functions"]}


def test_an_error_is_one_line_with_status_code_and_fields(javascript: dict[str, Any]) -> None:
    text = str(read_error(422, None, json.dumps(PROBLEM).encode()))
    assert text == (
        "422 invalid_fields: type: there is no such type; priority: must be one of: low, medium"
    )
    assert javascript["error"] == text


def test_every_method_of_javascript_has_a_type(javascript: dict[str, Any]) -> None:
    types = MODULE.with_suffix(".d.ts").read_text()
    for name in ("Clarion", "Inbox"):
        (body,) = re.findall(
            rf"^export class {name} \{{\n(.*?)^\}}", types, re.MULTILINE | re.DOTALL
        )
        declared = set(re.findall(r"^  (\w+)[<(]", body, re.MULTILINE))
        assert declared == set(javascript[name])


def snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)
