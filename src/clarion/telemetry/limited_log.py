"""A log of events that strangers can cause: repeating one does not fill it."""

from __future__ import annotations

from typing import Any

from clarion.clock import Clock
from clarion.telemetry.logs import get_logger

LINES_LIMIT = 10
WINDOW_MS = 60_000


class LimitedLog:
    """Logs ten lines of each event in a minute; the first of the next says how many it left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By event (all names are defined by Clarion): when its minute began, and its lines since.
        self._lines: dict[str, tuple[int, int]] = {}

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event, unless it was logged often in this minute."""
        now = self._clock.monotonic()
        began, lines = self._lines.get(event, (now, 0))
        if now - began >= WINDOW_MS:
            if lines > LINES_LIMIT:
                fields["left_out"] = lines - LINES_LIMIT
            began, lines = now, 0
        self._lines[event] = (began, lines + 1)
        if lines < LINES_LIMIT:
            get_logger().warning(event, **fields)
