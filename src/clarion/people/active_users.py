"""Whether users may use their tokens and connections: inactive and deleted users may not.

A node applies its own change at once, and a change by another node when the bus delivers it, or
else within five seconds: a user is read again after `KNOWN_MS`, and every `POLL_S` (while the bus
is connected, every `CHECK_S`) users who were recently deactivated, deleted or erased are looked up,
to end their open connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from enum import Enum, auto

from clarion.clock import Clock
from clarion.errors import NotFound
from clarion.fields import explain_missing_user
from clarion.nodes.bus import ALONE, Bus
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation
from clarion.nodes.watch import Watch
from clarion.people.erasure.gone_users import GoneUsers
from clarion.people.model import UserStatus
from clarion.people.sql import Users
from clarion.telemetry.outages import Work

KNOWN_MS = 3_000
KNOWN_LIMIT = 100_000
POLL_S = 2.0
# Also if nothing is missed: a user may connect while they become inactive.
CHECK_S = 5.0
# The time of a change is that of the node that made it; the clocks of nodes may differ by this.
LOOK_BACK_MS = 10 * 60 * 1000
_PAGE = 500

Disconnect = Callable[[str, str], None]
# Drops what this node has cached of users, who are given as app and user id.
DropCached = Callable[[Collection[tuple[str, str]]], None]


class UserState(Enum):
    """The state of a user."""

    ACTIVE = auto()
    UNKNOWN = auto()  # never created: may use a token
    INACTIVE = auto()
    GONE = auto()  # deleted or erased


_MAY_USE_TOKENS = frozenset({UserState.ACTIVE, UserState.UNKNOWN})
_MAY_USE_TOKENS_NAMES = frozenset(each.name for each in _MAY_USE_TOKENS)


class ActiveUsers:
    """Caches who is active, and disconnects those who no longer are.

    `disconnect` is called with app and user; it must do nothing for users that have no connection.
    """

    def __init__(
        self,
        users: Users,
        clock: Clock,
        disconnect: Disconnect = lambda _app_id, _user_id: None,
        *,
        gone: GoneUsers | None = None,
        drop_cached: DropCached = lambda _owners: None,
        bus: Bus = ALONE,
        poll_s: float = POLL_S,
        check_s: float = CHECK_S,
    ) -> None:
        self._users = users
        self._clock = clock
        self._disconnect = disconnect
        self._gone = gone
        self._drop_cached = drop_cached
        self._watch = Watch(bus, disconnected_s=poll_s, connected_s=check_s)
        # By app and user.
        self._known = NodeCache[tuple[str, str], UserState](KNOWN_MS, KNOWN_LIMIT)
        self._changed = Invalidation("people.user", self._take_change, self._known.forget_all)
        self._changed.join(bus)
        # Who was deleted or erased recently.
        self._recently_gone: set[tuple[str, str]] = set()

    async def is_active(self, app_id: str, user_id: str) -> bool:
        """Return whether a user may use a token, which includes users who were never created."""
        return await self._find(app_id, user_id) in _MAY_USE_TOKENS

    async def check_present(
        self, app_id: str, user_id: str, *, must_be_created: bool = False
    ) -> None:
        """Raise `NotFound` for a user who was deleted or erased, or else who was never created."""
        state = await self._find(app_id, user_id)
        if state is UserState.UNKNOWN and must_be_created:
            # What is known may be older than the creation of the user.
            self._known.forget((app_id, user_id))
            state = await self._find(app_id, user_id)
        if state is UserState.GONE or (state is UserState.UNKNOWN and must_be_created):
            raise NotFound(explain_missing_user(user_id))

    def _find(self, app_id: str, user_id: str) -> Awaitable[UserState]:
        return self._known.find((app_id, user_id), self._clock.now(), self._read)

    async def _read(self, owner: tuple[str, str]) -> UserState:
        app_id, user_id = owner
        user = await self._users.get(app_id, user_id)
        if user is None:
            is_gone = await self.is_gone(app_id, user_id)
            return UserState.GONE if is_gone else UserState.UNKNOWN
        return UserState.INACTIVE if user.status is UserStatus.INACTIVE else UserState.ACTIVE

    async def check(self, app_id: str, user_id: str) -> None:
        """Apply a change of a user on this node, and publish it to the others."""
        await self._check(app_id, user_id, is_erased=False)

    async def _check(self, app_id: str, user_id: str, *, is_erased: bool) -> None:
        self._known.forget((app_id, user_id))
        state = await self._read((app_id, user_id))
        self._changed(app_id, user_id, state.name, is_erased)

    def _take_change(
        self,
        app_id: str,
        user_id: str,
        state: str,
        is_erased: bool,  # noqa: FBT001 - as it was published
    ) -> None:
        """Apply a published change of a user, made on this node or another."""
        owner = (app_id, user_id)
        self._known.forget(owner)
        if is_erased:
            self._drop_cached((owner,))
        if state == UserState.GONE.name:
            self._recently_gone.add(owner)
        else:
            self._recently_gone.discard(owner)
        if state not in _MAY_USE_TOKENS_NAMES:
            self._disconnect(app_id, user_id)

    def was_gone(self, app_id: str, user_id: str) -> bool:
        """Return whether a user was recently deleted or erased. It is called for every attempt."""
        return (app_id, user_id) in self._recently_gone

    async def is_gone(self, app_id: str, user_id: str) -> bool:
        """Return whether a user was deleted or erased; False for one who was never created."""
        return self._gone is not None and await self._gone.is_gone(app_id, user_id)

    async def forget(self, app_id: str, user_id: str) -> None:
        """Apply the erasure of a user on this node, and publish it to the others."""
        await self._check(app_id, user_id, is_erased=True)

    async def run(self) -> None:
        """Look for users who became inactive on any node, until cancelled."""
        work = Work("inactive_users")
        while True:
            await self._watch.until_due()
            with work.attempt():
                await self.poll()

    async def poll(self) -> None:
        """Disconnect the users who were recently deactivated, deleted or erased."""
        await self._poll_gone()
        after = (self._clock.now() - LOOK_BACK_MS, "", "")
        while True:
            found = await self._users.list_inactive(after, _PAGE)
            for _, app_id, user_id in found:
                self._known.forget((app_id, user_id))
                self._disconnect(app_id, user_id)
            if len(found) < _PAGE:
                return
            after = found[-1]

    async def _poll_gone(self) -> None:
        if self._gone is None:
            return
        new, erased = await self._gone.list_erased()
        if new:
            self._drop_cached(new)
        deleted = await self._gone.list_deleted(self._clock.now() - LOOK_BACK_MS)
        self._recently_gone = {*erased, *deleted}
        for owner in self._recently_gone:
            self._known.forget(owner)
            self._disconnect(*owner)
