"""Clients generated from the OpenAPI document compile, and do what their types say."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.generator import install_generator
from tests.e2e.conftest import Server
from tests.node import find_node, install

# The document is the same whatever the store is.
pytestmark = pytest.mark.parametrize("constellation", ["embedded"], indirect=True)
HERE = Path(__file__).parent
NODE = HERE / "node"
LIMIT_S = 110
TYPESCRIPT_OPTIONS = ("--strict", "--noEmitOnError", "--target", "es2022", "--module", "nodenext")


@pytest.fixture
def document(server: Server, tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_bytes(server.anyone.get("/openapi.json").body)
    return path


@pytest.fixture
def given(server: Server) -> list[str]:
    """What a scenario is called with: the URL, an API key, and a user of its own."""
    user = uuid.uuid4().hex
    assert server.app.ask("PUT", f"/v1/users/{user}", {"name": "Ana"}).status == 201
    url = f"http://127.0.0.1:{server.installation.port}"
    return [url, server.first["app"]["api_key"], user]


def run(folder: Path, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(result: dict[str, Any]) -> None:
    assert result == {
        "accepted": "pending",
        "title": True,
        "unread_before": True,
        "read_at": "string",
        "unread_count": 0,
        "status": 422,
        "code": "invalid_fields",
        "fields": ["type"],
    }


def test_a_python_client(document: Path, given: list[str], tmp_path: Path) -> None:
    env = {"PYTHONPATH": os.pathsep.join([str(install_generator()), str(tmp_path)])}
    options = ("--meta", "none", "--fail-on-warning", "--config", HERE / "generator.yaml")
    generate = (sys.executable, "-m", "openapi_python_client", "generate")
    target = tmp_path / "clarion_api"
    run(tmp_path, *generate, *options, "--path", document, "--output-path", target, env=env)
    scenario = HERE / "generated_scenario.py"
    check(json.loads(run(tmp_path, sys.executable, scenario, *given, env=env)))


def test_a_typescript_client(document: Path, given: list[str], tmp_path: Path) -> None:
    node = find_node()
    packages = install(node, NODE) / "node_modules"
    (tmp_path / "node_modules").symlink_to(packages)
    for name in ("package.json", "scenario.ts"):
        shutil.copy(NODE / name, tmp_path)
    types = tmp_path / "api.d.ts"
    run(tmp_path, node.node, packages / "openapi-typescript/bin/cli.js", document, "-o", types)
    compiler = packages / "typescript/bin/tsc"
    run(tmp_path, node.node, compiler, *TYPESCRIPT_OPTIONS, "scenario.ts")
    check(json.loads(run(tmp_path, node.node, "scenario.js", *given)))
