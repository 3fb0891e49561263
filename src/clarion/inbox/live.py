"""The clients that have an inbox open on this node, and how they learn that it changed.

The node that changes inboxes publishes their users to all others, once in a turn of the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import msgspec

from clarion.errors import Overloaded, TooManyRequests
from clarion.inbox.model import InboxState
from clarion.inbox.port import Inboxes
from clarion.nodes.bus import ALONE, Bus
from clarion.nodes.watch import Watch
from clarion.pacing import Pace
from clarion.telemetry.logs import get_logger
from clarion.telemetry.outages import Work

# How often changes by other nodes are looked for: while the bus is disconnected, and otherwise.
POLL_S = 3.0
CHECK_S = 30.0
CHANGED = "inbox.changed"
# Users in one message to other nodes.
ANNOUNCED_AT_ONCE = 1_000
_POLL_CHUNK = 500
_RETRY_S = 30
# When a node stops; as many as sockets of devices are closed then.
_ENDED_PER_S = 200
_Owner = tuple[str, str]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Owner]).decode


class EndReason(StrEnum):
    """Why the server ends a stream or socket."""

    RESTARTING = "restarting"
    USER_INACTIVE = "user_inactive"
    APP_DELETED = "app_deleted"
    KEY_ENDED = "key_ended"


@dataclass(eq=False, slots=True)
class LiveClient:
    """One open stream or socket. `wake` and `end` are called from the loop and must not wait."""

    app_id: str
    user_id: str
    wake: Callable[[], None]
    end: Callable[[EndReason], None]


@dataclass(slots=True)
class _User:
    clients: dict[LiveClient, None] = field(default_factory=dict)  # the oldest first
    seen: InboxState | None = None


class LiveClients:
    """The live clients of this node, by user."""

    def __init__(
        self,
        inboxes: Inboxes,
        *,
        per_user: int,
        total: int,
        bus: Bus = ALONE,
        poll_s: float = POLL_S,
        check_s: float = CHECK_S,
    ) -> None:
        self._inboxes = inboxes
        self._per_user = per_user
        self._total = total
        self._bus = bus
        self._watch = Watch(bus, disconnected_s=poll_s, connected_s=check_s)
        # App and id of users whose inbox has changed, which is not published yet.
        self._changed: dict[_Owner, None] = {}
        bus.subscribe(CHANGED, self._take_changed)
        self._pace = Pace()
        # The last tenth is kept for apps that have fewer than a tenth: no app takes everything.
        self._reserve = total // 10
        self._users: dict[_Owner, _User] = {}
        self._count = 0
        self._counts: Counter[str] = Counter()  # by app
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_stopped = False

    def __len__(self) -> int:
        """How many clients are open."""
        return self._count

    def count(self, app_id: str) -> int:
        """Return how many clients of an app are open."""
        return self._counts.get(app_id, 0)

    @property
    def users(self) -> Collection[_Owner]:
        """App and id of each user who has a client open."""
        return self._users.keys()

    def open(
        self,
        app_id: str,
        user_id: str,
        *,
        wake: Callable[[], None],
        end: Callable[[EndReason], None],
    ) -> LiveClient:
        """Add a client; `TooManyRequests` or `Overloaded` if there are too many."""
        if self._is_stopped or self._is_full(app_id):
            msg = "This node is stopping, or has as many live streams open as it may have."
            raise Overloaded(msg)
        user = self._users.setdefault((app_id, user_id), _User())
        if len(user.clients) >= self._per_user:
            msg = f"This user has {self._per_user} live streams open. Close one of them first."
            raise TooManyRequests(_RETRY_S, msg)
        client = LiveClient(app_id, user_id, wake, end)
        user.clients[client] = None
        self._count += 1
        self._counts[app_id] += 1
        self._is_empty.clear()
        return client

    def _is_full(self, app_id: str) -> bool:
        left = self._total - self._count
        return left <= 0 or (left <= self._reserve <= self._counts[app_id])

    def close(self, client: LiveClient) -> None:
        """Remove a client, if it is registered."""
        user = self._users.get((client.app_id, client.user_id))
        if user is None or client not in user.clients:
            return
        del user.clients[client]
        self._count -= 1
        self._counts[client.app_id] -= 1
        if not self._counts[client.app_id]:
            del self._counts[client.app_id]
        if not self._count:
            self._is_empty.set()
        if not user.clients:
            del self._users[client.app_id, client.user_id]

    def notify(self, app_id: str, user_id: str) -> None:
        """Wake the clients of a user whose inbox has changed; call it after the commit."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._publish)
        self._changed[app_id, user_id] = None
        self._wake(app_id, user_id)

    def _publish(self) -> None:
        """Publish the users whose inboxes changed in this turn."""
        owners, self._changed = list(self._changed), {}
        for start in range(0, len(owners), ANNOUNCED_AT_ONCE):
            self._bus.publish(CHANGED, _encode(owners[start : start + ANNOUNCED_AT_ONCE]))

    def _take_changed(self, several: Sequence[bytes]) -> None:
        for data in several:
            try:
                owners = _decode(data)
            except msgspec.DecodeError:
                get_logger().warning("unknown_message_of_node", subject=CHANGED)
                owners = list(self._users)  # somebody is concerned
            for owner in owners:
                self._wake(*owner)

    def _wake(self, app_id: str, user_id: str) -> None:
        user = self._users.get((app_id, user_id))
        if user is not None:
            for client in tuple(user.clients):
                client.wake()

    def disconnect_user(self, app_id: str, user_id: str) -> None:
        """End the streams and sockets of a user who may no longer have them."""
        user = self._users.get((app_id, user_id))
        if user is not None:
            for client in tuple(user.clients):
                client.end(EndReason.USER_INACTIVE)

    def list_apps(self) -> list[str]:
        """Return the apps that have clients here."""
        return list(self._counts)

    async def disconnect_app(self, app_id: str, reason: EndReason = EndReason.APP_DELETED) -> None:
        """End the streams and sockets of all users of an app."""
        if not self._counts.get(app_id):
            return
        async for owner, user in self._pace.over(list(self._users.items())):
            if owner[0] == app_id:
                for client in tuple(user.clients):
                    client.end(reason)

    async def stop(self, limit_s: float, *, spread_s: float = 0.0) -> None:
        """Accept no more clients, end all, and wait until they are closed or the time is up.

        They end at random moments within `spread_s`, so that they do not all reconnect to other
        nodes at once.
        """
        self._is_stopped = True
        clients = [client for user in self._users.values() for client in user.clients]
        spread_s = min(spread_s, len(clients) / _ENDED_PER_S)
        for client in clients:
            if spread_s:
                moment_s = random.uniform(0, spread_s)  # noqa: S311 - jitter
                asyncio.get_running_loop().call_later(moment_s, self._end_open, client)
            else:
                self._end_open(client)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(spread_s + limit_s):
                await self._is_empty.wait()

    def _end_open(self, client: LiveClient) -> None:
        user = self._users.get((client.app_id, client.user_id))
        if user is not None and client in user.clients:
            client.end(EndReason.RESTARTING)

    async def run(self) -> None:
        """Look for changes by other nodes that the bus did not bring, until cancelled."""
        work = Work("inbox_poll")
        while True:
            await self._watch.until_due()
            with work.attempt():
                await self.poll()

    async def poll(self) -> None:
        """Wake the clients whose inbox has changed since the last poll."""
        for app_id, user_ids in [chunk async for chunk in self._chunks()]:
            states = await self._inboxes.states(app_id, user_ids)
            async for user_id, state in self._pace.over(states.items()):
                user = self._users.get((app_id, user_id))
                if user is not None and user.seen != state:
                    user.seen = state
                    self._wake(app_id, user_id)

    async def _chunks(self) -> AsyncIterator[tuple[str, list[str]]]:
        by_app: dict[str, list[str]] = {}
        async for app_id, user_id in self._pace.over(list(self._users)):
            by_app.setdefault(app_id, []).append(user_id)
        for app_id, user_ids in by_app.items():
            waiting = iter(user_ids)
            while chunk := list(islice(waiting, _POLL_CHUNK)):
                yield app_id, chunk
