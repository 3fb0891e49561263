"""Users and the topics they follow in SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import msgspec

from clarion.errors import Overloaded
from clarion.pages import Page
from clarion.people.model import User
from clarion.store.engine import Engine
from clarion.store.records import Record
from clarion.store.statement import Statement, Unit, statement

USERS = Record(User)
# Counts the changes of a row, so that no concurrent change is lost. It is no part of a `User`.
_COLUMNS = f"{USERS.columns}, version"
_ATTEMPTS = 10

PUT = statement(
    "put_user",
    f"""INSERT INTO users ({_COLUMNS}) VALUES ({USERS.parameters}, 1)
    ON CONFLICT (app_id, id) DO UPDATE SET
    {USERS.assign_others("app_id", "id", "preferences", "created_at")},
    version = users.version + 1 RETURNING {_COLUMNS}""",
)
REPLACE = statement(
    "replace_user",
    f"""UPDATE users SET {USERS.assign_others("app_id", "id", source=":{}")},
    version = version + 1
    WHERE app_id = :app_id AND id = :id AND version = :version RETURNING {_COLUMNS}""",
)
GET = statement("get_user", f"SELECT {_COLUMNS} FROM users WHERE app_id = :app_id AND id = :id")
# Both engines read a list only as an object whose keys are its items.
FIND_MANY = statement(
    "find_users",
    f"""SELECT {USERS.columns} FROM users WHERE app_id = :app_id
    AND id IN (SELECT key FROM json_each(:ids))""",
)
LIST_IDS = statement(
    "list_active_user_ids",
    """SELECT id FROM users WHERE app_id = :app_id AND id > :after AND status = 'active'
    ORDER BY id LIMIT :limit""",
)
LIST_INACTIVE = statement(
    "list_inactive_users",
    """SELECT updated_at, app_id, id FROM users WHERE status = 'inactive'
    AND updated_at >= :since AND (updated_at, app_id, id) > (:since, :app_id, :id)
    ORDER BY updated_at, app_id, id LIMIT :limit""",
)
FOLLOW = statement(
    "follow_topic",
    """INSERT INTO follows (app_id, topic, user_id, created_at)
    SELECT app_id, :topic, id, :now FROM users WHERE app_id = :app_id AND id = :user_id
    ON CONFLICT (app_id, topic, user_id) DO UPDATE SET created_at = follows.created_at
    RETURNING user_id""",
)
UNFOLLOW = statement(
    "unfollow_topic",
    """DELETE FROM follows WHERE app_id = :app_id AND topic = :topic AND user_id = :user_id
    RETURNING user_id""",
)
LIST_FOLLOWED = statement(
    "list_followed_topics",
    """SELECT topic FROM follows WHERE app_id = :app_id AND user_id = :user_id AND topic > :after
    ORDER BY topic LIMIT :limit""",
)
# Limited before those who are not active are left out: there may be a million of them.
LIST_FOLLOWERS = statement(
    "list_followers",
    """SELECT found.user_id, users.status FROM (
      SELECT app_id, user_id FROM follows WHERE app_id = :app_id AND topic = :topic
      AND user_id > :after ORDER BY user_id LIMIT :limit) AS found
    LEFT JOIN users ON users.app_id = found.app_id AND users.id = found.user_id
    ORDER BY found.user_id""",
)


class SqlUsers:
    """The `Users` port. A cursor is the last item of its page."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, user: User) -> tuple[User, bool]:
        step = PUT.step(**USERS.values(user))
        done = await self._engine.write(Unit(user.id, (step,), user.app_id))
        assert done is not None  # noqa: S101 - there is no guard that could refuse it
        row = done[0][0]
        return USERS.read(row), row[-1] == 1

    async def get(self, app_id: str, user_id: str) -> User | None:
        rows = await self._engine.fetch(GET, app_id=app_id, id=user_id)
        return USERS.read(rows[0]) if rows else None

    async def find_many(self, app_id: str, ids: Collection[str]) -> dict[str, User]:
        if not ids:
            return {}
        keys = msgspec.json.encode(dict.fromkeys(ids)).decode()
        rows = await self._engine.fetch(FIND_MANY, app_id=app_id, ids=keys)
        return {user.id: user for user in map(USERS.read, rows)}

    async def patch(self, app_id: str, user_id: str, edit: Callable[[User], User]) -> User | None:
        for _ in range(_ATTEMPTS):
            rows = await self._engine.fetch(GET, app_id=app_id, id=user_id)
            if not rows:
                return None
            user, version = USERS.read(rows[0]), rows[0][-1]
            edited = replace(edit(user), app_id=app_id, id=user_id, created_at=user.created_at)
            step = REPLACE.guard(**USERS.values(edited), version=version)
            done = await self._engine.write(Unit(user_id, (step,), app_id))
            if done:
                return USERS.read(done[0][0])
        raise Overloaded("Too many concurrent changes of this user; nothing was stored. Try again.")

    async def follow(self, app_id: str, user_id: str, topic: str, now: int) -> bool:
        step = FOLLOW.guard(app_id=app_id, topic=topic, user_id=user_id, now=now)
        return await self._engine.write(Unit(user_id, (step,), app_id)) is not None

    async def unfollow(self, app_id: str, user_id: str, topic: str) -> bool:
        step = UNFOLLOW.guard(app_id=app_id, topic=topic, user_id=user_id)
        return await self._engine.write(Unit(user_id, (step,), app_id)) is not None

    async def followed(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[str]:
        return await self._list(LIST_FOLLOWED, after, limit, app_id=app_id, user_id=user_id)

    async def followers(
        self, app_id: str, topic: str, *, after: str | None, limit: int
    ) -> Page[str]:
        rows = await self._engine.fetch(
            LIST_FOLLOWERS, app_id=app_id, topic=topic, after=after or "", limit=limit + 1
        )
        items = tuple(user_id for user_id, status in rows[:limit] if status == "active")
        return Page(items, rows[limit - 1][0] if len(rows) > limit else None)

    async def list_inactive(
        self, after: tuple[int, str, str], limit: int
    ) -> tuple[tuple[int, str, str], ...]:
        since, app_id, user_id = after
        rows = await self._engine.fetch(
            LIST_INACTIVE, since=since, app_id=app_id, id=user_id, limit=limit
        )
        return tuple((time, app, user) for time, app, user in rows)

    async def list_ids(self, app_id: str, *, after: str | None, limit: int) -> Page[str]:
        return await self._list(LIST_IDS, after, limit, app_id=app_id)

    async def _list(
        self, query: Statement, after: str | None, limit: int, **values: str
    ) -> Page[str]:
        rows = await self._engine.fetch(query, after=after or "", limit=limit + 1, **values)
        items = tuple(row[0] for row in rows[:limit])
        return Page(items, items[-1] if len(rows) > limit else None)
