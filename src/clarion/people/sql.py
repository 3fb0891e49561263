"""Users and the topics they follow in SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from clarion.errors import Conflict, EmailTaken, Overloaded, UserDeleted
from clarion.pages import Page
from clarion.people.fields import fold_email
from clarion.people.model import User
from clarion.store.engine import Engine
from clarion.store.records import Record
from clarion.store.statement import Statement, Step, Unit, Value, keys_of, statement

USERS = Record(User)
# Counts the changes of a row, so that no concurrent change is lost. It is no part of a `User`.
_COLUMNS = f"{USERS.columns}, version"
_ATTEMPTS = 10

_LIVES = "deleted_at IS NULL"
# A user from before addresses were unique may share theirs: they keep it, without the key, for as
# long as another user has the key and the address is not changed.
_EMAIL_KEY = """CASE WHEN users.email IS NOT DISTINCT FROM {email} AND users.email_key IS NULL
    AND EXISTS (SELECT 1 FROM users AS other WHERE other.app_id = users.app_id
    AND other.email_key = {key} AND other.deleted_at IS NULL)
    THEN NULL ELSE {key} END"""
_OWN = ("preferences", "created_at", "last_login_at", "last_seen_at", "deleted_at")

PUT = statement(
    "put_user",
    f"""INSERT INTO users ({_COLUMNS}, email_key) VALUES ({USERS.parameters}, 1, :email_key)
    ON CONFLICT (app_id, id) DO UPDATE SET {USERS.assign_others("app_id", "id", *_OWN)},
    last_login_at = COALESCE(excluded.last_login_at, users.last_login_at),
    email_key = {_EMAIL_KEY.format(email="excluded.email", key="excluded.email_key")},
    version = users.version + 1 WHERE users.{_LIVES} RETURNING {_COLUMNS}""",
)
REPLACE = statement(
    "replace_user",
    f"""UPDATE users
    SET {USERS.assign_others("app_id", "id", "last_seen_at", "deleted_at", source=":{}")},
    email_key = {_EMAIL_KEY.format(email=":email", key=":email_key")},
    version = version + 1
    WHERE app_id = :app_id AND id = :id AND version = :version AND {_LIVES} RETURNING {_COLUMNS}""",
)
_REPLACED = [name for name in REPLACE.names if name != "version"]
# Two units of a batch may write the same user: only the tags of the later one are taken.
DELETE_TAGS = statement(
    "delete_user_tags",
    """DELETE FROM user_tags WHERE app_id = :app_id AND user_id = :id
    AND tag NOT IN (SELECT key FROM json_each(:keys)) AND EXISTS (SELECT 1 FROM users
    WHERE users.app_id = :app_id AND users.id = :id AND users.tags = :tags)""",
)
ADD_TAGS = statement(
    "add_user_tags",
    """INSERT INTO user_tags (app_id, tag, user_id)
    SELECT users.app_id, each.key, users.id FROM users, json_each(:keys) AS each
    WHERE users.app_id = :app_id AND users.id = :id AND users.tags = :tags
    ON CONFLICT (app_id, tag, user_id) DO NOTHING""",
)
GET = statement(
    "get_user",
    f"SELECT {_COLUMNS} FROM users WHERE app_id = :app_id AND id = :id AND {_LIVES}",
)
# Both engines read a list only as an object whose keys are its items.
FIND_MANY = statement(
    "find_users",
    f"""SELECT {USERS.columns} FROM users WHERE app_id = :app_id
    AND id IN (SELECT key FROM json_each(:ids)) AND {_LIVES}""",
)
LIST_IDS = statement(
    "list_active_user_ids",
    f"""SELECT id FROM users WHERE app_id = :app_id AND id > :after AND status = 'active'
    AND {_LIVES} ORDER BY id LIMIT :limit""",
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
    SELECT app_id, :topic, id, :now FROM users
    WHERE app_id = :app_id AND id = :user_id AND deleted_at IS NULL
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
    AND users.deleted_at IS NULL ORDER BY found.user_id""",
)


class SqlUsers:
    """The `Users` port. A cursor is the last item of its page."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, user: User) -> tuple[User, bool]:
        steps = (PUT.guard(**_values(user)), *_write_tags(user))
        with _explain_email():
            done = await self._engine.write(Unit(user.id, steps, user.app_id))
        if done is None:
            raise UserDeleted
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
            steps: tuple[Step, ...] = (_replace(edited, version),)
            if edited.tags != user.tags:
                steps += _write_tags(edited)
            with _explain_email():
                done = await self._engine.write(Unit(user_id, steps, app_id))
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


def _values(user: User) -> dict[str, Value]:
    return {**USERS.values(user), "email_key": user.email and fold_email(user.email)}


def _replace(user: User, version: int) -> Step:
    values = _values(user)
    return REPLACE.guard(version=version, **{name: values[name] for name in _REPLACED})


def _write_tags(user: User) -> tuple[Step, ...]:
    """Return the steps that write the tags of a user who was written before, in the same unit."""
    written, keys = USERS.values(user)["tags"], keys_of(user.tags)
    values = {"app_id": user.app_id, "id": user.id, "keys": keys, "tags": written}
    delete = DELETE_TAGS.step(**values)
    return (delete, ADD_TAGS.step(**values)) if user.tags else (delete,)


@contextmanager
def _explain_email() -> Iterator[None]:
    """Name the field if a write in the block is a `Conflict`: nothing else of a user is unique."""
    try:
        yield
    except Conflict as error:
        raise EmailTaken from error
