"""The copy of a database: table by table, each batch committed together with the progress.

A killed copy continues after the last committed batch. If the source was used since, it starts
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clarion.errors import CommandFailed
from clarion.store.copying.source import BATCH_ROWS, Source
from clarion.store.copying.tables import Checksum, CopiedTable
from clarion.store.copying.target import Progress, Target
from clarion.store.statement import Row

_ID_BYTES = 8
_NUL, _REPLACEMENT = "\x00", "\ufffd"


@dataclass(frozen=True, slots=True)
class Watch:
    """A callback for the progress of a copy: with the table and the number of copied rows."""

    on_copied: Callable[[CopiedTable, int], None]
    on_verified: Callable[[CopiedTable, int], None]
    on_restart: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy, over all its runs."""

    tables: int
    rows: int
    # Texts with characters that PostgreSQL cannot hold, in this run.
    changed_texts: int


class DataCopy:
    """Copies a SQLite database into an empty PostgreSQL database."""

    def __init__(
        self, source: Source, target: Target, watch: Watch, *, batch_rows: int = BATCH_ROWS
    ) -> None:
        self._source = source
        self._target = target
        self._watch = watch
        self._batch_rows = batch_rows
        self._changed = 0

    async def run(self) -> Copied | None:
        """Copy everything that is not copied yet; None if an earlier run has finished.

        `CommandFailed` if the target is not empty, or differs at the end.
        """
        found = self._source.read_installation()
        if found is None:
            raise CommandFailed("The database has no id yet. Run `clarion init` with it first.")
        id_, seal, created_at, former = found
        await self._target.prepare()
        # It was killed at the very end, and nobody has opened either database since.
        if former is not None and await self._target.find_finished() == former:
            return None
        tables = self._source.list_tables()
        await self._target.check_columns(tables)
        copy_id = await self._begin()
        begun = await self._target.read_progress()
        for table in tables:
            await self._copy(copy_id, table, begun.get(table.name, Progress()))
        done = await self._target.read_progress()
        rows = [await self._verify(table, done[table.name].copied) for table in tables]
        await self._target.finish(copy_id, id_, seal, created_at)
        return Copied(len(tables), sum(rows), self._changed)

    async def _begin(self) -> str:
        """Return the id of the copy: that of an earlier run, or a new one."""
        found = self._source.read_installation()
        begun = await self._target.find_copy()
        id_, former = (found[0], found[3]) if found else ("", None)
        if begun is not None and begun == former:
            return begun
        if begun is not None and begun.startswith(f"{id_}/"):
            self._watch.on_restart()
            await self._target.clear()
        elif filled := await self._target.find_filled():
            raise CommandFailed(
                f"The PostgreSQL database is not empty: {filled} has rows. Create a new one with "
                "createdb, and copy into that."
            )
        copy_id = f"{id_}/{secrets.token_hex(_ID_BYTES)}"
        self._source.begin_copy(copy_id)
        await self._target.begin(copy_id)
        return copy_id

    async def _copy(self, copy_id: str, table: CopiedTable, progress: Progress) -> None:
        self._watch.on_copied(table, progress.copied.count)
        if progress.is_complete:
            return
        for batch in self._source.read(table, progress.last_key, self._batch_rows):
            rows = self._convert(batch)
            progress = Progress(progress.copied.add(rows), table.read_key(batch[-1]))
            await self._target.add(copy_id, table, rows, progress)
            self._watch.on_copied(table, len(batch))
        await self._target.complete(copy_id, table, progress)

    async def _verify(self, table: CopiedTable, copied: Checksum) -> int:
        """Compare the rows in the target with those read; return their number."""
        found = await self._target.read_checksum(table)
        if found != copied or copied.count != self._source.count(table):
            raise CommandFailed(
                f"The rows of {table.name} differ: {self._source.count(table):,} in SQLite, "
                f"{copied.count:,} were copied ({copied.hex}), {found.count:,} are in PostgreSQL "
                f"({found.hex}). Nothing may write to either during the copy. Create a new "
                "database with createdb, and copy into that."
            )
        self._watch.on_verified(table, found.count)
        return found.count

    def _convert(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows as PostgreSQL can hold them."""
        return [self._replace_nul(row) if _has_nul(row) else row for row in rows]

    def _replace_nul(self, row: Row) -> Row:
        self._changed += 1
        return tuple(
            value.replace(_NUL, _REPLACEMENT) if isinstance(value, str) else value for value in row
        )


def _has_nul(row: Row) -> bool:
    return any(isinstance(value, str) and _NUL in value for value in row)
