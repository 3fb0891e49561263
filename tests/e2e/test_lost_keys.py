"""A database whose master key is lost or another: nothing starts, and the doctor says why."""

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.checklist import read_checklist
from tests.e2e.installation import Installation, command, environment
from tests.e2e.test_commands import faults_of
from tests.e2e.test_start_faults import lose_roots_power
from tests.e2e.test_vault import findings_of

COMMANDS = (["serve"], ["init"], ["vault", "rotate"])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.rest)])
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    if request.param == "sqlite":
        return Installation(tmp_path)
    return Installation(tmp_path, database=request.getfixturevalue("postgres_database"))


@pytest.fixture
def first(installation: Installation) -> dict[str, Any]:
    return installation.initialise()


def test_a_lost_key_is_not_replaced(installation: Installation, first: dict[str, Any]) -> None:
    path = installation.data / "master.key"
    key = path.read_bytes()
    path.unlink()
    for words in COMMANDS:
        done = installation.run(*words)
        assert done.returncode == 2
        (fault,) = faults_of(done)
        assert str(path) in fault
        assert "backup" in fault
        assert not path.exists()
    assert findings_of(installation)["vault"].startswith(f"fault {path} is missing")
    path.write_bytes(key)
    path.chmod(0o600)
    with installation:
        assert Asker(installation.port, first["app"]["api_key"]).get("/v1/keys").status == 200


def test_another_key_is_refused(installation: Installation, first: dict[str, Any]) -> None:
    assert first
    path = installation.data / "master.key"
    path.write_bytes(b"x" * 32)
    (fault,) = faults_of(installation.run("serve"))
    assert "are encrypted with the master key" in fault
    assert str(path) in fault
    assert findings_of(installation)["vault"].startswith("fault")


def test_a_restored_database_with_the_wrong_key_is_refused(tmp_path: Path) -> None:
    source, target = Installation(tmp_path), Installation(tmp_path / "restored")
    source.initialise()
    file = tmp_path / "one.backup"
    assert source.run("backup", str(file)).returncode == 0
    assert target.run("restore", str(file), data=str(target.data)).returncode == 0
    (target.data / "master.key").write_bytes(b"x" * 32)
    (target.data / "master.key").chmod(0o600)
    (fault,) = faults_of(target.run("serve"))
    assert "are encrypted with the master key" in fault
    assert findings_of(target)["vault"].startswith("fault")
    shutil.copy(source.data / "master.key", target.data)
    assert findings_of(target)["vault"].startswith("ok")


def test_the_doctor_finds_a_directory_that_it_cannot_read(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.initialise()
    installation.data.chmod(0)
    done = subprocess.run(
        command("doctor", **installation.flags),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lose_roots_power if os.geteuid() == 0 else None,
    )
    installation.data.chmod(stat.S_IRWXU)
    assert done.returncode == 1, done.stderr
    found = {what: state for what, (state, _) in read_checklist(done).items()}
    assert (found["directory"], found["vault"], found["python"]) == ("fault", "fault", "ok")
