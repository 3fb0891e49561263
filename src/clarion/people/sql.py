"""People and what they follow in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from clarion.errors import Overloaded
from clarion.pages import Page
from clarion.people.model import Preferences, User, UserStatus
from clarion.store.statement import Row, Unit, statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from clarion.store.engine import Engine
    from clarion.store.statement import Value

_COLUMNS = """app_id, id, name, email, phone, language, timezone, status, tags, attributes,
preferences, created_at, updated_at, version"""
_TRIES = 10

PUT = statement(
    "put_user",
    f"""INSERT INTO users ({_COLUMNS}) VALUES (:app_id, :id, :name, :email, :phone, :language,
    :timezone, :status, :tags, :attributes, :preferences, :created_at, :updated_at, 1)
    ON CONFLICT (app_id, id) DO UPDATE SET name = excluded.name, email = excluded.email,
    phone = excluded.phone, language = excluded.language, timezone = excluded.timezone,
    status = excluded.status, tags = excluded.tags, attributes = excluded.attributes,
    updated_at = excluded.updated_at, version = users.version + 1
    RETURNING {_COLUMNS}""",
)
REPLACE = statement(
    "replace_user",
    f"""UPDATE users SET name = :name, email = :email, phone = :phone, language = :language,
    timezone = :timezone, status = :status, tags = :tags, attributes = :attributes,
    preferences = :preferences, updated_at = :updated_at, version = version + 1
    WHERE app_id = :app_id AND id = :id AND version = :version RETURNING {_COLUMNS}""",
)
GET = statement("get_user", f"SELECT {_COLUMNS} FROM users WHERE app_id = :app_id AND id = :id")
# The one way to hand over a list that both engines read: an object whose keys are its items.
FIND_MANY = statement(
    "find_users",
    f"""SELECT {_COLUMNS} FROM users WHERE app_id = :app_id
    AND id IN (SELECT key FROM json_each(:ids))""",
)
LIST_IDS = statement(
    "list_active_user_ids",
    """SELECT id FROM users WHERE app_id = :app_id AND id > :after AND status = 'active'
    ORDER BY id LIMIT :limit""",
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
LIST_FOLLOWERS = statement(
    "list_followers",
    """SELECT follows.user_id FROM follows
    JOIN users ON users.app_id = follows.app_id AND users.id = follows.user_id
    WHERE follows.app_id = :app_id AND follows.topic = :topic AND follows.user_id > :after
    AND users.status = 'active' ORDER BY follows.user_id LIMIT :limit""",
)

_encode = msgspec.json.Encoder().encode
_read_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_read_attributes = msgspec.json.Decoder(dict[str, object]).decode
_read_preferences = msgspec.json.Decoder(Preferences).decode
_NO_PREFERENCES = Preferences()
_STATUSES = {status.value: status for status in UserStatus}


class SqlUsers:
    """The `Users` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, user: User) -> tuple[User, bool]:
        """Add a person, or replace what is known of them but their preferences."""
        step = PUT.step(**_values(user), created_at=user.created_at)
        done = await self._engine.write(Unit(user.id, (step,)))
        assert done is not None  # noqa: S101 - there is no guard that could refuse it
        row = done[0][0]
        return _user(row), row[13] == 1

    async def get(self, app_id: str, user_id: str) -> User | None:
        """Return the person, or None."""
        rows = await self._engine.fetch(GET, app_id=app_id, id=user_id)
        return _user(rows[0]) if rows else None

    async def find_many(self, app_id: str, ids: Collection[str]) -> dict[str, User]:
        """Return those of the people who are there."""
        if not ids:
            return {}
        keys = _encode(dict.fromkeys(ids)).decode()
        rows = await self._engine.fetch(FIND_MANY, app_id=app_id, ids=keys)
        return {row[1]: _user(row) for row in rows}

    async def patch(self, app_id: str, user_id: str, edit: Callable[[User], User]) -> User | None:
        """Replace a person by what `edit` makes of them."""
        for _ in range(_TRIES):
            rows = await self._engine.fetch(GET, app_id=app_id, id=user_id)
            if not rows:
                return None
            edited = edit(_user(rows[0]))
            step = REPLACE.guard(**_values(edited), version=rows[0][13])
            done = await self._engine.write(Unit(user_id, (step,)))
            if done:
                return _user(done[0][0])
        msg = "Too many change this person at the same moment; nothing was stored, try again."
        raise Overloaded(msg)

    async def follow(self, app_id: str, user_id: str, topic: str, now: int) -> bool:
        """Let a person follow a topic."""
        step = FOLLOW.guard(app_id=app_id, topic=topic, user_id=user_id, now=now)
        return await self._engine.write(Unit(user_id, (step,))) is not None

    async def unfollow(self, app_id: str, user_id: str, topic: str) -> bool:
        """End that."""
        step = UNFOLLOW.guard(app_id=app_id, topic=topic, user_id=user_id)
        return await self._engine.write(Unit(user_id, (step,))) is not None

    async def followed(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the topics that a person follows."""
        rows = await self._engine.fetch(
            LIST_FOLLOWED, app_id=app_id, user_id=user_id, after=after or "", limit=limit + 1
        )
        return _page(rows, limit)

    async def followers(
        self, app_id: str, topic: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the ids of the active people who follow a topic."""
        rows = await self._engine.fetch(
            LIST_FOLLOWERS, app_id=app_id, topic=topic, after=after or "", limit=limit + 1
        )
        return _page(rows, limit)

    async def list_ids(self, app_id: str, *, after: str | None, limit: int) -> Page[str]:
        """Return the ids of the active people of an app."""
        rows = await self._engine.fetch(LIST_IDS, app_id=app_id, after=after or "", limit=limit + 1)
        return _page(rows, limit)


def _page(rows: Sequence[Row], limit: int) -> Page[str]:
    items = tuple(row[0] for row in rows[:limit])
    return Page(items, items[-1] if len(rows) > limit else None)


def _values(user: User) -> dict[str, Value]:
    return {
        "app_id": user.app_id,
        "id": user.id,
        "name": user.name,
        "email": user.email,
        "phone": user.phone,
        "language": user.language,
        "timezone": user.timezone,
        "status": user.status.value,
        "tags": _encode(user.tags).decode(),
        "attributes": _encode(user.attributes).decode(),
        "preferences": _write_preferences(user.preferences),
        "updated_at": user.updated_at,
    }


def _write_preferences(preferences: Preferences) -> str:
    given = {
        "quiet_hours": preferences.quiet_hours,
        "categories": preferences.categories,
        "types": preferences.types,
    }
    return _encode({name: value for name, value in given.items() if value}).decode()


def _user(row: Row) -> User:
    # Most people have set nothing: what is empty is not parsed, for batches read a thousand.
    return User(
        app_id=row[0],
        id=row[1],
        name=row[2],
        email=row[3],
        phone=row[4],
        language=row[5],
        timezone=row[6],
        status=_STATUSES[row[7]],
        tags=() if row[8] == "[]" else _read_tags(row[8]),
        attributes={} if row[9] == "{}" else _read_attributes(row[9]),
        preferences=_NO_PREFERENCES if row[10] == "{}" else _read_preferences(row[10]),
        created_at=row[11],
        updated_at=row[12],
    )
