"""Finds what other nodes have just stored for devices and topics that are connected here.

While the bus is disconnected, this node reads the store every two seconds: once for the messages to
devices of all its apps, by their sequences, and once for the topics of each app. The cost does not
depend on the number of connected devices. A message that was stored long after it was numbered is
found by `CatchUp`, which checks each connection.
"""

from __future__ import annotations

import asyncio
import random

from clarion.clock import Clock
from clarion.errors import ServiceError
from clarion.nodes.bus import Bus
from clarion.push.dispatch import Dispatch
from clarion.telemetry.outages import Work

# With the time until a bus that hangs is noticed, a message is found within five seconds.
EVERY_S = 2.0
_JITTER = 0.2
# How much later than it was numbered a message may be committed, plus how long it may be on its way
# over the bus before a lost connection is noticed.
OVERLAP_MS = 5_000
READ_AT_ONCE = 5_000
# The rest is left to `CatchUp`.
READS_LIMIT = 10


class RecentMessages:
    """Has the connections of this node read the messages of the last few seconds."""

    def __init__(
        self,
        dispatch: Dispatch,
        bus: Bus,
        clock: Clock,
        *,
        every_s: float = EVERY_S,
        read_at_once: int = READ_AT_ONCE,
    ) -> None:
        self._dispatch = dispatch
        self._bus = bus
        self._clock = clock
        self._every_s = every_s
        self._read_at_once = read_at_once
        self._work = Work("recent_messages")
        # Until when nothing was missed.
        self._until = clock.now()
        # What the last read found: sequences and devices, and the last sequences of topics.
        self._found: set[tuple[int, str]] = set()
        self._topics: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Read periodically while the bus is disconnected, until cancelled."""
        while True:
            share = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - jitter
            await asyncio.sleep(self._every_s * share)
            await self.look_if_disconnected()

    async def look_if_disconnected(self) -> None:
        """Read once, unless the bus is connected."""
        if not self._bus.is_connected:
            await self._look()
            return
        self._until = self._clock.now()
        self._found.clear()
        self._topics.clear()

    async def _look(self) -> None:
        began = self._clock.now()
        try:
            await self._read_messages((self._until - OVERLAP_MS) * 1000)
            self._topics = await self._dispatch.topics.catch_up_published(self._topics)
        except ServiceError as error:  # the next read begins where this one did
            self._work.fail(error)
        else:
            self._work.succeed()
            self._until = began

    async def _read_messages(self, after: int) -> None:
        found: set[tuple[int, str]] = set()
        for _ in range(READS_LIMIT):
            page = await self._dispatch.find_recent(after, self._read_at_once)
            new = set(page) - found
            found |= new
            self._dispatch.read_stored({device_id for _, device_id in new - self._found})
            if len(page) < self._read_at_once or not new:
                break
            after = page[-1][0] - 1  # two nodes may have assigned the same sequence
        self._found = found
