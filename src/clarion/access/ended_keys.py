"""Ends live streams and sockets when a user key of their app was revoked or has expired.

They are authenticated once, when they are opened. Clients reconnect; those whose token is of the
key that has ended are refused then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from clarion.access.known_apps import KnownApps
from clarion.clock import Clock
from clarion.telemetry.outages import Work

# What is known of an app is cached: most of these look-ups read nothing.
POLL_S = 0.5


@dataclass(slots=True, kw_only=True)
class EndedKeys:
    """Checks the keys of the apps that have live clients on this node."""

    known_apps: KnownApps
    clock: Clock
    list_apps: Callable[[], Collection[str]]
    disconnect: Callable[[str], Awaitable[None]]
    poll_s: float = POLL_S
    # Repeated once: a client may have been connecting when the others were disconnected.
    _again: set[str] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Poll until cancelled."""
        work = Work("ended_keys")
        while True:
            await asyncio.sleep(self.poll_s)
            with work.attempt():
                await self.poll()

    async def poll(self) -> None:
        """Disconnect the clients of apps whose keys were revoked or have expired."""
        for app_id in self.list_apps():
            await self.known_apps.find(app_id, self.clock.now())
        ended = set(self.known_apps.ended)
        self.known_apps.ended.difference_update(ended)
        for app_id in ended | self._again:
            await self.disconnect(app_id)
        self._again = ended
