"""When a digest is due: so long after its first part, or at an hour of the person's own clock."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from clarion.catalog.model import Digest

_DAY = dt.timedelta(days=1)


def find_due(digest: Digest, now: int, timezone: str) -> int:
    """Return when a digest that begins now is due."""
    if digest.daily_at is None:
        return now + (digest.window_s or 0) * 1000
    zone = ZoneInfo(timezone)
    today = dt.datetime.fromtimestamp(now / 1000, zone).date()
    moment = _moment(today, digest.daily_at, zone)
    return moment if moment > now else _moment(today + _DAY, digest.daily_at, zone)


def _moment(day: dt.date, clock: str, zone: ZoneInfo) -> int:
    """Return a time of a day by a clock.

    A time that the clock skips counts as if it had not been set; of one that it shows twice, the
    first.
    """
    at = dt.datetime.combine(day, dt.time.fromisoformat(clock), zone)
    return int(at.timestamp() * 1000)
