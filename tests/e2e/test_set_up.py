"""The first run on whatever database is given, and nodes that join one."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from clarion.access.vault import key_id_of
from clarion.system.data_directory import DataDirectory
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.test_commands import faults_of


def saved_keys(installation: Installation) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads((installation.data / "first-run.json").read_bytes())
    return saved


def ask(installation: Installation, key: str) -> Any:
    return Asker(installation.port, key).get("/v1/keys")


async def count(url: str, table: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        found: int = await connection.fetchval(f"SELECT COUNT(*) FROM {table}")  # noqa: S608 - a constant
        return found
    finally:
        await connection.close()


def copy_master_key(installation: Installation, other: Installation) -> None:
    other.data.mkdir(mode=0o700, parents=True)
    shutil.copy(installation.data / "master.key", other.data)


async def test_a_server_sets_up_the_database_that_it_is_given(
    tmp_path: Path, postgres_database: str
) -> None:
    """After `make run` on SQLite, PostgreSQL gets keys of its own; the others are named."""
    on_sqlite = Installation(tmp_path)
    old = on_sqlite.initialise()["app"]["api_key"]
    installation = Installation(tmp_path, database=postgres_database)
    with installation:
        assert installation.events().count("set_up") == 1
        new = saved_keys(installation)["app"]["api_key"]
        assert new != old
        assert ask(installation, new).status == 200
        refused = ask(installation, old)
        assert refused.status == 401
        file = installation.data / "clarion.db"
        assert f"This API key is for SQLite {file}" in refused.problem["detail"]
        stranger = ask(installation, old[:-1] + ("A" if old[-1] != "A" else "B"))
        assert stranger.problem["detail"] == "This API key is not valid."
    name = postgres_database.rpartition("/")[2]
    done = installation.run("init")
    assert f"Clarion is set up on PostgreSQL {name} at " in done.stdout
    assert f"The keys of SQLite {file} are in " in done.stdout
    with installation:
        assert "set_up" not in installation.events()
    doctor = on_sqlite.run("doctor").stdout
    assert f"has keys of PostgreSQL {name} at " in doctor
    with on_sqlite:
        assert ask(on_sqlite, saved_keys(on_sqlite)["app"]["api_key"]).status == 200
        assert saved_keys(on_sqlite)["app"]["api_key"] == old
    assert "has keys of this database" in on_sqlite.run("doctor").stdout


async def test_a_command_says_which_database_its_refused_key_is_for(
    tmp_path: Path,
) -> None:
    here, there = Installation(tmp_path / "here"), Installation(tmp_path / "there")
    here.initialise()
    there.initialise()
    with there:
        done = here.run("publish", "news", "Hello", url=f"http://127.0.0.1:{there.port}")
    (fault,) = faults_of(done, 1)
    assert f"is for SQLite {here.data / 'clarion.db'}." in fault


async def test_two_nodes_that_start_together_set_up_a_database_once(
    tmp_path: Path, postgres_database: str
) -> None:
    nodes = [Installation(tmp_path / name, database=postgres_database) for name in ("a", "b")]
    DataDirectory(nodes[0].data).ensure()
    DataDirectory(nodes[0].data).ensure_master_keys()
    copy_master_key(nodes[0], nodes[1])
    with ThreadPoolExecutor(2) as threads:
        try:
            list(threads.map(Installation.start, nodes))
            assert sorted(each.events().count("set_up") for each in nodes) == [0, 1]
            (first,) = [each for each in nodes if "set_up" in each.events()]
            key = saved_keys(first)["app"]["api_key"]
            assert [ask(each, key).status for each in nodes] == [200, 200]
        finally:
            list(threads.map(Installation.stop, nodes))
    assert await count(postgres_database, "apps") == 1
    assert await count(postgres_database, "installation") == 1
    (second,) = [each for each in nodes if each is not first]
    (fault,) = faults_of(second.run("init"))
    assert "is set up already, but first-run.json with its first keys is missing" in fault


@pytest.mark.parametrize("words", [["serve"], ["init"], ["app", "list"]], ids=" ".join)
async def test_a_node_without_the_master_key_of_the_database_is_refused(
    tmp_path: Path, postgres_database: str, words: list[str]
) -> None:
    first = Installation(tmp_path / "first", database=postgres_database)
    first.initialise()
    (key,) = DataDirectory(first.data).read_master_keys()
    second = Installation(tmp_path / "second", database=postgres_database)
    (fault,) = faults_of(second.run(*words))
    assert f"the master key {key_id_of(key).hex()}, and there is no" in fault
    assert not (second.data / "master.key").exists()
    (second.data / "master.key").write_bytes(bytes(32))
    (fault,) = faults_of(second.run(*words))
    assert f"has the key {key_id_of(bytes(32)).hex()}. Copy master.key from another node" in fault
    shutil.copy(first.data / "master.key", second.data)
    assert second.run("app", "list").returncode == 0
