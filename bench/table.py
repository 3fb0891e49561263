"""Measurements → rows, printed as an aligned table or as JSON lines."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

from bench.load import Result

HEADINGS = ("what", "throughput", "p50", "p99", "CPU", "ratio", "note")
NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; what does not apply to it is None.

    `cpu_s` is what the server and its children used for one request, and the ratio is that of the
    throughput to the one of the baseline.
    """

    what: str
    throughput: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    cpu_s: float | None = None
    ratio: float | None = None
    note: str = ""

    @classmethod
    def of(
        cls,
        what: str,
        result: Result,
        baseline: Self | None = None,
        *,
        cpu_s: float | None = None,
        note: str = "",
    ) -> Self:
        """Make the row of a load; errors are put into the note, so that no row hides them."""
        return cls(
            what=what,
            throughput=result.throughput,
            p50_s=_known(result.percentile(50)),
            p99_s=_known(result.percentile(99)),
            cpu_s=cpu_s,
            ratio=_ratio(result.throughput, baseline),
            note=", ".join([*filter(None, [note]), *_warnings(result)]),
        )


def text(rows: Iterable[Row]) -> str:
    """Text to the left, numbers to the right."""
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_aligned(each, widths) for each in cells) + "\n"


def line(row: Row) -> str:
    """Return a row by itself."""
    return "  ".join(cell for cell in _cells(row) if cell not in {"", NOTHING})


def json_lines(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)


def rate(per_second: float) -> str:
    """Format a rate: 61,234/s, 12.3/s, 0.25/s."""
    return f"{_short(per_second)}/s"


def duration(seconds: float) -> str:
    """Format a time: 320 µs, 1.26 ms, 2.10 s."""
    if seconds >= 1:
        return f"{_short(seconds)} s"
    return f"{_short(seconds * 1e3)} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} µs"


def size(size_bytes: float) -> str:
    """Format a size: 812 B, 9.10 KiB, 3.42 MiB, 1,500 GiB."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    power = min(int(math.log(size_bytes, 1024)), 3)
    return f"{_short(size_bytes / 1024**power)} {('KiB', 'MiB', 'GiB')[power - 1]}"


def _short(number: float) -> str:
    """Three digits or the whole number, never an exponent."""
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def _known(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds


def _ratio(throughput: float, baseline: Row | None) -> float | None:
    return throughput / baseline.throughput if baseline and baseline.throughput else None


def _warnings(result: Result) -> Iterable[str]:
    """Return what makes a number less reliable than it looks."""
    counts = {f"{status}": n for status, n in result.by_status.items() if status >= 300}
    yield from (f"{name}: {count:,}" for name, count in (counts | result.errors).items())
    if result.busy > 0.9:
        yield f"generator {result.busy:.0%} busy"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        NOTHING if row.throughput is None else rate(row.throughput),
        NOTHING if row.p50_s is None else duration(row.p50_s),
        NOTHING if row.p99_s is None else duration(row.p99_s),
        NOTHING if row.cpu_s is None else duration(row.cpu_s),
        NOTHING if row.ratio is None else f"{row.ratio:.2f}×",
        row.note,
    )


def _aligned(line: Iterable[str], widths: list[int]) -> str:
    what, *numbers, note = line
    columns = [what.ljust(widths[0]), *map(str.rjust, numbers, widths[1:-1]), note]
    return "  ".join(columns).rstrip()
