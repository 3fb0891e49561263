"""@parse/node-apn behind a pipe, with the Node of this machine or the one that comes by pip."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.node import find_node, install

SOURCE = Path(__file__).parents[1] / "node"


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
    command = [node.node, str(SOURCE / "driver.js"), str(install(node, SOURCE))]
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
