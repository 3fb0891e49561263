"""A server that the tests of one module have for themselves, on SQLite."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import Installation


@contextmanager
def serve(folder: Path, **flags: str) -> Iterator[Server]:
    """Start a server with these flags, and stop it at the end."""
    installation = Installation(folder, **flags)
    first = installation.initialise()
    with installation:
        yield Server(installation, first)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server")) as found:
        yield found
