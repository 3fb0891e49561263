"""The clock of the house: the one place that asks the system what time it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import uuid_utils


class SystemClock:
    """The `Clock` port on the system's own clock."""

    def now(self) -> int:
        """Return the milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        """Return a new UUIDv7."""
        return str(uuid_utils.uuid7())


def to_rfc3339(milliseconds: int) -> str:
    """Write a time as the API does: UTC, to the millisecond."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
