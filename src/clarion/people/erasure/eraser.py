"""Deletes users temporarily, restores them, and erases them permanently.

An erasure is a tombstone first. Then everything about the user is removed in chunks, by the request
or by any node, also after a crash. Two minutes later this is repeated, to remove what was being
written when the tombstone was stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from clarion.clock import Clock
from clarion.errors import Conflict, ServiceError, existing
from clarion.people.erasure.model import Erasure, ErasureCause, ErasureStatus
from clarion.people.erasure.sql.deleted_users import DeletedUsers
from clarion.people.erasure.sql.erasures import Erasures
from clarion.people.model import User
from clarion.telemetry.logs import get_logger

DAY_MS = 24 * 3600 * 1000
# How long a request waits until everything is removed. Then the erasure continues without it.
WAIT_S = 10.0
LEASE_MS = 60_000
# Longer than a job is claimed for, and than an attempt takes.
SETTLE_MS = 120_000
# Nothing is planned for later than that.
LATEST_MS = 2 * SETTLE_MS
# How many users a node erases at once.
AT_ONCE = 4
CLAIMED = 10

# Called with app and user: their connections end, and what this node has cached of them is dropped.
OnGone = Callable[[str, str], Awaitable[None]]
# Removes deleted data from the files of the database; False if it must be tried again.
Scrub = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """Deletes, restores and erases users."""

    deleted: DeletedUsers
    erasures: Erasures
    clock: Clock
    scrub: Scrub
    on_deleted: OnGone
    on_erased: OnGone
    kept_days: int
    wait_s: float = WAIT_S
    settle_ms: int = SETTLE_MS
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(AT_ONCE), init=False
    )

    async def delete(self, app_id: str, user_id: str) -> User:
        """Delete a user who can be restored; `NotFound` if there is none."""
        deleted = await self.deleted.delete(app_id, user_id, self.clock.now())
        user = existing(deleted, f"This app has no user {user_id}.")
        await self.on_deleted(app_id, user_id)
        return user

    async def restore(self, app_id: str, user_id: str) -> User:
        """Restore a deleted user; `NotFound` if there is none, `EmailTaken` if the address is."""
        now = self.clock.now()
        since = now - self.kept_days * DAY_MS
        restored = await self.deleted.restore(app_id, user_id, since=since, now=now)
        user = existing(restored, "This app has no such deleted user who can be restored.")
        await self.on_deleted(app_id, user_id)
        return user

    async def erase(
        self, app_id: str, user_id: str, cause: ErasureCause = ErasureCause.REQUEST
    ) -> Erasure:
        """Erase a user; return the receipt. It is `running` if it takes long, and continues.

        After this returns, nothing is sent to the user except messages already being sent.
        `NotFound` if nothing is stored about the user.
        """
        erasure = await self.begin(app_id, user_id, cause)
        if erasure.status is not ErasureStatus.RUNNING:
            return erasure
        try:
            async with asyncio.timeout(self.wait_s), self._slots:
                return await self._run(erasure) or erasure
        except (TimeoutError, ServiceError):
            get_logger().info("erasure_goes_on", erasure=erasure.id)
            with contextlib.suppress(ServiceError):  # then it is due when its lease ends
                await self.erasures.release(erasure, self.clock.now())
                return await self.erasures.get(app_id, erasure.id) or erasure
            return erasure

    async def begin(self, app_id: str, user_id: str, cause: ErasureCause) -> Erasure:
        """Store the tombstone, and end what the user has open on this node."""
        now = self.clock.now()
        until = now + int(self.wait_s * 1000)
        begun = await self.erasures.begin(app_id, user_id, cause, now=now, until=until)
        erasure = existing(begun, "Nothing is stored about this user.")
        await self.on_erased(app_id, user_id)
        return erasure

    async def check_writable(self, app_id: str, user_id: str) -> None:
        """Refuse to create a user who is being erased: `Conflict`."""
        if refused := await self.find_unwritable(app_id, [user_id]):
            raise refused[user_id]

    async def find_unwritable(self, app_id: str, user_ids: Collection[str]) -> dict[str, Conflict]:
        """Return why some of the users cannot be created: they are being erased."""
        return {
            each: Conflict(f"The user {each} is being erased. Try again in a few seconds.")
            for each in await self.erasures.find_running(app_id, user_ids)
        }

    async def purge(self, before: int, limit: int) -> int:
        """Begin to erase the users who were deleted before a time; return how many."""
        found = await self.deleted.list_deleted((0, "", ""), limit)
        due = [(app_id, user_id) for time, app_id, user_id in found if time < before]
        for app_id, user_id in due:
            await self.begin(app_id, user_id, ErasureCause.RETENTION)
        return len(due)

    async def run_due(self, now: int) -> int:
        """Continue with the erasures that nobody works on; return how many there were."""
        claimed = await self.erasures.claim_due(now, now + LEASE_MS, now + LATEST_MS, CLAIMED)
        for erasure in claimed:
            async with self._slots:
                await self._run(erasure)
        return len(claimed)

    async def _run(self, erasure: Erasure) -> Erasure | None:
        erased = await self.erasures.run(erasure)
        if erasure.status is ErasureStatus.SETTLING:
            await self.scrub()
            # If it was stopped, the user was created again, and the rows are those of the new user.
            await self.erasures.finish(erased or erasure)
            return erased
        if erased is None or not await self.scrub():
            return None
        now = self.clock.now()
        return await self.erasures.settle(erased, now=now, due_at=now + self.settle_ms)
