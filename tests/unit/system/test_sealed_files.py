"""Keys in a backup: only the passphrase opens them, and they go nowhere else."""

from pathlib import Path

import pytest

from clarion.errors import CommandFailed
from clarion.system.sealed_files import open_files, read_files, seal_files

PASSPHRASE = "correct horse battery"


def test_what_is_sealed_is_opened_by_the_passphrase_alone() -> None:
    block = seal_files({"master.key": b"secret" * 5}, PASSPHRASE)
    assert b"secret" not in block
    assert open_files(block, PASSPHRASE) == {"master.key": b"secret" * 5}
    with pytest.raises(CommandFailed, match="does not open"):
        open_files(block, "correct horse batteru")
    with pytest.raises(CommandFailed, match="does not open"):
        open_files(block[:-1] + bytes([block[-1] ^ 1]), PASSPHRASE)


@pytest.mark.parametrize("name", ["../master.key", "/etc/passwd", "tls/../../x"])
def test_no_file_is_written_outside_of_the_directory(name: str) -> None:
    with pytest.raises(CommandFailed, match="outside of the data directory"):
        open_files(seal_files({name: b""}, PASSPHRASE), PASSPHRASE)


def test_keys_and_certificates_are_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    for name in ("master.key", "clarion.db", "audit.log", "tls/ca.pem"):
        (tmp_path / name).write_text(name)
    assert set(read_files(tmp_path)) == {"master.key", "tls/ca.pem"}
