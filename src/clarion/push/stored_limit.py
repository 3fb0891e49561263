"""The limit of messages stored for one device."""

from __future__ import annotations

from dataclasses import dataclass, field

from clarion.clock import Clock
from clarion.push.messages import Messages

ENTRIES_LIMIT = 100_000


@dataclass(slots=True)
class StoredLimit:
    """Trims the stored messages of a device when they exceed the limit.

    Counting and trimming cost more than a push, so both are done for one push in many: a device
    may have a sixteenth more stored than the limit, 62 of 1,000.
    """

    messages: Messages
    clock: Clock
    limit: int
    # By device: whether the stored messages were counted, and their number. If they were not, it is
    # the number of messages stored since the entry was made.
    _counts: dict[str, tuple[bool, int]] = field(default_factory=dict)

    def add_one(self, device_id: str) -> bool:
        """Count a message that was stored; return whether `trim` is due."""
        slack = self.limit // 16
        is_exact, count = self._counts.get(device_id, (False, 0))
        if len(self._counts) >= ENTRIES_LIMIT:
            self._counts.clear()
        self._counts[device_id] = (is_exact, count + 1)
        return count >= (self.limit + slack if is_exact else slack)

    async def trim(self, device_id: str) -> None:
        """Count the stored messages, and remove those beyond the limit."""
        most, now = self.limit + self.limit // 16, self.clock.now()
        is_exact, count = self._counts.get(device_id, (False, 0))
        if not is_exact:
            count = await self.messages.count_waiting(device_id, now=now, limit=most + 1)
        trimmed = await self.messages.trim(device_id, self.limit, now) if count > most else 0
        if count > most and not trimmed:
            # They were delivered meanwhile: the device is connected to another node.
            self.forget(device_id)
        else:
            self._counts[device_id] = (True, min(count, self.limit if trimmed else most))

    def forget(self, device_id: str) -> None:
        """Start again from zero: connecting and disconnecting change the stored messages."""
        self._counts.pop(device_id, None)
