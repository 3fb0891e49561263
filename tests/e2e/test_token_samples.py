"""The samples that sign user tokens, run as they are in the guide."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import environment
from tests.node import find_node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "user-tokens.md"
# Not every machine has PHP. The sample was run with PHP 8.2 as it is; if it is changed, run this
# test where PHP is, and take the new hash.
RUN_WITH_PHP = "aca8af1937bbbb96c0085bc2ec51e031b6f17314b35cc5e4508fec7a2af552ad"


def find_sample(language: str) -> str:
    """Return the first block of a language that signs a token."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (sample,) = [block for block in blocks if "USER_SECRET" in block]
    return str(sample)


def run_sample(server: Server, command: list[str], sample: str) -> str:
    app = server.first["app"]
    done = subprocess.run(
        command,
        input=sample,
        env=environment(APP_ID=app["id"], USER_SECRET=app["user_secret"]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("language", ["python", "js"])
def test_a_sample_signs_a_token_that_is_accepted(server: Server, language: str) -> None:
    interpreter = sys.executable if language == "python" else str(find_node().node)
    token = run_sample(server, [interpreter, "-"], find_sample(language))
    caller = server.with_key(token).get("/v1/caller")
    assert caller.json["user_id"] == "ana"


def test_the_sample_in_php_is_the_one_that_was_run(server: Server) -> None:
    sample = find_sample("php")
    assert hashlib.sha256(sample.encode()).hexdigest() == RUN_WITH_PHP
    if php := shutil.which("php"):
        token = run_sample(server, [php], sample)
        assert server.with_key(token).get("/v1/caller").json["user_id"] == "ana"
