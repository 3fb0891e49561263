"""The data directory: readable by its owner alone, written atomically, one server at a time."""

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from structlog.testing import capture_logs

from clarion.errors import StartError
from clarion.system.data_directory import DataDirectory, write_private


@pytest.fixture
def folder(tmp_path: Path) -> DataDirectory:
    folder = DataDirectory(tmp_path / "deep" / "data")
    folder.ensure()
    return folder


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_folders_are_for_this_account_alone(tmp_path: Path) -> None:
    folder = DataDirectory(tmp_path / "data")
    folder.ensure()
    assert [mode(each) for each in (folder.path, folder.tls, folder.provider_keys)] == [0o700] * 3


@pytest.mark.usefixtures("umask")
def test_a_private_file_is_for_this_account_alone(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", b"x")
    assert mode(tmp_path / "secret") == 0o600


def test_a_private_file_that_others_could_read_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (mode(path), path.read_bytes()) == (0o600, b"new")


def test_what_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = DataDirectory(tmp_path / "data")
    folder.ensure()
    for name in ("master.key", "clarion.db", "clarion.db-wal", "tls/server.key", "notes.txt"):
        (folder.path / name).write_bytes(b"x")
        (folder.path / name).chmod(0o664)
    (folder.tls / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"x")
    (tmp_path / "elsewhere").chmod(0o644)
    folder.path.chmod(0o755)
    with capture_logs() as logs:
        folder.ensure()
        folder.ensure()
    ours = ("", "master.key", "clarion.db", "clarion.db-wal", "tls/server.key")
    assert [mode(folder.path / name) & 0o077 for name in ours] == [0] * 5
    assert mode(folder.path / "notes.txt") == 0o664
    assert mode(tmp_path / "elsewhere") == 0o644
    assert [log["event"] for log in logs] == ["permissions_tightened"]
    assert len(logs[0]["paths"]) == 5


def test_a_directory_for_everybody_stays_that(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with capture_logs() as logs:
        DataDirectory(shared).ensure()
    assert mode(shared) == 0o1777
    assert [log["event"] for log in logs] == ["permissions_not_tightened"]


def test_no_half_file_is_left(tmp_path: Path) -> None:
    write_private(tmp_path / "a", b"1")
    write_private(tmp_path / "a", b"2")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_making_the_folder_again_changes_nothing(folder: DataDirectory) -> None:
    key = folder.ensure_master_keys()
    folder.ensure()
    assert folder.ensure_master_keys() == key


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StartError, match=r"Cannot create the data directory .*/file/data: Not a dir"
    ):
        DataDirectory(tmp_path / "file" / "data").ensure()


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StartError, match="Choose another with --data"):
        DataDirectory(tmp_path / "data").ensure()


def test_the_master_key_has_256_bits_and_is_made_once(folder: DataDirectory) -> None:
    (key,) = folder.ensure_master_keys()
    assert len(key) == 32
    assert DataDirectory(folder.path).ensure_master_keys() == (key,)
    assert mode(folder.path / "master.key") == 0o600


def test_two_folders_have_two_keys(tmp_path: Path) -> None:
    keys = set()
    for name in "ab":
        folder = DataDirectory(tmp_path / name)
        folder.ensure()
        keys.add(folder.ensure_master_keys())
    assert len(keys) == 2


def test_those_who_start_at_once_get_the_same_master_key(folder: DataDirectory) -> None:
    """Were each to use its own, what one has sealed could never be opened again."""
    starters = 16
    barrier = Barrier(starters)

    def start(_: int) -> tuple[bytes, ...]:
        barrier.wait()
        return DataDirectory(folder.path).ensure_master_keys()

    with ThreadPoolExecutor(starters) as threads:
        assert set(threads.map(start, range(starters))) == {folder.ensure_master_keys()}


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33, b"x" * 96])
def test_a_damaged_master_key_is_reported_and_not_changed(
    folder: DataDirectory, content: bytes
) -> None:
    path = folder.path / "master.key"
    path.write_bytes(content)
    with pytest.raises(StartError, match="must have 32 bytes"):
        folder.ensure_master_keys()
    assert path.read_bytes() == content


def test_there_may_be_two_master_keys(folder: DataDirectory) -> None:
    folder.write_master_keys((b"n" * 32, b"o" * 32))
    assert folder.ensure_master_keys() == (b"n" * 32, b"o" * 32)
    assert mode(folder.master_key) == 0o600


def test_reading_the_master_keys_creates_none(folder: DataDirectory) -> None:
    with pytest.raises(StartError, match=r"master\.key"):
        folder.read_master_keys()
    assert not folder.master_key.exists()


def test_keys_in_use_are_not_replaced(folder: DataDirectory) -> None:
    with (
        folder.use_keys(),
        folder.use_keys(),
        pytest.raises(StartError, match="Stop the server"),
        folder.replace_keys(),
    ):
        raise AssertionError
    with (
        folder.replace_keys(),
        pytest.raises(StartError, match="`clarion vault rotate` is running"),
        folder.use_keys(),
    ):
        raise AssertionError
    with folder.replace_keys():
        pass


def test_a_master_key_that_cannot_be_read_is_reported(folder: DataDirectory) -> None:
    (folder.path / "master.key").mkdir()
    with pytest.raises(StartError, match=r"Cannot read .*master\.key"):
        folder.ensure_master_keys()


def test_a_second_server_is_refused_and_the_first_is_named(folder: DataDirectory) -> None:
    with (
        folder.lock(),
        pytest.raises(StartError, match=rf"process {os.getpid()}\) uses the data directory"),
    ):
        DataDirectory(folder.path).lock()


def test_the_lock_ends_with_its_file(folder: DataDirectory) -> None:
    for _ in range(2):
        with folder.lock():
            pass
    assert (folder.path / "clarion.lock").read_text() == str(os.getpid())
