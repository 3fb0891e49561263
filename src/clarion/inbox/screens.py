"""The live side of the inbox, put together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.inbox.actions import Acts
from clarion.inbox.live import Live
from clarion.inbox.sockets import UserSockets

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Awaitable, Callable

    from clarion.access.model import Caller
    from clarion.clock import Clock
    from clarion.inbox.port import Inboxes
    from clarion.settings import Settings

# How long a stop waits for streams to end, before what they come through is closed.
FAREWELL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Screens:
    """Who looks, what they do, and their sockets."""

    live: Live
    acts: Acts
    sockets: UserSockets

    def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Look after the open screens until the stack ends."""
        for work in (self.live.run(), self.sockets.run()):
            stack.callback(asyncio.get_running_loop().create_task(work).cancel)

    async def stop(self, grace_s: float) -> None:
        """End the streams and sockets: a listener would wait for an open stream without end."""
        await self.live.stop(min(grace_s / 2, FAREWELL_S))
        await self.sockets.stop(min(grace_s / 2, FAREWELL_S))


def build_screens(
    settings: Settings,
    inboxes: Inboxes,
    clock: Clock,
    identify: Callable[[str], Awaitable[Caller]],
) -> Screens:
    """Put it together."""
    live = Live(inboxes, per_user=settings.user_streams, total=settings.node_streams)
    acts = Acts(inboxes, live, clock)
    sockets = UserSockets(inboxes=inboxes, acts=acts, live=live, identify=identify, clock=clock)
    return Screens(live=live, acts=acts, sockets=sockets)
