"""One installation of Clarion: its folder, its ports, its commands, and its server."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import apsw

from tests import fork_server
from tests.conftest import run_apart, run_sql
from tests.fork_server import CLARION, Process, is_clarion
from tests.processes import free_port
from tests.stalls import find_stalls

# These are against hanging.
START_LIMIT_S = STOP_LIMIT_S = RUN_LIMIT_S = 100.0
ASK_EVERY_S = 0.02


class Installation:
    """What `clarion` makes of a folder. As a context, its server runs."""

    def __init__(self, folder: Path, **flags: str) -> None:
        self.data = folder / "data"
        self.port, self.tls_port, self.gateway_port = (free_port() for _ in range(3))
        self._log = folder / "log"
        self.process: Process | None = None
        self._stalls_taken = 0
        # Thousands of requests that end in one moment make the loop late, although none is long.
        self.is_flooded = False
        # A program that starts the server and the commands, with its options.
        self.under: list[str] = []
        # How many descriptors the server may open; None for what the machine allows.
        self.descriptors: int | None = None
        # Of the server, beside what `environment` has.
        self.variables: dict[str, str] = {}
        self._flags = {
            "data": str(self.data),
            "listen": f"127.0.0.1:{self.port}",
            "tls_listen": f"127.0.0.1:{self.tls_port}",
            "gateway_listen": f"127.0.0.1:{self.gateway_port}",
            # As many as the machine has processors would make each test with PostgreSQL slower.
            "processes": "1",
            **flags,
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        """What the server has printed since its last start."""
        return self._log

    @property
    def flags(self) -> dict[str, str]:
        """The settings of this installation."""
        return dict(self._flags)

    def set_flag(self, name: str, value: str) -> None:
        """Change a setting for the next start."""
        self._flags[name] = value

    @property
    def database_url(self) -> str:
        """Where its store is, for a test that plays another node."""
        return self._flags.get("database", f"sqlite:///{self.data / 'clarion.db'}")

    def execute(self, sql: str) -> None:
        """Change the database by hand, while no server runs."""
        if "database" in self._flags:
            run_apart(run_sql(self.database_url, sql))
            return
        connection = apsw.Connection(str(self.data / "clarion.db"))
        connection.execute(sql)
        connection.close()

    def run(self, *arguments: str, **flags: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this installation; `flags` are added to its own."""
        return run_command([*self.under, *command(*arguments, **self._flags | flags)])

    def answer(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that asks something, and type an answer."""
        return run_command(command(*arguments, **self._flags), stdin_text=text)

    def initialise(self) -> dict[str, Any]:
        """Run `clarion init --json` and return what it printed."""
        done = self.run("init", "--json")
        assert done.returncode == 0, done.stderr
        first: dict[str, Any] = json.loads(done.stdout)
        return first

    def start(self) -> None:
        """Start the server and wait until it has logged that it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process of the server."""
        self._stalls_taken = 0
        before = [*self.under, *self._limited()]
        with self._log.open("wb") as log, Path(os.devnull).open() as nothing:
            serve = [*before, *command("serve", **self._flags)]
            if is_clarion(serve) and not self.variables:
                streams = [each.fileno() for each in (nothing, log, log)]
                self.process = fork_server.start(serve, environment(), streams)
                return
            self.process = subprocess.Popen(
                serve,
                env=environment(**self.variables),
                stdin=nothing,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        assert self.process is not None
        give_up = time.monotonic() + START_LIMIT_S
        while "ready" not in self.events():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(ASK_EVERY_S)

    def _limited(self) -> list[str]:
        if self.descriptors is None:
            return []
        return ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "sh"]

    def stop(self) -> None:
        """End the server with SIGTERM: it must exit with 0 by itself and have logged no failure."""
        assert self.process is not None
        self.process.terminate()
        try:
            code = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        text = self.log.read_text()
        assert code == 0, text
        assert "stopped" in self.events()
        assert "request_failed" not in self.events(), text
        assert "Traceback" not in text, text
        stalls = self.take_stalls()
        assert stalls == [] or self.is_flooded, stalls

    def events(self) -> list[str]:
        """Return the names of what the server has logged so far."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]

    @property
    def api_ports(self) -> list[int]:
        """The port of each node."""
        return [self.port]

    def take_stalls(self) -> list[dict[str, Any]]:
        """Return how the server blocked its event loop since this was last asked."""
        stalls = find_stalls(self.log.read_text(errors="replace"))
        new, self._stalls_taken = stalls[self._stalls_taken :], len(stalls)
        return new


def command(*arguments: str, **flags: str) -> list[str]:
    given = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    return [*CLARION, *arguments, *given]


def run_clarion(*arguments: str, **flags: str) -> subprocess.CompletedProcess[str]:
    return run_command(command(*arguments, **flags))


def run_command(arguments: list[str], *, stdin_text: str = "") -> subprocess.CompletedProcess[str]:
    if is_clarion(arguments):
        return fork_server.run(arguments, environment(), stdin_text, RUN_LIMIT_S)
    return subprocess.run(
        arguments,
        env=environment(),
        input=stdin_text,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )


def environment(**more: str) -> dict[str, str]:
    """Only this much: a stray CLARION_… of the caller must not reach the program."""
    names = ("PATH", "PYTHONPATH", "HOME", "LANG")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    # Wide enough that no sentence is broken where a test looks for it.
    return {**kept, "COLUMNS": "400", **more}
