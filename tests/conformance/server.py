"""The real server as a process: set up by `clarion init --json`, with every listener open."""

import json
import shutil
import socket
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.conformance.other_apps import OtherApps, add_other_apps
from tests.conformance.provider import Provider
from tests.fork_server import CLARION
from tests.processes import Account, Daemon, Server, ServerUnavailableError, free_port
from tests.stalls import find_stalls

# Tests push by thousands; those that are about a limit set it themselves.
GENEROUS = {
    "requests-per-minute": "100000000",
    "app-requests-per-minute": "100000000",
    "device-messages-per-minute": "1000000",
    "log-level": "warning",
}


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A data directory at rest, which servers start from copies of."""

    data: Path
    provider: Provider
    other_apps: OtherApps
    ca_path: Path


def install(folder: Path) -> Installation:
    data = folder / "data"
    done = Account().run([*CLARION, "init", "--json", f"--data={data}"], folder)
    if done.returncode != 0:
        raise ServerUnavailableError(f"clarion init: {done.stderr}")
    card = json.loads(done.stdout)
    provider = Provider.from_card(card["app"])
    return Installation(
        data=data,
        provider=provider,
        other_apps=add_other_apps(data, provider),
        ca_path=Path(card["tls"]["ca_path"]),
    )


class ConformanceServer(Server):
    """One installation of Clarion on free ports. Flags are given without their dashes."""

    def __init__(self, installation: Installation, **flags: str) -> None:
        super().__init__()
        self.tls_port = free_port()
        self.gateway_port = free_port()
        self.ca_path = installation.ca_path
        self._installed = installation.data
        named = {name.replace("_", "-"): value for name, value in flags.items()}
        self._flags = GENEROUS | named

    def prepare(self, folder: Path) -> Daemon:
        self.data = folder / "data"
        shutil.copytree(self._installed, self.data)
        where = {
            "data": str(self.data),
            "listen": f"127.0.0.1:{self.port}",
            "tls-listen": f"127.0.0.1:{self.tls_port}",
            "gateway-listen": f"127.0.0.1:{self.gateway_port}",
            "public-url": f"https://localhost:{self.tls_port}",
        }
        flags = [f"--{name}={value}" for name, value in (self._flags | where).items()]
        return Daemon([*CLARION, "serve", *flags], folder, Account(), lambda _: self._is_up())

    def close(self) -> None:
        """Stop it; it must never have blocked its event loop."""
        self.stop()
        stalls = find_stalls(self._daemon.log) if self._daemon else []
        super().close()
        assert stalls == []

    def _is_up(self) -> bool:
        # The plain listener may say that all is well while the others are still opening.
        others = (self.tls_port, self.gateway_port)
        return is_ready(self.port) and all(map(is_listening, others))


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
