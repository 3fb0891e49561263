"""The limit of messages stored for one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.clock import Clock
    from clarion.push.port import Messages

ENTRIES_LIMIT = 100_000


class StoredLimit:
    """Trims what is stored for a device when it has grown beyond the limit.

    Counting and trimming cost more than a push, so both are done for one push in many: a device
    may have a sixteenth more stored than the limit, 62 of 1,000.
    """

    def __init__(self, messages: Messages, clock: Clock, limit: int) -> None:
        self._messages = messages
        self._clock = clock
        self._limit = limit
        self._slack = limit // 16
        # By device: whether the stored messages were counted, and their number. Before they are
        # counted, it is the number of messages stored since the entry was made.
        self._counts: dict[str, tuple[bool, int]] = {}

    async def add_one(self, device_id: str) -> None:
        """Count a message that was stored, and trim what is beyond the limit."""
        is_exact, count = self._counts.get(device_id, (False, 0))
        count += 1
        if not is_exact and count > self._slack:
            count = await self._messages.count_waiting(
                device_id, now=self._clock.now(), limit=self._limit + self._slack + 1
            )
            is_exact = True
        if count > self._limit + self._slack:
            await self._messages.trim(device_id, self._limit, self._clock.now())
            count = self._limit
        if len(self._counts) >= ENTRIES_LIMIT:
            self._counts.clear()
        self._counts[device_id] = (is_exact, count)

    def forget(self, device_id: str) -> None:
        """Count again from zero: a device that connects or leaves changes what is stored."""
        self._counts.pop(device_id, None)
