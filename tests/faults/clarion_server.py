"""The real server as a process of its own: set up, started, killed and started again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.faults.http_client import Connection
from tests.processes import free_port
from tests.stalls import find_stalls

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
ASK_EVERY_S = 0.02
LOG_TAIL_CHARACTERS = 2_000
WRITER = "clarion.store.sqlite.child"


class ServerFailedError(Exception):
    """The server did not start or stop; the text holds the end of its log."""


class ClarionServer:
    """One installation of Clarion in a folder, and the process that serves it."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.gateway_port = free_port()
        self.data = folder / "data"
        self.app: dict[str, Any] = {"api_key": ""}
        self._log = folder / "log"
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        # Thousands of requests that end in one moment make the loop late, although none is long.
        self.is_flooded = False

    async def __aenter__(self) -> Self:
        """Set the installation up and start it."""
        self._initialise()
        try:
            await self.start()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.kill()
        if error is None and not self.is_flooded:
            stalls = find_stalls(self._log.read_text(errors="replace"))
            assert not stalls, stalls

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def writer_pid(self) -> int:
        """The process that writes the database for the server."""
        for pid in self.family:
            if WRITER in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
        raise self._failed("has no writer process")

    @property
    def family(self) -> list[int]:
        """The server and its children."""
        lists = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [self.pid, *(int(child) for each in lists for child in each.read_text().split())]

    @property
    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]

    @property
    def events(self) -> list[str]:
        """What the server has logged since its last start."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [json.loads(line)["event"] for line in lines]

    async def start(self) -> float:
        """Start the server, wait until it is ready, and return the seconds that took.

        Seconds for which it was ready to run and the machine was busy with others do not count.
        """
        started = time.monotonic()
        with self._log.open("wb") as log:  # only the log of the last start is kept
            self._process = self._spawn("serve", *self._flags(), log=log)
        while not await self.is_ready():
            if self._process.poll() is not None:
                raise self._failed(f"ended with {self._process.returncode} while starting")
            if time.monotonic() - started > LIMIT_S:
                raise self._failed("is not ready")
            await asyncio.sleep(ASK_EVERY_S)
        return time.monotonic() - started - sum(map(_waited_for_processor_s, self.family))

    @property
    def api_key(self) -> str:
        """Of the first app."""
        key: str = self.app["api_key"]
        return key

    async def is_ready(self) -> bool:
        try:
            async with Connection(self.port) as connection:
                return (await connection.ask("GET", "/ready")).status == 200
        except (OSError, EOFError):
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self, *, with_writer: bool = False) -> None:
        """Kill the server; its writer process ends by itself when it notices, or is killed too."""
        if self._process is None:
            return
        if with_writer:
            os.kill(self.writer_pid, signal.SIGKILL)
        self._process.kill()
        await self.ended()

    async def ended(self) -> int:
        """Wait for the end of the process and return its exit code."""
        assert self._process is not None
        try:
            return await asyncio.to_thread(self._process.wait, LIMIT_S)
        except subprocess.TimeoutExpired:
            raise self._failed("does not end") from None

    def create_app(self, bundle_id: str) -> dict[str, Any]:
        """Create another app, and return it with its keys."""
        printed = self._log.with_name("app")
        with (
            printed.open("wb") as log,
            self._spawn(f"app create {bundle_id} {bundle_id}", log=log) as create,
        ):
            create.wait(LIMIT_S)
        if create.returncode != 0:
            raise self._failed(f"cannot create an app: {printed.read_text()}")
        app: dict[str, Any] = json.loads(printed.read_bytes())
        return app

    def _initialise(self) -> None:
        with self._log.open("wb") as log, self._spawn("init", log=log) as init:
            init.wait(LIMIT_S)
        if init.returncode != 0:
            raise self._failed("cannot be set up")
        self.app = json.loads((self.data / "first-run.json").read_bytes())["app"]

    def _flags(self) -> list[str]:
        return [
            f"--listen=127.0.0.1:{self.port}",
            f"--gateway-listen=127.0.0.1:{self.gateway_port}",
            "--tls-listen=off",
            "--processes=1",
            "--requests-per-minute=100000000",
            "--app-requests-per-minute=100000000",
        ]

    def _spawn(self, command: str, *flags: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "clarion", *command.split(), f"--data={self.data}", *flags],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def _failed(self, what: str) -> ServerFailedError:
        return ServerFailedError(f"the server {what}; its log ends with:\n{self.log_tail}")


def _waited_for_processor_s(pid: int) -> float:
    """As Linux counts it: nanoseconds run, nanoseconds ready to run, times run."""
    file = Path(f"/proc/{pid}/schedstat")
    return int(file.read_text().split()[1]) / 1e9 if file.exists() else 0.0
