"""How commands print objects: as JSON, or as aligned columns; and how far they are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import msgspec

from clarion.errors import count


def count_entries(number: int) -> str:
    """Say of all entries of the audit log that they were verified."""
    if number == 1:
        return "1 entry, as it was written"
    return f"{count(number, 'entry', 'entries')}, all as they were written"


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_result(value: object, text: str, *, json: bool) -> None:
    """Print the result of a command: an object as JSON, or in words."""
    print_json(value) if json else print(text)


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with their columns aligned; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *first, last in rows:
        padded = (text.ljust(width) for text, width in zip(first, widths[:-1], strict=True))
        print("  ".join((*padded, last)))


@contextlib.contextmanager
def show_progress(*names: str) -> Iterator[tuple[Callable[[int, int], None], ...]]:
    """Yield for each name what takes how much of it is done, of how much; for terminals only."""
    from rich.console import Console  # noqa: PLC0415 - only where it is shown
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as progress:

        def begin(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield tuple(map(begin, names))
