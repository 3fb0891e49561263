"""How commands print objects: as JSON, or as aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with their columns aligned; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *first, last in rows:
        padded = (text.ljust(width) for text, width in zip(first, widths[:-1], strict=True))
        print("  ".join((*padded, last)))
