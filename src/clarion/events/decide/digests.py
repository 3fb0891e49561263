"""When a digest is due: some time after its first part, or daily at a time in the user's zone."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

from clarion.catalog.model import Digest
from clarion.clock import to_local

_DAY = dt.timedelta(days=1)


def find_due(digest: Digest, now: int, timezone: str) -> int:
    """Return when a digest is due whose first part is collected now."""
    if digest.daily_at is None:
        return now + (digest.window_s or 0) * 1000
    zone = ZoneInfo(timezone)
    today = to_local(now, zone).date()
    moment = _moment(today, digest.daily_at, zone)
    return moment if moment > now else _moment(today + _DAY, digest.daily_at, zone)


def _moment(day: dt.date, clock: str, zone: ZoneInfo) -> int:
    """Return the time of day in a zone.

    A time that a clock change skips uses the offset from before the change; of a time that occurs
    twice, the first is used.
    """
    at = dt.datetime.combine(day, dt.time.fromisoformat(clock), zone)
    return int(at.timestamp() * 1000)
