"""PostgreSQL is killed at any moment of a start with three processes, and is back or stays away.

The server comes up, or says in one line why not.
"""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import run_apart, run_sql
from tests.e2e.asking import Asker
from tests.e2e.installation import ASK_EVERY_S, START_LIMIT_S, Installation
from tests.faults.sizes import SIZES
from tests.servers import PostgresServer

pytestmark = [pytest.mark.fault, pytest.mark.rest, pytest.mark.timeout(900)]

COUNT = 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@contextmanager
def starting(folder: Path, postgres: PostgresServer) -> Iterator[Installation]:
    """Begin a start on an empty database."""
    name = f"start_{uuid.uuid4().hex}"
    run_apart(run_sql(postgres.url, f"CREATE DATABASE {name}"))
    folder.mkdir()
    url = postgres.url.removesuffix("postgres") + name
    installation = Installation(folder, database=url, processes=str(COUNT))
    installation.launch()
    assert installation.process is not None
    try:
        yield installation
    finally:
        if installation.process.poll() is None:
            installation.process.terminate()
        installation.process.wait(START_LIMIT_S)


def wait_for(installation: Installation, event: str) -> None:
    """Wait until something is logged, or the server has ended."""
    assert installation.process is not None
    give_up = time.monotonic() + START_LIMIT_S
    while event not in installation.events() and installation.process.poll() is None:
        assert time.monotonic() < give_up, installation.log.read_text()
        time.sleep(ASK_EVERY_S)


def read_plain(installation: Installation) -> list[str]:
    """Return the lines that are not part of the log."""
    lines = installation.log.read_text().splitlines()
    return [line for line in lines if not line.startswith("{")]


def test_a_server_is_ready_when_all_of_it_is(tmp_path: Path, postgres: PostgresServer) -> None:
    with starting(tmp_path / "server", postgres) as installation:
        asker, status = Asker(installation.port), 0
        while status != 200:
            with suppress(OSError):
                status = asker.get("/ready").status
        assert installation.events().count("process_ready") == COUNT


def test_a_crash_after_the_first_process_does_not_end_the_server(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with starting(tmp_path / "server", postgres) as installation:
        wait_for(installation, "process_ready")
        postgres.stop_immediately()
        wait_for(installation, "process_ended")
        postgres.start()
        installation.wait_until_ready()
        assert read_plain(installation) == []


@pytest.mark.parametrize("is_back", [True, False], ids=["is back", "stays away"])
def test_a_start_succeeds_or_says_in_one_line_why_not(
    tmp_path: Path, postgres: PostgresServer, *, is_back: bool
) -> None:
    with starting(tmp_path / "whole", postgres) as installation:
        began = time.monotonic()
        wait_for(installation, "ready")
        whole_s = time.monotonic() - began
    results = []
    for number in range(SIZES.postgres_start_kills):
        with starting(tmp_path / str(number), postgres) as installation:
            time.sleep(whole_s * number / SIZES.postgres_start_kills)
            postgres.stop_immediately()
            try:
                if is_back:
                    postgres.start()
                    wait_for(installation, "ready")
                else:
                    assert installation.process is not None
                    wait_for_end_or_service(installation)
            finally:
                if not is_back:
                    postgres.start()
            results.append(describe(installation))
    assert {result for result in results if result not in ALLOWED} == set()


ALLOWED = {"serves", "one line"}


def wait_for_end_or_service(installation: Installation) -> None:
    """Wait until the server ends; one whose first process serves waits for the database."""
    assert installation.process is not None
    give_up = time.monotonic() + START_LIMIT_S
    while installation.process.poll() is None and "process_ready" not in installation.events():
        assert time.monotonic() < give_up, installation.log.read_text()
        time.sleep(ASK_EVERY_S)


def describe(installation: Installation) -> str:
    assert installation.process is not None
    plain = read_plain(installation)
    code = installation.process.poll()
    if code is None and not plain:
        return "serves"
    is_explained = len(plain) == 1 and plain[0].startswith("clarion: ")
    return "one line" if code == 2 and is_explained else f"{code}: {json.dumps(plain)}"
