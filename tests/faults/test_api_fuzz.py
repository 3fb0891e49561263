"""T29: whatever is sent to any operation, nothing fails, and every answer is as documented.

Schemathesis reads the OpenAPI document of a real server and attacks each operation: with the key of
an app, with the token of a user, and with admin API keys of each role.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest

from clarion.access.model import Role
from tests.e2e.administrators import make_key
from tests.faults.clarion_server import ClarionServer
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
SEED = 29


@pytest.mark.parametrize("role", ["app", "user", *Role])
async def test_every_operation_answers_as_documented(
    tmp_path: Path, figures: Callable[[str], None], role: str
) -> None:
    async with ClarionServer(tmp_path) as server:
        code, output = await fuzz(server, await make_headers(server, role), tmp_path)
        assert await server.is_ready(), server.log_tail
        log = server.log_tail
    found = re.search(r"(\d+) generated.*", output)
    figures(f"T29 {role}: {found[0] if found else 'no summary'}")
    assert code == 0, output
    assert found is not None
    assert int(found[1]) > 1_000
    assert "request_failed" not in log


async def make_headers(server: ClarionServer, role: str) -> list[str]:
    """Return the headers of an app, a user, or an administrator with a role."""
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


async def fuzz(server: ClarionServer, headers: list[str], folder: Path) -> tuple[int, str]:
    """Run schemathesis on all operations; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        SCHEMATHESIS,
        f"--config-file={CONFIGURATION}",
        "run",
        f"http://127.0.0.1:{server.port}/openapi.json",
        *(f"--header={each}" for each in headers),
        "--checks=all",
        # JSON Schema cannot say all that our rules do: that a type exists, that a time zone does,
        # that two fields go together.
        "--exclude-checks=positive_data_acceptance",
        "--phases=examples,coverage,fuzzing,stateful",
        f"--max-examples={SIZES.fuzz_examples}",
        f"--seed={SEED}",
        "--continue-on-failure",
        "--request-timeout=30",
        "--generation-database=none",
        "--no-color",
        "--warnings=off",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")
