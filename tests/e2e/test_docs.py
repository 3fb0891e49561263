"""Runs the commands of the guides against a server, as they are written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import Installation, command, environment

ROOT = Path(__file__).resolve().parents[2]
# Every command must succeed. The pause after each is the time a reader takes to type the next.
PRELUDE = f"""set -eu
curl() {{ {sys.executable} -m tests.e2e.curl "$@"; echo; sleep 0.3; }}
"""
# What an authenticator app does, for machines without oathtool.
OATHTOOL = f"""oathtool() {{ {sys.executable} -c "
import sys, time
from clarion.access.administrators.totp import STEP_MS, code_at, decode_secret
print(code_at(decode_secret(sys.argv[1]), int(time.time() * 1000) // STEP_MS))" "$3"; }}
"""
# For each page: the heading above its commands, and what they must print.
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
    "docs/how-to/publish.md": (
        "# Publish with one line",
        [
            '"topic":"backups"',
            '"title":"Nightly backup"',
            "idempotent-replayed: true",
            "accepted, event",
        ],
    ),
    "docs/how-to/audit.md": ("# Audit log", ['"action":"key.create"', '"scopes":"stats:read"']),
    "docs/how-to/analytics.md": (
        "# Analytics",
        ['"group":{"channel":"in_app","reason":"allowed"}', "Complete until"],
    ),
    "docs/how-to/users-and-preferences.md": (
        "# Users and preferences",
        [
            '"city":"São Paulo"',
            '"items":[{"id":"mia"',
            '"code":"email_taken"',
            '"status":"created"',
        ],
    ),
    "docs/how-to/privacy.md": (
        "# Delete, erase and export users",
        [
            '"exported_at"',
            '"restorable_until"',
            '"status":"erased"',
        ],
    ),
    "docs/how-to/segments.md": (
        "# Send to a segment",
        [
            '{"count":2}',
            '"notification_count":2',
            "Der Hafen ist offen",
            '"is_recipient":false',
        ],
    ),
    "docs/how-to/apps-and-keys.md": (
        "# Apps and keys",
        [
            "allowed origins  none",
            "order service",
            "live until",
            "https://shop.example.com",
            "AuthKey_",
            "Deleted Web shop.",
        ],
    ),
    "docs/how-to/user-tokens.md": (
        "# User tokens",
        ['"unread_count":', '"kind":"user"', '"user_id":"ana"'],
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
    """Return the shell blocks of a section."""
    text = (ROOT / page).read_text()
    level = heading.partition(" ")[0]
    after = text.partition(f"{heading}\n")[2]
    section = re.split(rf"^{level} ", after, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert blocks, f"no commands under {heading}"
    return "\n".join(blocks)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(server: Server, page: str) -> None:
    heading, expected = PAGES[page]
    printed = run_commands(PRELUDE + commands(page, heading), server.installation)
    for each in expected:
        assert each in printed


def test_the_commands_for_administrators_work(tmp_path: Path) -> None:
    """They begin with an installation that has no administrator."""
    installation = Installation(tmp_path)
    installation.initialise()
    script = PRELUDE + OATHTOOL + commands("docs/how-to/administrators.md", "# Administrators")
    clarion = shlex.join(command("init", **installation.flags))
    script = script.replace(".venv/bin/clarion init", clarion).replace("jar", f"{tmp_path}/jar")
    with installation:
        printed = run_commands(script, installation)
    expected = ['"stage":"needs_enrolment"', '"stage":"signed_in"', '"name":"Eva"', '"ended":1']
    for each in (*expected, '"username":"ben"', '"messages"'):
        assert each in printed


def run_commands(script: str, installation: Installation) -> str:
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{installation.port}")
    flags = {"data": str(installation.data), "database": installation.database_url}
    given = " ".join(f"--{name}={value}" for name, value in flags.items())
    script = script.replace("--data data", given)
    script = script.replace(".venv/bin/clarion", f"{sys.executable} -m clarion")
    script = script.replace("data/first-run.json", str(installation.data / "first-run.json"))
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=ROOT,
        # The texts in the inbox are not ASCII.
        env=environment(PYTHONUTF8="1", CLARION_DATA=str(installation.data)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
