"""What keeps a server from starting: one line each, with what to do about it."""

import asyncio
import ctypes
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from tests.conftest import run_sql
from tests.e2e.checklist import read_checklist
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation, command, environment
from tests.e2e.test_commands import faults_of
from tests.processes import free_port

# One that starts the server, one that opens the database alone: the others do what these do.
COMMANDS = [["serve"], ["migrate"]]
NEWER = "INSERT INTO migrations (version, name, checksum) VALUES (9999, 'later', 'x')"


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture
def taken_ports() -> Iterator[list[int]]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        yield [each.getsockname()[1] for each in taken]


def test_every_port_that_is_in_use_is_named(
    installation: Installation, taken_ports: list[int]
) -> None:
    first, second = taken_ports
    done = installation.run(
        "serve", listen=f"127.0.0.1:{first}", gateway_listen=f"0.0.0.0:{second}"
    )
    advice = "is in use. Stop the program that uses it, or choose another port."
    assert faults_of(done) == [
        f"--listen: port {first} {advice}",
        f"--gateway-listen: port {second} {advice}",
    ]


def test_nothing_is_announced_at_a_port_that_is_in_use(
    installation: Installation, taken_ports: list[int]
) -> None:
    """`make run` ends with the sentence, and shows no URL of another program."""
    done = installation.run("init", "--greet", listen=f"127.0.0.1:{taken_ports[0]}")
    assert done.stdout == ""
    (fault,) = faults_of(done)
    assert fault.startswith(f"--listen: port {taken_ports[0]} is in use.")
    done = installation.run("serve", listen=f"127.0.0.1:{taken_ports[0]}")
    assert "ready" not in done.stdout + done.stderr


def test_two_listeners_that_meet_on_one_port_are_named(installation: Installation) -> None:
    port = installation.port
    done = installation.run("serve", listen=f"127.0.0.1:{port}", tls_listen=f"0.0.0.0:{port}")
    assert any(f"{port}" in fault for fault in faults_of(done))


def test_an_address_of_another_machine_is_named(installation: Installation) -> None:
    (fault,) = faults_of(installation.run("serve", listen="192.0.2.1:8080"))
    assert fault.startswith("--listen: cannot listen on 192.0.2.1:8080")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_data_directory_that_cannot_be_created_is_named(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "file").write_text("")
    installation = Installation(tmp_path / "file")
    (fault,) = faults_of(installation.run(*words))
    assert fault.startswith(
        f"Cannot create the data directory {tmp_path}/file/data: Not a directory."
    )
    assert "--data" in fault


def lose_roots_power() -> None:
    """Let permission bits bind root too: drop what lets it override them."""
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for capability in (override, read_search):
        ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o600], ids=oct)
def test_a_data_directory_of_another_account_is_named(
    installation: Installation, mode: int
) -> None:
    installation.data.mkdir()
    installation.data.chmod(mode)
    done = subprocess.run(
        command("serve", data=str(installation.data)),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lose_roots_power if os.geteuid() == 0 else None,
    )
    installation.data.chmod(stat.S_IRWXU)
    (fault,) = faults_of(done)
    assert str(installation.data) in fault
    assert "--data" in fault


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        ("app list", ""),
        ("key list APP", "clarion.db"),
        ("user token ana", "master.key.lock"),
        ("user-key list APP", "master.key"),
        ("app create Shop com.example.shop", "provider-keys"),
    ],
)
def test_a_command_on_what_belongs_to_another_account_is_one_sentence(
    installation: Installation, words: str, closed: str
) -> None:
    """As another account would see it: what is closed to it is named, without a traceback."""
    app_id = installation.initialise()["app"]["id"]
    path = installation.data / closed
    path.chmod(0)
    done = subprocess.run(
        command(*words.replace("APP", app_id).split(), data=str(installation.data)),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lose_roots_power if os.geteuid() == 0 else None,
    )
    path.chmod(stat.S_IRWXU)
    (fault,) = faults_of(done)
    assert str(path) in fault
    assert done.stdout == ""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_file_that_is_no_database_is_named(installation: Installation, words: list[str]) -> None:
    installation.data.mkdir(mode=0o700)
    (installation.data / "clarion.db").write_text("Dear diary, " * 1_000)
    (fault,) = faults_of(installation.run(*words))
    assert "clarion.db is not a SQLite database" in fault
    assert (installation.data / "clarion.db").read_text().startswith("Dear diary")


def test_a_database_in_a_folder_that_is_not_there_is_named(installation: Installation) -> None:
    (fault,) = faults_of(installation.run("serve", database="sqlite:////no/where/x.db"))
    assert "The directory /no/where does not exist: create it" in fault


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_database_of_a_newer_clarion_is_refused(
    installation: Installation, words: list[str]
) -> None:
    installation.run("migrate")
    connection = apsw.Connection(str(installation.data / "clarion.db"))
    connection.execute(NEWER)
    connection.close()
    (fault,) = faults_of(installation.run(*words))
    assert fault.startswith(
        "The database is at migration 9999, but this release of Clarion only knows up to "
    )
    assert "Start the newer release" in fault


async def test_a_postgresql_database_of_a_newer_clarion_is_refused(
    installation: Installation, postgres_database: str
) -> None:
    await asyncio.to_thread(installation.run, "migrate", database=postgres_database)
    await run_sql(postgres_database, NEWER)
    done = await asyncio.to_thread(installation.run, "serve", database=postgres_database)
    (fault,) = faults_of(done)
    assert fault.startswith("The database is at migration 9999")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_unreachable_postgresql_is_reported_without_the_password(
    installation: Installation, words: list[str]
) -> None:
    address = f"postgresql://ana:hunter2@127.0.0.1:{free_port()}/clarion"
    (fault,) = faults_of(installation.run(*words, database=address))
    assert fault.startswith("PostgreSQL cannot be reached")
    assert "hunter2" not in fault


def test_a_postgresql_elsewhere_needs_tls(
    installation: Installation, postgres_database: str
) -> None:
    """The address leads to this machine, but is not written like one of it."""
    elsewhere = postgres_database.replace("@127.0.0.1:", "@127.1:")
    assert elsewhere != postgres_database
    (fault,) = faults_of(installation.run("migrate", database=elsewhere))
    assert "offers no TLS" in fault
    assert "sslmode=disable" in fault
    (fault,) = faults_of(installation.run("migrate", database=f"{elsewhere}?sslmode=prefer"))
    assert fault.startswith("--database: sslmode=prefer could send the password")
    done = installation.run("migrate", database=f"{elsewhere}?sslmode=disable")
    assert done.returncode == 0, done.stderr


def test_a_missing_postgresql_database_is_reported(
    installation: Installation, postgres_url: str
) -> None:
    address = postgres_url.rpartition("/")[0] + "/nowhere"
    (fault,) = faults_of(installation.run("serve", database=address))
    assert 'database "nowhere" does not exist. Create it with: createdb' in fault


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ana:hunter2@127.0.0.1:port/clarion",
        "postgresql://ana:hunter2@[::1/clarion",
        "postgresql://ana:hunter2@127.0.0.1/clarion?sslmode=maybe",
        "postgresql://ana:hunter2@no.such.host.invalid/clarion",
    ],
)
def test_an_invalid_postgresql_url_is_reported(installation: Installation, address: str) -> None:
    for fault in faults_of(installation.run("migrate", database=address)):
        assert "--database" in fault
        assert "hunter2" not in fault


@pytest.mark.parametrize(
    "address", ["redis://:hunter2@127.0.0.1:port/0", "redis://:hunter2@[::1", "redis://h/x?y=z"]
)
def test_an_invalid_redis_url_is_reported(installation: Installation, address: str) -> None:
    for fault in faults_of(installation.run("serve", redis=address)):
        assert "--redis" in fault
        assert "hunter2" not in fault


def test_a_certificate_that_is_not_there_is_named(installation: Installation) -> None:
    done = installation.run("serve", tls_certificate="/no/where.pem", tls_key="/no/where.key")
    (fault,) = faults_of(done)
    assert fault.startswith("--tls-certificate, --tls-key: cannot use /no/where.pem")


def test_a_master_key_that_is_damaged_is_named(installation: Installation) -> None:
    installation.initialise()
    (installation.data / "master.key").write_bytes(b"short")
    (fault,) = faults_of(installation.run("serve"))
    assert "master.key must have 32 bytes, or 64 while the key is replaced. Restore it" in fault


# On PostgreSQL several servers may share: the lock is for SQLite.
@pytest.mark.parametrize("constellation", ["embedded"], indirect=True)
def test_a_second_server_on_the_same_folder_is_refused(server: Server, tmp_path: Path) -> None:
    second = Installation(tmp_path)
    done = second.run("serve", data=str(server.installation.data))
    assert server.installation.process is not None
    (fault,) = faults_of(done)
    assert fault == (
        f"Another Clarion server (process {server.installation.process.pid}) uses the data "
        f"directory {server.installation.data}. "
        "Stop it first, or choose another directory with --data."
    )


def test_the_doctor_finds_a_running_installation_well(server: Server) -> None:
    done = server.installation.run("doctor")
    findings = read_checklist(done)
    assert done.returncode == 0, done.stdout
    assert set(findings) == {
        "python",
        "directory",
        "disk",
        "database",
        "clock",
        "nodes",
        "vault",
        "keys",
        "audit log",
        "providers",
        "redis",
        "ports",
        "certificate",
        "descriptors",
    }
    assert "up to date" in findings["database"][1]
    assert findings["ports"] == (
        "ok",
        f"Clarion is running on 127.0.0.1:{server.installation.port}",
    )


def test_the_doctor_sees_a_port_in_use(installation: Installation, taken_ports: list[int]) -> None:
    done = installation.run("doctor", gateway_listen=f"127.0.0.1:{taken_ports[0]}")
    state, detail = read_checklist(done)["ports"]
    assert (done.returncode, state) == (1, "fault")
    assert f"--gateway-listen: port {taken_ports[0]} is in use → Stop the program" in detail


def test_the_doctor_changes_nothing(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    done = installation.run("doctor")
    assert done.returncode == 0
    assert "Run `clarion init`" in read_checklist(done)["directory"][1]
    assert not installation.data.exists()


def test_the_doctor_names_every_fault(installation: Installation) -> None:
    installation.data.mkdir(mode=0o700)
    (installation.data / "clarion.db").write_text("Dear diary, " * 1_000)
    (installation.data / "tls").mkdir()
    (installation.data / "tls" / "server.pem").write_text("nonsense")
    done = installation.run("doctor", redis=f"redis://127.0.0.1:{free_port()}/0")
    findings = read_checklist(done)
    assert done.returncode == 1
    faulty = {what for what, (state, _) in findings.items() if state == "fault"}
    assert faulty == {"database", "redis", "certificate"}


def test_the_doctor_sees_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = Installation(tmp_path / "file").run("doctor")
    assert done.returncode == 1
    assert read_checklist(done)["directory"][0] == "fault"


def test_the_doctor_sees_a_newer_database(installation: Installation) -> None:
    installation.run("migrate")
    connection = apsw.Connection(str(installation.data / "clarion.db"))
    connection.execute(NEWER)
    connection.close()
    state, detail = read_checklist(installation.run("doctor"))["database"]
    assert (state, detail[:36]) == ("fault", "The database is at migration 9999, b")


def test_the_doctor_cannot_reach_postgresql(installation: Installation) -> None:
    address = f"postgresql://ana:hunter2@127.0.0.1:{free_port()}/clarion"
    done = installation.run("doctor", database=address)
    assert done.returncode == 1
    assert read_checklist(done)["database"][0] == "fault"
    assert "hunter2" not in done.stdout + done.stderr


def test_ctrl_c_ends_a_server_in_order(installation: Installation) -> None:
    installation.initialise()
    installation.start()
    assert installation.process is not None
    installation.process.send_signal(2)
    assert installation.process.wait(30) == 0
    assert "stopped" in installation.events()
