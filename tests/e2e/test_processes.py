"""Several processes that share the listeners: `clarion serve --processes N`, on PostgreSQL."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from websockets.asyncio.client import ClientConnection

from clarion.settings import Settings
from tests.conftest import run_apart, run_sql
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation, command, environment
from tests.e2e.provider import headers_of, push
from tests.e2e.sending import wait_until
from tests.e2e.test_commands import faults_of
from tests.e2e.test_isolation import close_code
from tests.e2e.test_publish import listening, register, take

COUNT = 2
# Less than a device may have waiting.
STORED = 500
NAMES = {f"{Settings().server_id}-{number}" for number in (1, 2)}


class Group(Server):
    """A server of several processes."""

    @property
    def parent(self) -> int:
        assert self.installation.process is not None
        return self.installation.process.pid

    def list_children(self) -> list[int]:
        return list_children(self.parent)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return what was logged by this name."""
        text = self.installation.log.read_text(errors="replace").splitlines()
        lines = [json.loads(line) for line in text if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def connect_to(self, name: str) -> http.client.HTTPConnection:
        """Return an open connection to the process of this name; which one it is, is chance."""
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.installation.port, timeout=60)
            if ask_name(connection) == name:
                return connection
            connection.close()


def ask_name(connection: http.client.HTTPConnection) -> str:
    """Ask who answers on a connection, which stays open."""
    connection.request("GET", "/health")
    name: str = json.loads(connection.getresponse().read())["server_id"]
    return name


def list_children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for_end(*pids: int) -> None:
    wait_until(lambda: None if any(map(is_running, pids)) else True)


@pytest.fixture(scope="module")
def database(postgres_url: str) -> Iterator[str]:
    name = f"e2e_{uuid.uuid4().hex}"
    run_apart(run_sql(postgres_url, f"CREATE DATABASE {name}"))
    yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="module")
def group(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("group")
    # Devices connect again and again here, until the right process has them.
    limits = {"device_messages_per_minute": "100000", "device_failures": "0"}
    installation = Installation(folder, database=database, processes=str(COUNT), **limits)
    first = installation.initialise()
    with installation:
        group = Group(installation, first)
        yield group
        children = group.list_children()
        assert len(children) == COUNT
    assert not any(map(is_running, children))


def test_one_line_says_that_all_are_ready(group: Group) -> None:
    (ready,) = group.lines("ready")
    assert (ready["processes"], ready["server_id"]) == (COUNT, Settings().server_id)
    assert {line["process"] for line in group.lines("process_ready")} == {1, 2}
    assert "process" not in ready


def test_connections_are_spread_over_the_processes(group: Group) -> None:
    for name in NAMES:
        with closing(group.connect_to(name)) as connection:
            assert ask_name(connection) == name
            connection.request("GET", "/ready")
            assert connection.getresponse().status == 200


def test_whichever_is_asked_has_the_metrics_of_all(group: Group) -> None:
    for name in NAMES:
        with closing(group.connect_to(name)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        assert "clarion_processes 2\n" in text
        for number in (1, 2):
            assert f'clarion_store_units_total{{process="{number}"}}' in text
        assert text.count("# TYPE clarion_store_units_total") == 1


async def test_a_push_reaches_a_device_of_another_process(group: Group) -> None:
    """Also one that is not stored: it is forwarded at once, not found in the store later."""
    device = await asyncio.to_thread(register, group.app)
    for number in (1, 2):
        async with connected_to(group, device, number) as phone:
            for name in sorted(NAMES):
                await asyncio.to_thread(push_through, group, name, device["token"])
                assert (await take(phone))["payload"] == {"aps": {"alert": name}}


async def test_the_newest_connection_wins_over_all_processes(group: Group) -> None:
    device = await asyncio.to_thread(register, group.app)
    for first, second in ((1, 2), (2, 1)):
        codes: list[int | None] = []
        while not codes:
            async with (
                connected_to(group, device, first) as older,
                listening(group, device) as newer,
            ):
                if find_holder(group, newer) == second:
                    codes.append(await close_code(older))
                    await asyncio.to_thread(push_through, group, min(NAMES), device["token"])
                    await take(newer)
        assert codes == [4409]


@asynccontextmanager
async def connected_to(
    group: Group, device: dict[str, Any], number: int
) -> AsyncIterator[ClientConnection]:
    """Connect a device until it is connected to this process; which one it is, is chance."""
    while True:
        async with listening(group, device) as phone:
            if find_holder(group, phone) == number:
                yield phone
                return


def find_holder(group: Group, phone: ClientConnection) -> int:
    """Return the number of the process that has the other end of a connection."""
    ends = [f":{port:04X}" for port in (group.installation.gateway_port, phone.local_address[1])]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    (inode,) = [line[9] for line in lines if [line[1][8:], line[2][8:]] == ends]
    for line in group.lines("process_ready"):
        if is_open(line["pid"], f"socket:[{inode}]"):
            number: int = line["process"]
            return number
    raise AssertionError(lines)


def is_open(pid: int, name: str) -> bool:
    found = []
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(descriptor.readlink()))
    return name in found


def push_through(group: Group, name: str, device_token: str) -> None:
    """Push through the process of this name; the message is dropped if it finds no connection."""
    headers = headers_of(group.first["app"]) | {"apns-expiration": "0"}
    with closing(group.connect_to(name)) as connection:
        body = json.dumps({"aps": {"alert": name}})
        connection.request("POST", f"/3/device/{device_token}", body, headers)
        assert connection.getresponse().status == 200


def test_a_process_that_is_killed_is_started_again(group: Group) -> None:
    """Nothing that was accepted is lost, and clients of the other process notice nothing."""
    before = len(group.lines("process_ready"))
    device = register(group.app)
    accepted: list[str] = []
    stop = threading.Event()

    def push_on() -> None:
        while not stop.is_set() and len(accepted) < STORED:
            with suppress(OSError, http.client.HTTPException):  # of the process that was killed
                answer = push(group, device["token"], str(len(accepted)))
                if answer.status == 200:
                    accepted.append(answer.headers["apns-id"])

    def is_back() -> bool | None:
        assert ask_name(connection) == f"{Settings().server_id}-1"
        return True if len(group.lines("process_ready")) > before else None

    sender = threading.Thread(target=push_on)
    sender.start()
    try:
        wait_until(lambda: True if len(accepted) >= 10 else None)
        with closing(group.connect_to(f"{Settings().server_id}-1")) as connection:
            kill(find_process(group, 2))
            wait_until(is_back)
    finally:
        stop.set()
        sender.join()
    (ended,) = [line for line in group.lines("process_ended") if line["exit_code"] == -9]
    assert (ended["process"], ended["restart_in_s"]) == (2, 0.5)
    with closing(group.connect_to(f"{Settings().server_id}-2")):
        pass
    run_apart(receive(group, device, set(accepted)))


def find_process(group: Group, number: int) -> int:
    """Return the process that has this number now."""
    lines = [line for line in group.lines("process_ready") if line["process"] == number]
    pid: int = lines[-1]["pid"]
    return pid


async def receive(group: Group, device: dict[str, Any], ids: set[str]) -> None:
    """Connect a device until it has received these messages.

    There may be one more: it was stored by the process that was killed before it answered.
    """
    async with listening(group, device) as connection:
        while ids:
            ids.discard((await take(connection))["id"])


def test_processes_end_when_their_parent_is_killed(group: Group, tmp_path: Path) -> None:
    """Also one that can do nothing at that moment."""
    installation = Installation(tmp_path, **of_group(group))
    installation.start()
    other = Group(installation, {})
    one, two = other.list_children()
    try:
        os.kill(two, signal.SIGSTOP)
        kill(other.parent)
        wait_for_end(one)
        os.kill(two, signal.SIGCONT)
        wait_for_end(two)
    finally:
        for pid in (one, two, other.parent):
            with suppress(ProcessLookupError):
                kill(pid)
        assert installation.process is not None
        installation.process.wait()
    with socket.create_server(("127.0.0.1", installation.port)):
        pass


def test_a_server_that_is_stopped_while_it_starts_leaves_nothing(
    group: Group, tmp_path: Path
) -> None:
    installation = Installation(tmp_path, **of_group(group))
    process = subprocess.Popen(command("serve", **installation.flags), env=environment())
    children = wait_until(lambda: list_children(process.pid) or None)
    process.terminate()
    assert process.wait(30) == 0
    assert not any(map(is_running, children))


def test_a_port_that_is_in_use_is_named_once(database: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        installation = Installation(tmp_path, database=database, processes="2")
        done = installation.run("serve", listen=f"127.0.0.1:{port}")
    (fault,) = faults_of(done)
    assert fault.startswith(f"--listen: port {port} is in use.")


def test_the_port_of_several_processes_is_in_use(group: Group, tmp_path: Path) -> None:
    port = group.installation.port
    done = Installation(tmp_path).run("serve", listen=f"127.0.0.1:{port}")
    assert faults_of(done)[0].startswith(f"--listen: port {port} is in use.")


def test_what_keeps_all_from_starting_is_said_once(database: str, tmp_path: Path) -> None:
    missing = urlunsplit(urlsplit(database)._replace(path="/missing"))
    done = Installation(tmp_path, database=missing, processes="3").run("serve")
    assert len(faults_of(done)) == 1
    assert "missing" in faults_of(done)[0]
    assert "stopping" not in done.stderr


def test_several_processes_on_sqlite_are_refused(tmp_path: Path) -> None:
    (fault,) = faults_of(Installation(tmp_path, processes="2").run("serve"))
    assert fault.startswith("--processes: a SQLite database is used by one process; give 1, or")


def of_group(group: Group) -> dict[str, str]:
    """Return the flags of another server on the same database, with the same keys."""
    flags = group.installation.flags
    return {name: flags[name] for name in ("data", "database", "processes")}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
