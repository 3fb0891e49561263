"""Where a command gets a passphrase from: a file, or the terminal. Never an argument."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from clarion.cli.flags import read_text
from clarion.errors import CommandFailed, StartError
from clarion.system.sealed_files import SHORTEST_PASSPHRASE


def read_passphrase(path: Path | None, *, is_new: bool) -> str:
    """Return the passphrase; a new one is asked for twice, and must be long enough."""
    given = read_text(path)
    if given is None:
        given = _ask(is_new=is_new)
    if is_new and len(given) < SHORTEST_PASSPHRASE:
        raise CommandFailed(f"A passphrase must have at least {SHORTEST_PASSPHRASE} characters.")
    return given


def _ask(*, is_new: bool) -> str:
    if not sys.stdin.isatty():
        raise StartError("This is not a terminal: give --passphrase-file FILE.")
    given = getpass.getpass("Passphrase of the keys: ")
    if is_new and getpass.getpass("The same again: ") != given:
        raise CommandFailed("These are two different passphrases.")
    return given
