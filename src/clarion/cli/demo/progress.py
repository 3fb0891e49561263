"""The line that shows what happens in the demo."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

# How often a line is printed without a terminal.
_LINE_EVERY_S = 10.0


@dataclass(slots=True)
class Counts:
    """How much has happened since the start."""

    events: int = 0
    connected: int = 0
    received: int = 0
    reads: int = 0
    clicks: int = 0
    dismissals: int = 0
    refused: int = 0

    def __str__(self) -> str:
        named = ((each.name, getattr(self, each.name)) for each in fields(self))
        return "  ".join(f"{name} {value:,}" for name, value in named)


class ProgressLine:
    """Prints the counts: over the last line on a terminal, otherwise now and then."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._is_terminal = sys.stdout.isatty()
        self._printed_s = -_LINE_EVERY_S

    def tick(self, elapsed_s: float) -> None:
        """Show the counts after a number of seconds."""
        if self._is_terminal:
            print(f"\r\x1b[K{self._describe(elapsed_s)}", end="", flush=True)
        elif elapsed_s - self._printed_s >= _LINE_EVERY_S:
            self._printed_s = elapsed_s
            print(self._describe(elapsed_s), flush=True)

    def finish(self, elapsed_s: float) -> None:
        """Show the counts for the last time."""
        start = "\r\x1b[K" if self._is_terminal else ""
        print(f"{start}{self._describe(elapsed_s)}", flush=True)

    def _describe(self, elapsed_s: float) -> str:
        minutes, seconds = divmod(int(elapsed_s), 60)
        return f"{minutes:02}:{seconds:02}  {self._counts}"
