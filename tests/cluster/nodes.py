"""Several nodes of one installation: a process each, one database, and a balancer before them."""

import json
import shutil
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster.balancer import Balancer
from tests.e2e.installation import STOP_LIMIT_S, Installation

# Three nodes with the same settings.
NO_MORE: Sequence[dict[str, str]] = ({}, {}, {})
LISTENERS = ("listen", "tls_listen", "gateway_listen")
# What a node locks, logs or keeps for itself.
OWN_FILES = shutil.ignore_patterns("*.lock", "audit.log*", "clarion.db*")


class Node(Installation):
    """One of the nodes: it can be killed, paused and started again."""

    host = "127.0.0.1"

    def place(self, host: str, under: list[str]) -> None:
        """Let the node listen at another address, and be started by another command."""
        self.host, self.under = host, under
        for name in LISTENERS:
            port = self._flags[name].rpartition(":")[2]
            self._flags[name] = f"{host}:{port}"

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_LIMIT_S)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class Cluster(Installation):
    """An installation of several nodes, used like one of a single node.

    Its ports are those of the balancer. Commands run on the data directory of the first node. All
    nodes have the same keys, certificates and settings, as an operator would copy them.
    """

    def __init__(
        self, folder: Path, node_flags: Sequence[dict[str, str]] = NO_MORE, /, **flags: str
    ) -> None:
        """Make a node for each of `node_flags`; `flags` are added to all."""
        super().__init__(folder, **flags)
        # A process each: there are enough of them.
        shared = {"public_url": f"http://127.0.0.1:{self.port}", "processes": "1", **flags}
        self.nodes = [
            Node(_make_folder(folder / f"node-{number}"), **shared | more)
            for number, more in enumerate(node_flags, 1)
        ]
        self.data = self.nodes[0].data
        self._flags |= {"data": str(self.data), "public_url": shared["public_url"]}
        self._folder = folder
        self._running = ExitStack()

    @property
    def log(self) -> Path:
        """A file with what all nodes have printed up to now, one after the other."""
        texts = [node.log.read_bytes() for node in self.nodes if node.log.exists()]
        joined = self._folder / "log"
        joined.write_bytes(b"\n".join(texts))
        return joined

    def initialise(self) -> dict[str, Any]:
        """Set up the first node, and copy its data directory to the others."""
        first = super().initialise()
        for node in self.nodes[1:]:
            if not node.data.exists():
                shutil.copytree(self.data, node.data, ignore=OWN_FILES)
        return first

    def start(self) -> None:
        """Start the first node, which migrates the database, then the others, then the balancer."""
        try:
            self.nodes[0].start()
            for node in self.nodes[1:]:
                node.launch()
            for node in self.nodes[1:]:
                node.wait_until_ready()
            self._running.enter_context(self._balancer())
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End all nodes with SIGTERM; each must end in good order."""
        self._running.close()
        try:
            for node in self.nodes:
                if node.process is not None and node.process.poll() is None:
                    node.is_flooded = node.is_flooded or self.is_flooded
                    node.stop()
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill what runs, and say nothing about it."""
        self._running.close()
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait(STOP_LIMIT_S)

    @property
    def api_ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    def take_stalls(self) -> list[dict[str, Any]]:
        return [stall for node in self.nodes for stall in node.take_stalls()]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return what all nodes have logged under this name."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def _balancer(self) -> Balancer:
        return Balancer(
            {
                self.port: [(node.host, node.port) for node in self.nodes],
                self.tls_port: [(node.host, node.tls_port) for node in self.nodes],
                self.gateway_port: [(node.host, node.gateway_port) for node in self.nodes],
            }
        )


def _make_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
