"""The commands of the pages for people, run as they are written against a running server."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import environment

ROOT = Path(__file__).resolve().parents[2]
# Every command must succeed: curl too, when the server says no. Between two commands people take
# their time, and the server does its work.
PRELUDE = """set -eu
curl() { command curl --silent --show-error --fail-with-body "$@"; echo; sleep 0.5; }
"""
# A page, the heading its commands stand under, and what they must print.
PAGES = {
    "docs/how-to/send-events.md": (
        "# Send events",
        [
            "Bo commented on your post: “Nice!”",
            '"status":"cancelled"',
            '"status":"refused"',
            "idempotent-replayed: true",
            "Cy and 1 other liked your post",
            '"until":"2030-01-01T07:00:00.000Z"',
        ],
    ),
    "docs/quickstart.md": (
        "## Your first notification",
        ["Bo commented on your post: “Nice!”", '"verdict":"send"'],
    ),
    "README.md": (
        "## Your first notification",
        ["Bo commented on your post: “Nice!”", '"verdict":"send"'],
    ),
}


def commands(page: str, heading: str) -> str:
    """Return the shell blocks under a heading, to the next of its kind."""
    text = (ROOT / page).read_text()
    level = heading.partition(" ")[0]
    after = text.partition(f"{heading}\n")[2]
    section = re.split(rf"^{level} ", after, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert blocks, f"there are no commands under {heading}"
    return "\n".join(blocks)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_works(server: Server, page: str) -> None:
    heading, expected = PAGES[page]
    script = PRELUDE + commands(page, heading)
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{server.installation.port}")
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=server.installation.data.parent,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for each in expected:
        assert each in done.stdout
