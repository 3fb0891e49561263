"""The real server as a process: set up by `clarion init --json`, with every listener open."""

import json
import sys
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.conformance.provider import Provider
from tests.processes import Account, Daemon, Server, ServerUnavailableError, free_port

# Tests push by thousands; those that are about a limit set it themselves.
GENEROUS = {
    "requests-per-minute": "100000000",
    "device-messages-per-minute": "1000000",
    "log-level": "warning",
}


class ConformanceServer(Server):
    """One installation of Clarion on free ports. Flags are given without their dashes."""

    def __init__(self, **flags: str) -> None:
        super().__init__()
        self.tls_port = free_port()
        self.gateway_port = free_port()
        named = {name.replace("_", "-"): value for name, value in flags.items()}
        self._flags = GENEROUS | named

    def prepare(self, folder: Path) -> Daemon:
        self.data = folder / "data"
        card = json.loads(self._run(folder, "init", "--json"))
        self.provider = Provider.from_card(card["app"])
        self.ca_path = Path(card["tls"]["ca_path"])
        flags = [f"--{name}={value}" for name, value in self._flags.items()]
        command = [*self._command("serve"), *flags]
        return Daemon(command, folder, Account(), lambda _: is_ready(self.port))

    def _run(self, folder: Path, *words: str) -> str:
        done = Account().run(self._command(*words), folder)
        if done.returncode != 0:
            raise ServerUnavailableError(f"clarion {words[0]}: {done.stderr}")
        return done.stdout

    def _command(self, *words: str) -> list[str]:
        return [
            *(sys.executable, "-m", "clarion", *words, f"--data={self.data}"),
            f"--listen=127.0.0.1:{self.port}",
            f"--tls-listen=127.0.0.1:{self.tls_port}",
            f"--gateway-listen=127.0.0.1:{self.gateway_port}",
        ]


def is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
