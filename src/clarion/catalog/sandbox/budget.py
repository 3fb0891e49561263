"""How much processor time each app may use."""

from __future__ import annotations

import math
from collections.abc import Callable

from clarion.errors import TooManyRequests

MINUTE_S = 60.0
_APPS_LIMIT = 10_000


class ProcessorBudget:
    """Seconds of processor time per minute; used time is given back evenly over a minute."""

    def __init__(self, per_minute_s: float, clock: Callable[[], float]) -> None:
        self._per_minute_s = per_minute_s
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}  # seconds at a time

    def check(self, app_id: str) -> None:
        """Raise `TooManyRequests` if the app has used its time."""
        over_s = self._read(app_id) - self._per_minute_s
        if over_s >= 0:
            wait_s = over_s / self._per_minute_s * MINUTE_S
            raise TooManyRequests(
                math.ceil(wait_s) + 1,
                f"The templates and schemas of this app have used their {self._per_minute_s:g} "
                "seconds of processor time for a minute.",
            )

    def charge(self, app_id: str, seconds: float) -> None:
        """Count time that was used."""
        if app_id not in self._used and len(self._used) >= _APPS_LIMIT:
            self._used = {each: x for each, x in self._used.items() if self._read(each) > 0}
        self._used[app_id] = (self._read(app_id) + seconds, self._clock())

    def _read(self, app_id: str) -> float:
        used_s, at = self._used.get(app_id, (0.0, 0.0))
        return max(0.0, used_s - (self._clock() - at) * self._per_minute_s / MINUTE_S)
