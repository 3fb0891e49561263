"""Reads messages for connected devices that no other node has announced to this one.

While the bus is disconnected, another node cannot forward the messages it accepts. `RecentMessages`
finds those just stored; this module compares all connections with the store, every ten seconds and
when the bus is connected again, including subscriptions and messages stored late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from clarion.errors import ServiceError
from clarion.nodes.bus import Bus
from clarion.nodes.watch import Watch
from clarion.push.connections import Connection, Connections
from clarion.push.dispatch import Dispatch
from clarion.telemetry.outages import Work

EVERY_S = 10.0
DEVICES_AT_ONCE = 500
TOPICS_AT_ONCE = 2_000
# Between two chunks, at random: 10,000 devices are checked within seven seconds.
_LONGEST_PAUSE_S = 0.5


class CatchUp:
    """Checks all connections of this node, some of one app at a time, in random order."""

    def __init__(
        self,
        dispatch: Dispatch,
        connections: Connections,
        bus: Bus,
        *,
        every_s: float = EVERY_S,
        pause_s: float = _LONGEST_PAUSE_S,
    ) -> None:
        self._dispatch = dispatch
        self._connections = connections
        self._watch = Watch(bus, disconnected_s=every_s)
        self._pause_s = pause_s
        self._work = Work("catch_up")
        dispatch.forwarding.on_unreadable = self._watch.note_gap

    async def run(self) -> None:
        """Check whenever something may have been missed, until cancelled."""
        while True:
            await self._watch.until_due()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Check once; if the store does not answer, the rest is checked the next time."""
        for app_id, chunk in _cut(self._connections):
            try:
                await self._dispatch.catch_up(app_id, chunk)
            except ServiceError as error:
                self._work.fail(error)
                return self._watch.note_gap()
            self._work.succeed()
            await asyncio.sleep(random.uniform(0, self._pause_s))  # noqa: S311 - jitter
        return None


def _cut(connections: Iterable[Connection]) -> list[tuple[str, list[Connection]]]:
    """Cut connections into chunks of one app, at random.

    A chunk is smaller if its devices are subscribed to many topics.
    """
    chunks: list[tuple[str, list[Connection]]] = []
    # By app: the chunk that is not full, and the number of its topics.
    open_chunks: dict[str, tuple[list[Connection], int]] = {}
    for connection in connections:
        if connection.session.device is None:
            continue
        app_id = connection.session.device.app_id
        chunk, topics = open_chunks.pop(app_id, ([], 0))
        if not chunk:
            chunks.append((app_id, chunk))
        chunk.append(connection)
        topics += len(connection.topics or ())
        if len(chunk) < DEVICES_AT_ONCE and topics < TOPICS_AT_ONCE:
            open_chunks[app_id] = (chunk, topics)
    random.shuffle(chunks)
    return chunks
