"""T29: whatever is sent to any operation, nothing fails, and every answer is as documented.

Schemathesis reads the OpenAPI document of a real server and attacks each operation there is: with
the key of an app, the token of a user and an admin API key; at night also with less.
"""

import asyncio
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from clarion.access.model import Role
from tests.e2e.administrators import make_key
from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Connection
from tests.faults.sizes import SIZES

# It takes a second or two for each operation, of which there are more and more.
pytestmark = [pytest.mark.fault, pytest.mark.timeout(max(SIZES.timeout_s, 900))]

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
SEED = 29
ROOT = Path(__file__).parents[2]
# All checks but one, in place of which there is `tests.faults.fuzz_checks`: JSON Schema cannot say
# all that our rules do.
CHECKS = """
[checks]
enabled = true
positive_data_acceptance.enabled = false
"""
HOOKS = {"SCHEMATHESIS_HOOKS": "tests.faults.fuzz_checks", "PYTHONPATH": str(ROOT)}
STREAM = """
[[operations]]
include-path = "{path}"
enabled = false
"""
# A batch is answered with a result for each of its items: those that break the schema are refused
# one by one. What is published counts where it is given first: a faulty repeat is not looked at.
LENIENT = """
[[operations]]
include-path = "{path}"
checks.negative_data_rejection.enabled = false
"""
# Half of all requests cover the borders of each value. Where a role is refused before the request
# is looked at, that finds nothing: at night only.
REFUSED = """
[[operations]]
include-path = "{path}"
phases.coverage.enabled = false
"""
# Without its app an administrator would find nothing: schemathesis deletes what it has listed.
KEPT_APP = f"""
[[operations]]
include-name = "DELETE /v1/apps/{{app_id}}"
parameters = {{ app_id = "{uuid.UUID(int=0)}" }}
"""
NOT_FOR = {
    "app": re.compile(r"/v1/(me|admin|apps)\b"),
    "user": re.compile(r"/v1/(?!me\b|devices|caller)"),
    Role.ADMIN: re.compile(r"/v1/me\b"),
}


async def make_headers(server: ClarionServer, role: str) -> list[str]:
    """Return the headers of an app, a user, an administrator with a role, or a stranger."""
    if role == STRANGER:
        return ["Authorization: Bearer ck_00000000000000000000000000_unknown"]
    if role not in set(Role):
        credential = server.api_key if role == "app" else sign_user_token(server)
        return [f"Authorization: Bearer {credential}"]
    app = json.loads((server.data / "first-run.json").read_bytes())["app"]
    url = f"sqlite:///{server.data / 'clarion.db'}"
    key = await asyncio.to_thread(make_key, url, Role(role))
    return [f"Authorization: Bearer {key}", f"Clarion-App: {app['id']}"]


def sign_user_token(server: ClarionServer) -> str:
    app = json.loads((server.data / "first-run.json").read_bytes())["app"]
    now = int(time.time())
    claims = {"sub": "ana", "aud": app["id"], "exp": now + 3_600}
    return jwt.encode(claims, app["user_secret"], algorithm="HS256")


STRANGER = "stranger"
ROLES = ["app", "user", Role.ADMIN]
if SIZES.has_all_roles:
    ROLES += [Role.EDITOR, Role.VIEWER, STRANGER]


@pytest.mark.parametrize("role", ROLES)
async def test_every_operation_answers_as_documented(
    tmp_path: Path, figures: Callable[[str], None], role: str
) -> None:
    async with ClarionServer(tmp_path) as server:
        async with Connection(server.port) as connection:
            document = (await connection.ask("GET", "/openapi.json")).json
        tmp_path.joinpath("schemathesis.toml").write_text(CHECKS + "".join(exempt(document, role)))
        # A stranger is refused before the request is looked at.
        phases = "examples,coverage" if role == STRANGER else "examples,coverage,fuzzing,stateful"
        code, output = await fuzz(server, await make_headers(server, role), phases, tmp_path)
        assert await server.is_ready(), server.log_tail
        log = server.log_tail
    tested, found = re.search(r"Tested: (\d+)", output), re.search(r"(\d+) generated.*", output)
    figures(f"T29 {role}: {tested and tested[0]}, {found and found[0]}")
    assert code == 0, output
    assert tested is not None
    assert found is not None
    streams = sum(is_stream(each) for _, each in operations_of(document))
    assert int(tested[1]) == len([*operations_of(document)]) - streams
    assert int(found[1]) > 10 * int(tested[1])
    assert "request_failed" not in log


def operations_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def is_stream(operation: dict[str, Any]) -> bool:
    """Whether the response of an operation never ends."""
    return "text/event-stream" in json.dumps(operation["responses"])


def exempt(document: dict[str, Any], role: str) -> Iterator[str]:
    """Yield what schemathesis leaves out of an operation."""
    refused = None if SIZES.has_all_roles else NOT_FOR[role]
    yield from (
        REFUSED.format(path=each) for each in document["paths"] if refused and refused.match(each)
    )
    yield KEPT_APP
    for path, operation in operations_of(document):
        if is_stream(operation):
            yield STREAM.format(path=path)
        elif path.endswith("/batch") or path.startswith("/v1/publish/"):
            yield LENIENT.format(path=path)


async def fuzz(
    server: ClarionServer, headers: list[str], phases: str, folder: Path
) -> tuple[int, str]:
    """Run schemathesis on all operations; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        SCHEMATHESIS,
        f"--config-file={folder / 'schemathesis.toml'}",
        "run",
        f"http://127.0.0.1:{server.port}/openapi.json",
        *(f"--header={each}" for each in headers),
        f"--phases={phases}",
        f"--max-examples={SIZES.fuzz_examples}",
        f"--seed={SEED}",
        "--continue-on-failure",
        "--request-timeout=60",
        "--generation-database=none",
        "--no-color",
        "--warnings=off",
        cwd=folder,
        env={**os.environ, **HOOKS},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")
