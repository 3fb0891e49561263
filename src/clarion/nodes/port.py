"""What every part needs: time, limits, things that can be out of reach."""

from __future__ import annotations

from typing import Protocol

from clarion.nodes.model import Allowance


class Limits(Protocol):
    """Counters that say when a caller has had enough. They may be lost, and then start at zero."""

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        """Count one use of `key` in the current window and return what is left.

        Windows are aligned to multiples of `window_s`. The use number `limit + 1` of a window is
        the first that is exceeded. Uses beyond the limit are counted too, but never reset later.
        """
        ...


class Dependency(Protocol):
    """Something that Clarion needs and that can be out of reach."""

    async def check(self) -> None:
        """Return if it answers; raise otherwise, within two seconds."""
        ...
