"""The file of a backup: written whole or not at all, and every damage is found."""

import random
import zipfile
from pathlib import Path
from typing import cast

import msgspec
import pytest

from clarion.errors import ClarionError, CommandFailed, StartError
from clarion.store.backups.archive import (
    CHUNK_BYTES,
    FORMAT,
    Archive,
    ArchiveWriter,
    Manifest,
    Table,
)
from tests.replacing import replace

SEED = 20_261_117


def make_manifest(archive: ArchiveWriter) -> Manifest:
    return Manifest(
        format=FORMAT,
        engine="sqlite",
        clarion_version="1.2.3",
        as_of="2026-11-17T09:00:00.000Z",
        migrations=((1, "a"),),
        tables={"apps": Table(2), "users": Table(3)},
        master_keys={"aabbccdd": 1},
        members=archive.members,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small backup."""
    target = tmp_path / "one.backup"
    with ArchiveWriter(target) as archive:
        with archive.add("tables/apps") as write:
            write(b"first, ")
            write(random.Random(SEED).randbytes(3000))
        archive.finish(make_manifest(archive))
    return target


def test_what_is_written_is_read(path: Path) -> None:
    with Archive(path) as archive:
        content = b"".join(archive.read("tables/apps"))
        assert content == b"first, " + random.Random(SEED).randbytes(3000)
        assert (archive.manifest.rows, archive.manifest.members["tables/apps"].size) == (5, 3007)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600
    assert zipfile.ZipFile(path).testzip() is None


def test_a_backup_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "one.backup"
    with (
        pytest.raises(TypeError),
        ArchiveWriter(target) as archive,
        archive.add("tables/apps") as write,
    ):
        write(cast("bytes", None))  # what goes wrong
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_replaced(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(StartError, match="exists already"), ArchiveWriter(path):
        raise AssertionError
    assert path.read_bytes() == before


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "one.backup"
    with ArchiveWriter(target) as archive:
        target.write_text("of somebody else")
        with pytest.raises(StartError, match="exists already"):
            archive.finish(make_manifest(archive))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [
        ("one.backup", "of somebody else")
    ]


def test_every_flipped_bit_is_found(path: Path) -> None:
    content = path.read_bytes()
    for place in (*range(0, len(content), 5), len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(CommandFailed, match=r"is damaged|is not a backup"), Archive(path):
            raise AssertionError


def test_every_cut_is_found(path: Path) -> None:
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(CommandFailed), Archive(path):
            raise AssertionError


def test_a_backup_of_another_format_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "one.backup"
    with ArchiveWriter(target) as archive:
        archive.finish(msgspec.structs.replace(make_manifest(archive), format=2))
    with pytest.raises(CommandFailed, match="has the format 2"), Archive(target):
        raise AssertionError


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClarionError, match="Cannot read"), Archive(tmp_path / name):
        raise AssertionError


def test_the_manifest_is_read_as_it_was_sealed(tmp_path: Path) -> None:
    target = tmp_path / "one.backup"
    with ArchiveWriter(target) as archive:
        archive.finish(make_manifest(archive), lambda written: b"of %d" % len(written))
    with Archive(target) as opened:
        assert opened.read_seal() == b"of %d" % len(opened.written)
        assert msgspec.json.decode(opened.written, type=Manifest) == opened.manifest


def test_a_member_is_not_read_beyond_its_size(tmp_path: Path) -> None:
    """A file of a megabyte can be one of a gigabyte when it is unpacked."""
    target, read = tmp_path / "one.backup", 0
    with ArchiveWriter(target) as archive:
        with archive.add("tables/apps") as write:
            for _ in range(64):
                write(bytes(CHUNK_BYTES))
        small = replace(archive.members["tables/apps"], size=3 * CHUNK_BYTES)
        archive.members["tables/apps"] = small
        archive.finish(make_manifest(archive))
    with Archive(target) as opened:
        parts = opened.read("tables/apps")
        for _ in range(3):
            read += len(next(parts))
        with pytest.raises(CommandFailed, match="not as it was written"):
            next(parts)
    assert read == 3 * CHUNK_BYTES
