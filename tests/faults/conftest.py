"""What the fault tests share: a quick place for files, and a server for hostile clients."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import Installation
from tests.faults.http.server import Target
from tests.servers import PostgresServer, RedisServer

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only a folder of our own is made in it


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one: crashed disks are rebuilt there by thousands.

    Nothing tested here rests on that disk; what it would have kept is worked out by `Disk`.
    """
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of its own, to be stopped, killed or cut off."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """The same of Redis."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server for hostile clients; at the end it must stop as if nothing had been."""
    installation = Installation(tmp_path_factory.mktemp("target"), requests_per_minute="100000000")
    installation.is_flooded = True
    first = installation.initialise()
    with installation:
        yield Target(installation, first["app"]["api_key"])
