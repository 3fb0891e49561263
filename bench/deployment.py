"""A site of the bench: an installation, and the real server that serves it as a process."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.installation import Installation
from bench.load import Load, Request, Result, Source, run_in_process
from bench.process import Server, free_ports, serving
from tests.servers import PostgresServer

WARM_UP_S = 1.5
HOST = "127.0.0.1"
# The bench asks what the server can do, not what its limits allow.
NO_LIMITS = (
    "--requests-per-minute=100000000",
    "--device-messages-per-minute=100000000",
    "--app-messages-per-minute=1000000000",
)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A server that runs."""

    name: str
    installation: Installation
    device_ids: list[str]
    server: Server
    port: int
    gateway_port: int

    def measure(
        self,
        requests: Request | Source,
        seconds: float,
        *,
        rate: float | None = None,
        total: int | None = None,
        warm_up_s: float = WARM_UP_S,
    ) -> tuple[Result, float]:
        """Put a load on the server; gives its result, and the server's CPU time a request."""
        load = Load(host=HOST, port=self.port, connections=8, streams=64, duration_s=seconds)
        if warm_up_s:  # a run of its own, so that its CPU time is not counted either
            run_in_process(replace(load, duration_s=warm_up_s), requests)
        before = self.server.usage().cpu_s
        result = run_in_process(replace(load, rate=rate, total=total), requests)
        return result, (self.server.usage().cpu_s - before) / max(result.sent, 1)


@contextmanager
def on_sqlite(*, devices: int = 0, people: int = 0) -> Iterator[Site]:
    """Have a site on SQLite for as long as the block lasts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _site("SQLite", Path(folder), "", devices, people) as site,
    ):
        yield site


@contextmanager
def on_postgres(*, devices: int = 0, people: int = 0) -> Iterator[Site]:
    """Have a site on PostgreSQL for as long as the block lasts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer() as postgres,
        _site("PostgreSQL", Path(folder), postgres.url, devices, people) as site,
    ):
        yield site


@contextmanager
def _site(name: str, folder: Path, database: str, devices: int, people: int) -> Iterator[Site]:
    data = [f"--data={folder}", f"--database={database}"]
    command = [sys.executable, "-m", "clarion", "init", "--log-level=warning", *data]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    installation = Installation.read(folder, database)
    device_ids = asyncio.run(installation.add_devices(devices))
    asyncio.run(installation.add_users(people))
    port, gateway_port = free_ports(2)
    flags = [f"--listen={HOST}:{port}", f"--gateway-listen={HOST}:{gateway_port}"]
    flags += ["--tls-listen=off", "--log-level=warning", *NO_LIMITS]
    command = [sys.executable, "-m", "bench.server", *data, *flags]
    with serving(command, f"http://{HOST}:{port}/ready") as server:
        yield Site(
            name=name,
            installation=installation,
            device_ids=device_ids,
            server=server,
            port=port,
            gateway_port=gateway_port,
        )
