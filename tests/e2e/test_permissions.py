"""The data directory of a server: nobody but its account can read what is in it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """Whoever starts Clarion lets others read new files, as most accounts do."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def find_open(folder: Path) -> list[str]:
    """Return the files and directories that others may read."""
    return sorted(
        f"{each.relative_to(folder.parent)} {stat.S_IMODE(each.stat().st_mode):o}"
        for each in (folder, *folder.rglob("*"))
        if each.stat().st_mode & 0o077
    )


def use(installation: Installation, key: str) -> None:
    """Have the database written to, so that all its files are there."""
    assert Asker(installation.port, key).post("/v1/keys", {"label": "a", "scopes": ["*"]}).status


def test_everything_is_created_for_the_account_alone(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    key = installation.initialise()["app"]["api_key"]
    with installation:
        use(installation, key)
        assert {each.name for each in installation.data.glob("clarion.db*")} > {"clarion.db-wal"}
        assert find_open(installation.data) == []
    assert "permissions_tightened" not in installation.events()


def test_what_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    key = installation.initialise()["app"]["api_key"]
    for each in (installation.data, *installation.data.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    with installation:
        use(installation, key)
        assert find_open(installation.data) == []
    assert installation.events().count("permissions_tightened") == 1
    assert "master.key" in installation.log.read_text()


def test_a_database_elsewhere_is_closed_to_others_too(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o755)
    installation = Installation(tmp_path, database=f"sqlite:///{folder / 'my.db'}")
    key = installation.initialise()["app"]["api_key"]
    (folder / "my.db").chmod(0o664)
    (folder / "other").write_text("not ours")
    with installation:
        use(installation, key)
        assert find_open(folder) == ["elsewhere 755", "elsewhere/other 644"]
