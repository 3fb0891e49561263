"""T09: backups are made while clients write, and restored elsewhere."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import apsw
import pytest

from tests.conftest import run_sql
from tests.faults.clarion_server import ClarionServer
from tests.faults.load import Load, find_faults, list_keys
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

FIRST = 300  # keys before the first backup


async def run(*arguments: str) -> str:
    """Run a command beside the load, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "clarion", *arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


@asynccontextmanager
async def own_database(engine: str, postgres_url: str, name: str) -> AsyncIterator[dict[str, str]]:
    """The environment of a server with a database of its own."""
    if engine == "sqlite":
        yield {}
        return
    await run_sql(postgres_url, f"CREATE DATABASE {name}")
    try:
        yield {"CLARION_DATABASE": urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))}
    finally:
        await run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


def flags_of(server: ClarionServer, environment: dict[str, str]) -> list[str]:
    database = environment.get("CLARION_DATABASE")
    return [f"--data={server.data}", *([f"--database={database}"] if database else [])]


def prepare(source: ClarionServer, folder: Path, environment: dict[str, str]) -> ClarionServer:
    """Return an empty place for a server with the keys of another."""
    folder.mkdir()
    target = ClarionServer(folder, environment=environment)
    target.app = source.app
    target.data.mkdir(mode=0o700)
    shutil.copy(source.data / "master.key", target.data)
    return target


async def restore(target: ClarionServer, file: Path, environment: dict[str, str]) -> float:
    """Restore a backup and serve it; return the seconds that took."""
    began = time.monotonic()
    assert "as of" in await run("restore", str(file), *flags_of(target, environment))
    if not environment:
        with apsw.Connection(str(target.data / "clarion.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    await target.start()
    return time.monotonic() - began


async def compare(target: ClarionServer, before: dict[str, str], load: Load) -> int:
    """Compare what is restored with what was accepted; return how much that is."""
    try:
        assert (await find_faults(target, before))[:20] == []
        restored = dict(await list_keys(target))
    finally:
        await target.kill()
    # What came later is there as it was answered, or not at all.
    for label in restored.keys() & load.accepted.keys():
        assert restored[label] == load.accepted[label]
    return len(restored)


SQLITE = pytest.param("sqlite", marks=[pytest.mark.core, pytest.mark.rest])


@pytest.mark.parametrize("engine", [SQLITE, "postgres"])
async def test_a_backup_under_load_has_everything_that_was_accepted_before_it(
    engine: str, tmp_path: Path, postgres_url: str, figures: Callable[[str], None]
) -> None:
    backup_s, restore_s, count = 0.0, 0.0, 0
    async with (
        own_database(engine, postgres_url, f"t09_{engine}") as environment,
        ClarionServer(tmp_path, environment=environment) as server,
    ):
        load = Load(server)
        async with load.running(SIZES.clients):
            for number in range(SIZES.backups):
                await load.reach(len(load.accepted) + FIRST)
                before, began = dict(load.accepted), time.monotonic()
                file = tmp_path / f"{number}.backup"
                await run("backup", str(file), *flags_of(server, environment))
                backup_s = max(backup_s, time.monotonic() - began)
                await load.reach(len(load.accepted) + 1)  # the server goes on
                async with own_database(engine, postgres_url, f"t09_r{number}") as elsewhere:
                    target = prepare(server, tmp_path / f"r{number}", elsewhere)
                    restore_s = max(restore_s, await restore(target, file, elsewhere))
                    count += await compare(target, before, load)
        assert await find_faults(server, load.accepted) == []
    figures(
        f"T09 {engine}: {SIZES.backups} backups under load, {count:,} keys restored; the longest "
        f"backup {backup_s:.2f} s (RPO: what was accepted since it began), the slowest restore up "
        f"to ready {restore_s:.2f} s (RTO)"
    )
