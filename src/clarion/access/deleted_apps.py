"""The apps that are being deleted: nothing of them works any more, on any node.

The node that deletes an app knows it at once, others when they are notified, and after
`POLL_S` at the latest, also if a command deleted it. Housekeeping removes the rows of the app.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from clarion.access.sql import Apps
from clarion.errors import ServiceError
from clarion.nodes.invalidation import Invalidation
from clarion.telemetry.logs import get_logger

POLL_S = 2.0
# So many ids are kept of apps of which nothing is left in the store: what is cached of them lasts
# for seconds.
KEPT = 2_000


class DeletedApps:
    """Knows the deleted apps. `on_deleted` are called with the id of each.

    They end its connections and forget what is cached of it. A connection may be on its way while
    its app is deleted, so they are called again with each poll, until nothing of the app is left.
    """

    def __init__(
        self,
        apps: Apps,
        on_deleted: Sequence[Callable[[str], Awaitable[None]]] = (),
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self._apps = apps
        self._on_deleted = on_deleted
        self._poll_s = poll_s
        # Ids are never used again, so only the oldest are removed; what the store still has is new.
        self._ids: dict[str, None] = {}
        self._limit = KEPT
        self.deleted = Invalidation("access.deleted_app", self._take, self._look)
        self._is_announced = asyncio.Event()

    def __contains__(self, app_id: object) -> bool:
        """Return whether an app was deleted; False if it was never there."""
        return app_id in self._ids

    async def add(self, app_id: str) -> None:
        """Take note of an app that was deleted on this node, and tell the others."""
        self.deleted(app_id)
        await self._apply(app_id)

    def _take(self, app_id: str) -> None:
        self._note(app_id)
        self._look()

    def _note(self, app_id: str) -> None:
        self._ids.pop(app_id, None)
        self._ids[app_id] = None
        while len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]

    def _look(self) -> None:
        """Read at once which apps are deleted."""
        self._is_announced.set()

    async def run(self) -> None:
        """Look for apps that any node has deleted, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._is_announced.wait()
            self._is_announced.clear()
            try:
                await self.poll()
            except ServiceError as error:
                get_logger().warning("deleted_apps_poll_failed", code=error.code)

    async def poll(self) -> None:
        """Read which apps are deleted."""
        found = await self._apps.list_deleted()
        self._limit = KEPT + len(found)
        for app_id in found:
            self._note(app_id)
            await self._apply(app_id)

    async def _apply(self, app_id: str) -> None:
        for call in self._on_deleted:
            await call(app_id)
