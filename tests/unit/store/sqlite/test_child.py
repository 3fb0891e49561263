"""The writer process: what its errors mean, and that a failed start leaves no process."""

from pathlib import Path

import apsw
import pytest

from clarion.errors import StoreUnavailable
from clarion.store.sqlite.child import classify
from clarion.store.sqlite.process import WriterProcess, begin_writer
from tests.contract.conftest import nothing_left


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.FullError, "full"),
        (apsw.BusyError, "unavailable"),
        (apsw.LockedError, "unavailable"),
        (apsw.NoMemError, "unavailable"),
        (apsw.IOError, "broken"),
        (apsw.CorruptError, "broken"),
        (apsw.NotADBError, "broken"),
    ],
)
def test_what_an_error_means_for_the_callers(error: type[apsw.Error], kind: str) -> None:
    trouble = classify(error("with a value in it: hunter2"))
    assert (trouble.kind, trouble.message) == (kind, error.__name__)


@pytest.mark.parametrize("path", ["missing/folder/x.db", "not-a-database"])
async def test_a_writer_that_cannot_open_the_database_leaves_nothing_behind(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "not-a-database").write_text("nonsense " * 1_000)
    broken: list[str] = []
    async with nothing_left():
        with pytest.raises(StoreUnavailable):
            await WriterProcess.start(str(tmp_path / path), broken.append)
    assert broken == []


async def test_a_process_that_was_begun_opens_the_database_when_it_is_told_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"
    async with nothing_left():
        begun = await begin_writer()
        assert not path.exists()
        writer = await WriterProcess.start(str(path), pytest.fail, begun)
        assert path.exists()
        await writer.close()


async def test_a_process_that_was_begun_for_nothing_ends_with_its_socket() -> None:
    async with nothing_left():
        begun = await begin_writer()
        begun.writer.close()
        assert await begun.process.wait() == 0
