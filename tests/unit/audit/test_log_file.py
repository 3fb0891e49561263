"""The file of the audit log: appended to, renamed, cut off, and read again."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clarion.audit.log_file import KEPT_FILES, LogFile, read_entries, read_line, write_line
from clarion.audit.model import ActorKind, AuditResult, Entry
from tests.factories import NOW


def make_entry(sequence: int) -> Entry:
    return Entry(
        id=f"id-{sequence}",
        app_id="app",
        created_at=NOW,
        actor_kind=ActorKind.API_KEY,
        actor_id="K",
        action="key.create",
        subject=None,
        target={"key_id": "a\nb\x1b[31m"},
        result=AuditResult.DONE,
        reason=None,
        address="192.0.2.1",
        request_id="r",
        node="node",
        signature="s",
        sequence=sequence,
        link=f"link-{sequence}",
    )


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "audit.log")


def sequences(path: Path) -> list[int | None]:
    return [entry.sequence if entry else None for _, entry in read_entries(path)]


def test_a_line_is_read_as_it_was_written_and_has_no_control_characters() -> None:
    line = write_line(make_entry(1))
    assert line.startswith(b'{"time":"2026-01-01T00:00:00.000Z",')
    assert line.count(b"\n") == 1
    assert b"\x1b" not in line
    assert read_line(line) == make_entry(1)


def test_entries_are_appended_once_for_this_account_alone(file: LogFile) -> None:
    file.append([make_entry(1), make_entry(2)])
    file.append([make_entry(2), make_entry(3)])
    assert sequences(file.path) == [1, 2, 3]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.find_last() == make_entry(3)


def test_an_empty_or_missing_file_has_no_last_entry(file: LogFile) -> None:
    assert file.find_last() is None
    file.path.touch()
    assert file.find_last() is None


@pytest.mark.parametrize("cut", [1, 2, 50])
def test_a_line_that_was_cut_off_is_written_again(file: LogFile, cut: int) -> None:
    file.append([make_entry(1), make_entry(2)])
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-cut])
    file.append([make_entry(2), make_entry(3)])
    found = [each for each in sequences(file.path) if each]
    assert found == [1, 2, 3]


def test_a_file_that_is_renamed_is_continued_in_a_new_one(file: LogFile) -> None:
    file.append([make_entry(1)])
    file.path.rename(f"{file.path}-20260101")
    assert file.find_last() == make_entry(1)
    file.append([make_entry(2)])
    assert sequences(file.path) == [2]
    assert file.find_last() == make_entry(2)


def test_a_large_file_is_renamed_and_so_many_are_kept(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "audit.log", rotated_bytes=1)
    for number in range(1, KEPT_FILES + 4):
        file.append([make_entry(number)])
        assert file.find_last() == make_entry(number)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == sorted(f"audit.log.{number}" for number in range(1, KEPT_FILES + 1))
    assert sequences(Path(f"{file.path}.1")) == [KEPT_FILES + 3]


def test_of_several_that_append_at_once_each_entry_is_written_once(tmp_path: Path) -> None:
    """As processes do that share the directory; each has the file renamed under it."""
    entries = [make_entry(number) for number in range(1, 201)]
    files = [LogFile(tmp_path / "audit.log", rotated_bytes=4_000) for _ in range(4)]

    def append_all(file: LogFile) -> None:
        for start in range(0, len(entries), 5):
            file.append(entries[start : start + 5])

    with ThreadPoolExecutor(len(files)) as threads:
        list(threads.map(append_all, files))
    kept = sorted(each or 0 for path in tmp_path.iterdir() for each in sequences(path))
    assert kept == list(range(kept[0], 201))
