"""What a reader has: a clone with an installation, and data."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.reader import Clone, environment
from tests.e2e.own_server import server

__all__ = ["server"]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The workers of a run share one."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    clone = Clone(shared / "reader")
    clone.prepare()
    return clone


@pytest.fixture(scope="session")
def data(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory as `clarion init` makes it, to be copied: no server has used it."""
    folder = tmp_path_factory.mktemp("initialised") / "data"
    subprocess.run(
        [clone.folder / ".venv" / "bin" / "clarion", "init", f"--data={folder}"],
        env=environment(clone.home),
        check=True,
    )
    return folder


@pytest.fixture
def folder(clone: Clone, tmp_path: Path) -> Path:
    """What a reader has after `git clone` and `make install`; what a page writes stays apart."""
    folder = tmp_path / "clarion"
    folder.mkdir()
    for each in clone.folder.iterdir():
        if each.name != "data":
            (folder / each.name).symlink_to(each)
    return folder
