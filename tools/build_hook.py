"""Adds `build.json` to a wheel or an sdist: from which commit it was built."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

# It is there only while a release is built.
from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found]
    BuildHookInterface,
)

PLACES = {"sdist": "src/clarion/build.json", "wheel": "clarion/build.json"}


class BuildHook(BuildHookInterface):  # type: ignore[misc]
    """What Hatchling calls. A wheel that is built from an sdist takes the file that is in it."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Make the file, if this folder is a clone."""
        commit = find_commit(Path(self.root))
        if commit is None:
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "build.json"
        path.write_text(json.dumps({"commit": commit}) + "\n")
        build_data["force_include"][str(path)] = PLACES[self.target_name]

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact: str) -> None:
        """Delete what was made for it."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def find_commit(root: Path) -> str | None:
    """Return the commit of a clone, with a mark if files were changed; None if it is no clone."""
    if not (root / ".git").exists():
        return None
    commit = ask_git(root, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = ask_git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{commit} with changes" if changed else commit


def ask_git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:  # no git here
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
