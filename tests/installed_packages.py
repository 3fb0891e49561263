"""Packages of a lock file in a folder of their own, apart from those of the servers under test."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.node import only_one_at_a_time
from tests.processes import ServerUnavailableError

INSTALLED = Path(sys.prefix) / "other-packages"


def install(lock: Path) -> Path:
    """Return a folder with the packages of a lock file; made once, whoever comes first."""
    folder = INSTALLED / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    with only_one_at_a_time():
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _fill(unfinished, lock)
            unfinished.rename(folder)
    return folder


def _fill(folder: Path, lock: Path) -> None:
    options = [
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--target",
        str(folder),
    ]
    command = [*_find_installer(), "install", *options, "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerUnavailableError(f"{lock.name}: {done.stderr}")


def _find_installer() -> list[str]:
    """Return pip; if the environment was made without it, uv."""
    if Path(sys.prefix, "bin", "pip").exists():
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    return [str(Path(sys.executable).with_name("uv")), "pip"]
