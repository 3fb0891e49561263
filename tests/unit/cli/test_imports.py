"""What a command imports: a start of each of them is paid for by whoever waits for it."""

import subprocess
import sys

import pytest

SHOW = (
    "import sys, importlib; list(map(importlib.import_module, sys.argv[1:])); print(*sys.modules)"
)
COMMANDS = "admin app audit backup doctor init keys migrate send serve user"
# What `serve` imports when the process of its writer starts beside it.
SERVER = ("clarion.app.server", "clarion.cli.set_up")


def list_imported(*modules: str) -> set[str]:
    command = [sys.executable, "-c", SHOW, *modules]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        # The framework is for the management API, Liquid for the sandbox, Jinja for the dashboard.
        (COMMANDS, {"litestar", "liquid", "jinja2", "phonenumbers", "rich"}),
        ("serve", {"asyncpg", "pyreqwest", "jsonschema_rs"}),
    ],
)
def test_a_command_imports_only_what_it_needs(modules: str, unwanted: set[str]) -> None:
    imported = list_imported(*(f"clarion.cli.{each}" for each in modules.split()), *SERVER)
    assert "clarion.cli.flags" in imported
    assert unwanted & imported == set()


def test_the_writer_process_has_no_event_loop() -> None:
    imported = list_imported("clarion.store.sqlite.child")
    assert "apsw" in imported
    assert "asyncio" not in imported
