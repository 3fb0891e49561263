"""The commands of the pages for people, run as they are written against a running server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import environment

ROOT = Path(__file__).resolve().parents[2]
# Every command must succeed. Between two of them people take their time, and the server works.
PRELUDE = f"""set -eu
curl() {{ {sys.executable} -m tests.e2e.curl "$@"; echo; sleep 0.3; }}
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
    script = script.replace("data/first-run.json", str(server.installation.data / "first-run.json"))
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=ROOT,
        # The words of the inbox are not ASCII.
        env=environment(PYTHONUTF8="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for each in expected:
        assert each in done.stdout
