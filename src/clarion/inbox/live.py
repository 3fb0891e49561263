"""Who looks at an inbox right now on this node, and how they learn that it changed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from clarion.errors import Overloaded, ServiceError, TooManyRequests
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clarion.inbox.model import InboxState
    from clarion.inbox.port import Inboxes

# How often to look for what other nodes changed.
POLL_S = 3.0
_POLL_CHUNK = 500
_RETRY_S = 30


@dataclass(eq=False, slots=True)
class Screen:
    """One open stream or socket. `wake` and `end` are called from the loop and must not wait."""

    app_id: str
    user_id: str
    wake: Callable[[], None]
    end: Callable[[], None]


@dataclass(slots=True)
class _Person:
    screens: set[Screen] = field(default_factory=set)
    seen: InboxState | None = None


class Live:
    """The open screens of this node, person by person."""

    def __init__(
        self, inboxes: Inboxes, *, per_user: int, total: int, poll_s: float = POLL_S
    ) -> None:
        self._poll_s = poll_s
        self._inboxes = inboxes
        self._per_user = per_user
        self._total = total
        self._people: dict[tuple[str, str], _Person] = {}
        self._count = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_stopped = False

    def __len__(self) -> int:
        """How many screens are open."""
        return self._count

    def open(
        self, app_id: str, user_id: str, *, wake: Callable[[], None], end: Callable[[], None]
    ) -> Screen:
        """Know a screen; `TooManyRequests` or `Overloaded` if there are too many."""
        if self._is_stopped or self._count >= self._total:
            msg = "This node stops, or has as many live streams open as it takes."
            raise Overloaded(msg)
        person = self._people.setdefault((app_id, user_id), _Person())
        if len(person.screens) >= self._per_user:
            msg = f"This user has {self._per_user} live streams open. Close one of them first."
            raise TooManyRequests(_RETRY_S, msg)
        screen = Screen(app_id, user_id, wake, end)
        person.screens.add(screen)
        self._count += 1
        self._is_empty.clear()
        return screen

    def close(self, screen: Screen) -> None:
        """Know it no more. Again changes nothing."""
        person = self._people.get((screen.app_id, screen.user_id))
        if person is None or screen not in person.screens:
            return
        person.screens.remove(screen)
        self._count -= 1
        if not self._count:
            self._is_empty.set()
        if not person.screens:
            del self._people[screen.app_id, screen.user_id]

    def notify(self, app_id: str, user_id: str) -> None:
        """Wake the screens of a person whose inbox has changed; call it after the commit."""
        person = self._people.get((app_id, user_id))
        if person is not None:
            for screen in tuple(person.screens):
                screen.wake()

    async def stop(self, limit_s: float) -> None:
        """Take no more screens, end all, and wait until they are closed or the time is up."""
        self._is_stopped = True
        for person in list(self._people.values()):
            for screen in list(person.screens):
                screen.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._is_empty.wait()

    async def run(self) -> None:
        """Look every few seconds for what other nodes changed, until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self.look()
            except ServiceError as error:
                get_logger().warning("inbox_poll_failed", code=error.code)

    async def look(self) -> None:
        """Wake those whose inbox is another than at the last look."""
        for app_id, user_ids in list(self._chunks()):
            states = await self._inboxes.states(app_id, user_ids)
            for user_id, state in states.items():
                person = self._people.get((app_id, user_id))
                if person is not None and person.seen != state:
                    person.seen = state
                    self.notify(app_id, user_id)

    def _chunks(self) -> Iterator[tuple[str, list[str]]]:
        by_app: dict[str, list[str]] = {}
        for app_id, user_id in self._people:
            by_app.setdefault(app_id, []).append(user_id)
        for app_id, user_ids in by_app.items():
            waiting = iter(user_ids)
            while chunk := list(islice(waiting, _POLL_CHUNK)):
                yield app_id, chunk
