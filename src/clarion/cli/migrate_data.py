"""`clarion migrate-data`: copy everything from SQLite into PostgreSQL."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from clarion.access.vault import Vault
from clarion.app.installation import check_key
from clarion.app.stores import open_stores
from clarion.app.tables import COPIED
from clarion.audit.commands import record_finished
from clarion.cli.flags import SettingFlags, load_settings
from clarion.errors import StartError, count
from clarion.settings import Settings
from clarion.store.copying.data_copy import Copied, DataCopy, Watch
from clarion.store.copying.source import Source
from clarion.store.copying.tables import CopiedTable
from clarion.store.copying.target import Target
from clarion.store.opening import SQLITE_PREFIX, describe_url, sqlite_path
from clarion.store.postgres.engine import connect_or_explain
from clarion.system.data_directory import DataDirectory

_REPORT_S = 5.0


async def migrate_data(
    *,
    source: Annotated[str, Parameter(name="--from")] = "",
    target: Annotated[str, Parameter(name="--to")] = "",
    **settings: SettingFlags,
) -> None:
    """Copy everything from SQLite into an empty PostgreSQL database, and verify it.

    Stop the server first. If the command is interrupted, run it again: it continues there.

    Parameters
    ----------
    source
        The SQLite database. Default: clarion.db in the data directory.
    target
        The URL of the PostgreSQL database. Default: that of --database, whose variables keep the
        password out of the process list.

    """
    loaded = load_settings(settings)
    path, url = _choose_databases(loaded, source, target)
    directory = DataDirectory(loaded.data)
    directory.ensure()
    with directory.use_keys(), closing(Source.open(path, COPIED)) as opened:
        _check_master_key(opened, directory)
        began = time.monotonic()
        copied = await _copy(opened, url)
        moved = opened.move_away()
    _report(copied, time.monotonic() - began, describe_url(url))
    if copied is not None:
        async with open_stores(replace(loaded, database=url)) as stores:
            await record_finished(stores.audit_log, rows=str(copied.rows))
    print(f"The SQLite database is now {moved}; delete it when you no longer need it.")
    print("Start the server with --database, or CLARION_DATABASE, and the same data directory.")


def _choose_databases(settings: Settings, source: str, target: str) -> tuple[str, str]:
    path = source.removeprefix(SQLITE_PREFIX) or str(settings.data / "clarion.db")
    url = target or settings.database_url
    if sqlite_path(url) or not url.startswith(("postgresql://", "postgres://")):
        raise StartError("--to: must be like postgresql://user@host:5432/clarion")
    return path, url


def _check_master_key(source: Source, directory: DataDirectory) -> None:
    """Raise `StartError` if the secrets could not be read with the key of this directory."""
    found = source.read_installation()
    if found is not None:
        vault = Vault(*directory.read_master_keys())
        check_key(vault, found[0], found[1], directory, f"{SQLITE_PREFIX}{source.path}")


async def _copy(source: Source, url: str) -> Copied | None:
    connection = await connect_or_explain(url)
    try:
        with _show(source) as watch:
            return await DataCopy(source, Target(connection), watch).run()
    finally:
        await connection.close()


@contextmanager
def _show(source: Source) -> Iterator[Watch]:
    """Show progress: a bar on a terminal, otherwise a line for each table and every few seconds."""
    tables = source.list_tables()
    total = sum(map(source.count, tables))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    is_terminal = sys.stderr.isatty()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not is_terminal) as bars:
        lines = _Lines(bars, total, is_plain=not is_terminal)
        yield Watch(lines.note_copied, lines.note_verified, lines.note_restart)


class _Lines:
    """The printed progress."""

    def __init__(self, bars: Progress, total: int, *, is_plain: bool) -> None:
        self._bars = bars
        self._is_plain = is_plain
        self._total = total
        self._copying = bars.add_task("Copying", total=total, rate="")
        self._verifying = bars.add_task("Verifying", total=total, rate="")
        self._began = self._reported = time.monotonic()
        self._copied = self._verified = 0

    def note_copied(self, table: CopiedTable, rows: int) -> None:
        self._copied += rows
        rate = self._copied / max(time.monotonic() - self._began, 0.001)
        text = f"{rate:,.0f} rows/s"
        self._bars.update(self._copying, completed=self._copied, rate=f"{text} {table.name}")
        self._print(f"copied {self._copied:,} of {self._total:,} rows, {text}, {table.name}")

    def note_verified(self, table: CopiedTable, rows: int) -> None:
        self._verified += rows
        self._bars.update(self._verifying, completed=self._verified, rate=table.name)
        self._print(f"verified {self._verified:,} of {self._total:,} rows, {table.name}")

    def note_restart(self) -> None:
        print("The SQLite database was used since the last run: everything is copied again.")

    def _print(self, line: str) -> None:
        now = time.monotonic()
        if self._is_plain and now - self._reported >= _REPORT_S:
            self._reported = now
            print(line, flush=True)


def _report(copied: Copied | None, took_s: float, database: str) -> None:
    if copied is None:
        print(f"Everything is in {database} already.")
        return
    rate = copied.rows / max(took_s, 0.001)
    print(
        f"Copied {count(copied.rows, 'row')} of {count(copied.tables, 'table')} into {database} in "
        f"{took_s:.1f} s ({rate:,.0f} rows/s). Counts and checksums of all tables are equal."
    )
    if copied.changed_texts:
        print(
            f"{count(copied.changed_texts, 'row')} had zero characters, which PostgreSQL cannot "
            "store: U+FFFD replaces them."
        )
