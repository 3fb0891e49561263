"""What is measured: an installation, the real server as a process, and the baseline beside it."""

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
CONNECTIONS = 8
# Requests of all connections at a time, where a row does not say another number.
IN_FLIGHT = 512
# The bench asks what the server can do, not what its limits allow.
NO_LIMITS = (
    "--requests-per-minute=100000000",
    "--app-requests-per-minute=100000000",
    "--user-requests-per-minute=100000000",
    "--admin-requests-per-minute=100000000",
    "--device-messages-per-minute=100000000",
    "--app-messages-per-minute=1000000000",
)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A running server and its installation."""

    name: str
    installation: Installation
    device_ids: list[str]
    server: Server
    port: int
    gateway_port: int
    baseline: Server
    baseline_port: int

    def measure(
        self,
        requests: Request | Source,
        seconds: float,
        *,
        rate: float | None = None,
        total: int | None = None,
        in_flight: int = IN_FLIGHT,
        warm_up_s: float = WARM_UP_S,
    ) -> tuple[Result, float]:
        """Put a load on the server; return its result, and the server's CPU time per request."""
        load = _load(self.port, seconds, in_flight, rate=rate, total=total)
        return _measure(self.server, load, requests, warm_up_s)

    def measure_baseline(
        self, request: Request, seconds: float, *, in_flight: int = IN_FLIGHT
    ) -> tuple[Result, float]:
        """Put the same load on the baseline."""
        load = _load(self.baseline_port, seconds, in_flight)
        return _measure(self.baseline, load, request, WARM_UP_S)


def _load(
    port: int,
    seconds: float,
    in_flight: int,
    *,
    rate: float | None = None,
    total: int | None = None,
) -> Load:
    return Load(
        host=HOST,
        port=port,
        connections=CONNECTIONS,
        streams=in_flight // CONNECTIONS,
        duration_s=seconds,
        rate=rate,
        total=total,
    )


def _measure(
    server: Server, load: Load, requests: Request | Source, warm_up_s: float
) -> tuple[Result, float]:
    if warm_up_s:  # a run of its own, so that its CPU time is not counted either
        warm_up = replace(load, duration_s=warm_up_s, rate=None, total=None)
        run_in_process(warm_up, requests)
    before = server.usage().cpu_s
    result = run_in_process(load, requests)
    return result, (server.usage().cpu_s - before) / max(result.sent, 1)


@contextmanager
def on_sqlite(*, devices: int = 0, users: int = 0) -> Iterator[Deployment]:
    """Run a deployment on SQLite for as long as the block lasts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _deployment("SQLite", Path(folder), "", devices, users, 1) as deployment,
    ):
        yield deployment


@contextmanager
def on_postgres(*, devices: int = 0, users: int = 0, processes: int = 1) -> Iterator[Deployment]:
    """Run a deployment on PostgreSQL for as long as the block lasts."""
    name = "PostgreSQL" if processes == 1 else f"PostgreSQL, {processes} processes"
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer() as postgres,
        _deployment(name, Path(folder), postgres.url, devices, users, processes) as deployment,
    ):
        yield deployment


@contextmanager
def _deployment(
    name: str, folder: Path, database: str, devices: int, users: int, processes: int
) -> Iterator[Deployment]:
    data = [f"--data={folder}", f"--database={database}"]
    command = [sys.executable, "-m", "clarion", "init", "--log-level=warning", *data]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    installation = Installation.read(folder, database)
    device_ids = asyncio.run(installation.add_devices(devices))
    asyncio.run(installation.add_users(users))
    port, gateway_port, baseline_port = free_ports(3)
    flags = [*data, "--tls-listen=off", "--log-level=warning", *NO_LIMITS]
    addresses = [f"--listen={HOST}:{port}", f"--gateway-listen={HOST}:{gateway_port}"]
    addresses.append(f"--processes={processes}")
    serve = [sys.executable, "-m", "clarion", "serve", *flags, *addresses]
    compare = [sys.executable, "-m", "bench.baseline", *flags, f"--listen={HOST}:{baseline_port}"]
    with (
        serving(serve, f"http://{HOST}:{port}/ready") as server,
        serving(compare, f"http://{HOST}:{baseline_port}/ready") as baseline,
    ):
        yield Deployment(
            name=name,
            installation=installation,
            device_ids=device_ids,
            server=server,
            port=port,
            gateway_port=gateway_port,
            baseline=baseline,
            baseline_port=baseline_port,
        )
