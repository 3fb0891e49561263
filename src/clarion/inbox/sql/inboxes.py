"""Inboxes in SQL. An action locks the inbox, changes the notification, and stores its number."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from weakref import WeakValueDictionary

from clarion.history.model import Notification
from clarion.history.sql.changes import (
    CLICK,
    DELETE,
    DELETE_ATTEMPTS,
    DELETE_DELIVERIES,
    SELECT,
    SELECT_CHANGES,
    SELECT_UNREAD_IDS,
    dismissing,
    is_one,
    reading,
    unreading,
)
from clarion.history.sql.listings import IS_LISTED, IS_READ, IS_UNREAD
from clarion.history.sql.notifications import read_notification
from clarion.inbox.model import InboxAction, InboxState
from clarion.inbox.sql.numbers import LOCK, NEXT, OF_USER, REMEMBER
from clarion.store.engine import Engine
from clarion.store.statement import Statement, Step, Unit, keys_of, statement

READ_ALL_CHUNK = 1000
SELECT_STATE = statement(
    "select_inbox_state", f"SELECT unread_count, sequence FROM inboxes WHERE {OF_USER}"
)
SELECT_STATES = statement(
    "select_inbox_states",
    """SELECT user_id, unread_count, sequence FROM inboxes
    WHERE app_id = :app_id AND user_id IN (SELECT key FROM json_each(:ids))""",
)


# On PostgreSQL a statement that waits for the row sees the table as it was before the wait. So
# this only decides whether to continue; the change that follows, under the lock, checks again.
def _count_if(name: str, condition: str, unread: str) -> Statement:
    return statement(
        name,
        f"""UPDATE inboxes SET unread_count = unread_count {unread} WHERE {OF_USER}
        AND {is_one(condition)}
        RETURNING unread_count""",
    )


COUNT_LESS = _count_if("count_one_less", IS_UNREAD, "- 1")
COUNT_MORE = _count_if("count_one_more", IS_READ, "+ 1")
TAKE_LISTED = _count_if("take_inbox_of_listed", IS_LISTED, "+ 0")
READ, UNREAD, DISMISS = reading(NEXT), unreading(NEXT), dismissing(NEXT)


class SqlInboxes:
    """The `Inboxes` port."""

    def __init__(self, engine: Engine, *, read_all_chunk: int = READ_ALL_CHUNK) -> None:
        self._engine = engine
        self._read_all_chunk = read_all_chunk
        # One for each inbox that an action is running on; it goes when nobody holds or awaits it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def state(self, app_id: str, user_id: str) -> InboxState:
        rows = await self._engine.fetch(SELECT_STATE, app_id=app_id, user_id=user_id)
        return InboxState(*rows[0]) if rows else InboxState(0, 0)

    async def states(self, app_id: str, user_ids: Collection[str]) -> Mapping[str, InboxState]:
        rows = await self._engine.fetch(SELECT_STATES, app_id=app_id, ids=keys_of(user_ids))
        return {user_id: InboxState(count, sequence) for user_id, count, sequence in rows}

    async def get(self, app_id: str, user_id: str, notification_id: str) -> Notification | None:
        rows = await self._engine.fetch(SELECT, app_id=app_id, user_id=user_id, id=notification_id)
        return read_notification(rows[0]) if rows else None

    async def apply(
        self, action: InboxAction, app_id: str, user_id: str, notification_id: str, now: int
    ) -> Notification | None:
        of_user = {"app_id": app_id, "user_id": user_id}
        steps = _steps_of(action, {**of_user, "id": notification_id}, now)
        remember = REMEMBER.step(**of_user)
        async with self._lock(app_id, user_id):
            done = await self._engine.write(Unit(user_id, (*steps, remember), app_id))
        if done is None:  # there was nothing to change
            return await self.get(app_id, user_id, notification_id)
        return read_notification(done[len(steps) - 1][0])

    async def read_all(self, app_id: str, user_id: str, now: int) -> InboxState:
        of_user = {"app_id": app_id, "user_id": user_id}
        last = ""
        while ids := await self._unread_ids(app_id, user_id, last):
            steps = (
                LOCK.step(**of_user),
                COUNT_LESS.many([COUNT_LESS.bind(**of_user, id=each) for each in ids]),
                READ.many([READ.bind(**of_user, id=each, now=now) for each in ids]),
                REMEMBER.step(**of_user),
            )
            async with self._lock(app_id, user_id):
                await self._engine.write(Unit(user_id, steps, app_id))
            last = ids[-1]
        return await self.state(app_id, user_id)

    async def forget(self, app_id: str, user_id: str, ids: Collection[str]) -> None:
        of_user = {"app_id": app_id, "user_id": user_id}
        steps = (
            LOCK.step(**of_user),
            COUNT_LESS.many([COUNT_LESS.bind(**of_user, id=each) for each in ids]),
            DELETE.many([DELETE.bind(**of_user, id=each) for each in ids]),
            DELETE_DELIVERIES.many([(each,) for each in ids]),
            DELETE_ATTEMPTS.many([(each,) for each in ids]),
        )
        async with self._lock(app_id, user_id):
            # After what its batch shows: that is counted as unread, and then deleted.
            await self._engine.write(Unit(user_id, steps, is_last=True))

    async def changes(
        self, app_id: str, user_id: str, after: int, limit: int
    ) -> tuple[Notification, ...]:
        rows = await self._engine.fetch(
            SELECT_CHANGES, app_id=app_id, user_id=user_id, since=after, limit=limit
        )
        return tuple(read_notification(row) for row in rows)

    def _lock(self, app_id: str, user_id: str) -> asyncio.Lock:
        """Return the lock that makes this node run one action after the other on an inbox.

        Two in one batch would both pass the guard of their first step, and the guard of the
        second's last step would fail the whole batch: a user who clicks twice must not be able to
        do that.
        """
        return self._locks.setdefault((app_id, user_id), asyncio.Lock())

    async def _unread_ids(self, app_id: str, user_id: str, last: str) -> list[str]:
        owner = {"app_id": app_id, "user_id": user_id}
        limit = self._read_all_chunk
        rows = await self._engine.fetch(SELECT_UNREAD_IDS, **owner, after=last, limit=limit)
        return [row[0] for row in rows]


def _steps_of(action: InboxAction, one: dict[str, str], now: int) -> tuple[Step, ...]:
    """Return the steps of an action; the last one changes the notification."""
    match action:
        case InboxAction.READ:
            return COUNT_LESS.guard(**one), READ.guard(**one, now=now)
        case InboxAction.UNREAD:
            return COUNT_MORE.guard(**one), UNREAD.guard(**one)
        case InboxAction.DISMISS:
            # Whether it is unread is checked under the lock.
            return TAKE_LISTED.guard(**one), COUNT_LESS.step(**one), DISMISS.guard(**one, now=now)
        case InboxAction.CLICK:
            return (CLICK.guard(**one, now=now),)
