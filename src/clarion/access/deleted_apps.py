"""The apps that are being deleted, whose keys, tokens and connections no node accepts any more.

The node that deletes an app knows at once, the others when they are notified, or after `POLL_S` at
the latest, also if a command deleted it. Housekeeping removes the rows of the app.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from clarion.access.sql import Apps
from clarion.nodes.invalidation import Invalidation
from clarion.telemetry.outages import Work

POLL_S = 2.0
# Ids that are kept of apps that the store has removed: their cached data lasts for seconds.
KEPT = 2_000


class DeletedApps:
    """Knows the deleted apps. `on_deleted` is called with the id of each.

    The callback ends the app's connections and drops its cached data. It is called again with each
    poll until all rows of the app are gone: a connection may be opening while its app is deleted.
    """

    def __init__(
        self,
        apps: Apps,
        on_deleted: Callable[[str], Awaitable[None]] | None = None,
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
        """Apply the deletion of an app on this node, and publish it to the others."""
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
        work = Work("deleted_apps")
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._is_announced.wait()
            self._is_announced.clear()
            with work.attempt():
                await self.poll()

    async def poll(self) -> None:
        """Read which apps are deleted."""
        found = await self._apps.list_deleted()
        self._limit = KEPT + len(found)
        for app_id in found:
            self._note(app_id)
            await self._apply(app_id)

    async def _apply(self, app_id: str) -> None:
        if self._on_deleted is not None:
            await self._on_deleted(app_id)
