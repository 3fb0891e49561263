"""Server processes of our own: which account runs them, where they live, when they are up."""

import fcntl
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests import fork_server
from tests.fork_server import Process, is_clarion

START_LIMIT_SECONDS = 100.0
STOP_LIMIT_SECONDS = 60.0
ORPHAN_LIMIT_SECONDS = 10.0
ASK_EVERY_SECONDS = 0.02
LOG_TAIL_CHARACTERS = 2_000

# Below the range from which the kernel gives ports to outgoing connections: a server that is killed
# and restarted must find its port free, however many clients the tests open in between.
PORTS = range(12_000, 32_000)
# Runs at the same time on one machine take a part each: a port that one of them has found free is
# soon used by a server.
RUNS = 4
RUN = "CLARION_TEST_PORTS"

# A socket's path has at most 107 characters, and our folder and PostgreSQL add their names.
LONGEST_SOCKET_FOLDER = 70


class ServerUnavailableError(Exception):
    """A server that tests need is not available; the text says why."""


# Given out already; whoever asked for them may not listen yet.
_GIVEN: set[int] = set()


def free_port() -> int:
    for port in random.sample([each for each in _own_ports() if each not in _GIVEN], 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _GIVEN.add(port)
            return port
    raise ServerUnavailableError(f"found no free port in {PORTS}")


@contextmanager
def own_part_of_ports() -> Iterator[None]:
    """Keep the ports of this run from other runs on this machine, while there are not too many."""
    with ExitStack() as stack:
        for number in range(RUNS):
            with suppress(OSError):
                path = Path(tempfile.gettempdir(), f"clarion-test-ports-{number}")
                fcntl.flock(stack.enter_context(path.open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.environ[RUN] = str(number)
                break
        yield
        os.environ.pop(RUN, None)


def _own_ports() -> Sequence[int]:
    """Return the ports of this process: workers of pytest-xdist that start together share none."""
    of_run = PORTS[int(os.environ.get(RUN, "0")) :: RUNS]
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return of_run[number :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account that runs a server; None is the one that runs the tests."""

    user: int | None = None
    group: int | None = None

    def run(self, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            user=self.user,
            group=self.group,
            extra_groups=self.extra_groups,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def extra_groups(self) -> list[int] | None:
        return None if self.user is None else []

    def own(self, folder: Path) -> None:
        if self.user is None or self.group is None:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.user, self.group, follow_symlinks=False)


def unprivileged() -> Account:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return Account()
    for name in ("postgres", "nobody"):
        for entry in pwd.getpwall():
            if entry.pw_name == name:
                return Account(user=entry.pw_uid, group=entry.pw_gid)
    raise ServerUnavailableError("root cannot run PostgreSQL, and there is no account `nobody`")


def environment(folder: Path) -> dict[str, str]:
    """Only this much: a stray PGPORT or LANG of the caller must not reach a server."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {"PATH": os.defpath, **kept, "HOME": str(folder), "LC_ALL": "C"}


class Daemon:
    """One server process that we start, wait for, and end."""

    def __init__(
        self, command: list[str], folder: Path, account: Account, is_ready: Callable[[int], bool]
    ) -> None:
        self._command = command
        self._folder = folder
        self._account = account
        self._is_ready = is_ready
        self._process: Process | None = None
        self._patience_seconds = 0.0

    def start(self) -> None:
        """Start and wait until it answers.

        After a kill, orphans of the old server may hold its memory for a moment longer, so that
        a start dies at once: then, and only then, it is tried again.
        """
        give_up = time.monotonic() + self._patience_seconds
        while not self._came_up():
            if time.monotonic() > give_up:
                raise ServerUnavailableError(
                    f"{self._command[0]} ended at once: {self._log_tail()}"
                )
            time.sleep(ASK_EVERY_SECONDS)

    def stop(self, polite: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(polite)
        try:
            self._process.wait(STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        self._patience_seconds = ORPHAN_LIMIT_SECONDS

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _came_up(self) -> bool:
        self._process = self._spawn()
        limit = time.monotonic() + START_LIMIT_SECONDS
        while self._process.poll() is None:
            if self._is_ready(self._process.pid):
                return True
            if time.monotonic() > limit:
                self.kill()
                raise ServerUnavailableError(f"{self._command[0]} is silent: {self._log_tail()}")
            time.sleep(ASK_EVERY_SECONDS)
        self._process = None
        return False

    def _spawn(self) -> Process:
        given = environment(self._folder)
        with self._log.open("ab") as log, Path(os.devnull).open() as nothing:
            if is_clarion(self._command):
                streams = [each.fileno() for each in (nothing, log, log)]
                return fork_server.start(self._command, given, streams, self._folder)
            return subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=given,
                stdin=nothing,
                stdout=log,
                stderr=log,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
                # Ctrl-C in the terminal is for pytest alone; it then ends the servers in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _log_tail(self) -> str:
        return self.log[-LOG_TAIL_CHARACTERS:]


class Server:
    """A daemon and its folder: `stop` keeps what it stored, `close` throws it away."""

    polite = signal.SIGTERM

    def __init__(self) -> None:
        self.port = free_port()
        self._folder: Path | None = None
        self._daemon: Daemon | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it and wait until it answers; the first time, make its folder and contents."""
        if self._daemon is None:
            self._folder = temporary_folder()
            self._daemon = self.prepare(self._folder)
        self._daemon.start()

    def stop(self) -> None:
        if self._daemon is not None:
            self._daemon.stop(self.polite)

    def kill(self) -> None:
        """SIGKILL: what was not yet durable is gone."""
        if self._daemon is not None:
            self._daemon.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered until `resume`."""
        if self._daemon is not None:
            self._daemon.send(signal.SIGSTOP)

    def resume(self) -> None:
        if self._daemon is not None:
            self._daemon.send(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.resume()
        self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self._daemon is not None
        return self._daemon.pid

    @property
    def log(self) -> str:
        """What the server has printed so far."""
        return self._daemon.log if self._daemon else ""

    def prepare(self, folder: Path) -> Daemon:
        raise NotImplementedError


def temporary_folder() -> Path:
    for base in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):  # noqa: S108
        if len(str(base)) < LONGEST_SOCKET_FOLDER and within_reach(base):
            return Path(tempfile.mkdtemp(prefix="clarion-", dir=base))
    raise ServerUnavailableError("found no temporary folder that other accounts can reach")


def within_reach(path: Path) -> bool:
    """Whether the unprivileged account gets there; only root has to run a server as another."""
    everybody = 0o001
    on_the_way = (path, *path.parents)
    return os.geteuid() != 0 or all(step.stat().st_mode & everybody for step in on_the_way)
