"""The clock of the house: the one place that asks the system what time it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

import uuid_utils

# Added to and taken from, never by way of a float, which would lose milliseconds.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """The one source of time and of ids."""

    def now(self) -> int:
        """Return the milliseconds since 1970, UTC."""
        ...

    def new_id(self) -> str:
        """Return a new UUIDv7; ids made later sort later."""
        ...


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
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_write_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=64)
def _write_second(seconds: int) -> str:
    """Most times that are written are of the last few seconds."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")


def to_milliseconds(moment: datetime) -> int:
    """Return a time that says its offset as the house has it."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
