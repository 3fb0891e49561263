"""Users and the topics they follow in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import msgspec

from clarion.errors import Conflict, EmailTaken, Overloaded, RequestError, UserDeleted
from clarion.pacing import Slices
from clarion.pages import (
    LARGEST,
    READ_FOR_PAGE,
    Page,
    fill_page,
    read_cursor,
    write_cursor,
)
from clarion.people.fields import fold_email, fold_name
from clarion.people.model import StoredUser, User, UserFilter
from clarion.people.tables import USERS
from clarion.push.sql import topics
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.row_turns import RowTurns
from clarion.store.statement import Row, Statement, Step, Unit, Value, keys_of, statement

# Takes the user as stored, or None if there is none, and returns the user to store.
Edit = Callable[[User | None], User]
T = TypeVar("T")
# Counts the changes of a row, so that no concurrent change is lost. It is no part of a `User`.
_COLUMNS = f"{USERS.columns}, version"
_ATTEMPTS = 10
SEEN_EVERY_MS = 60_000
# As many as a device can be subscribed to.
FOLLOWS_LIMIT = topics.SUBSCRIPTIONS_LIMIT

_LIVES = "deleted_at IS NULL"
# Sorted after every other one on both engines.
_LAST_CHARACTER = "\U0010ffff"
_OWN = ("preferences", "created_at", "last_login_at", "last_seen_at", "deleted_at")

PUT = statement(
    "put_user",
    f"""INSERT INTO users ({_COLUMNS}, email_key) VALUES ({USERS.parameters}, 1, :email_key)
    ON CONFLICT (app_id, id) DO UPDATE SET {USERS.assign_others("app_id", "id", *_OWN)},
    last_login_at = COALESCE(excluded.last_login_at, users.last_login_at),
    email_key = excluded.email_key,
    version = users.version + 1 WHERE users.{_LIVES} RETURNING {_COLUMNS}""",
)
ADD = statement(
    "add_user",
    f"""INSERT INTO users ({_COLUMNS}, email_key) VALUES ({USERS.parameters}, 1, :email_key)
    ON CONFLICT (app_id, id) DO NOTHING RETURNING {_COLUMNS}""",
)
REPLACE = statement(
    "replace_user",
    f"""UPDATE users
    SET {USERS.assign_others("app_id", "id", "last_seen_at", "deleted_at", source=":{}")},
    email_key = :email_key,
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
# With those that were deleted: they cannot be written.
FIND_STORED = statement(
    "find_stored_users",
    f"""SELECT {_COLUMNS} FROM users WHERE app_id = :app_id
    AND id IN (SELECT key FROM json_each(:ids))""",
)
FIND_HOLDERS = statement(
    "find_holders_of_addresses",
    f"""SELECT email_key, id FROM users WHERE app_id = :app_id
    AND email_key IN (SELECT key FROM json_each(:keys)) AND {_LIVES}""",
)
# A list returns the place of each row behind its columns.
FIND_BY_EMAIL = statement(
    "find_user_by_email",
    f"""SELECT {USERS.columns}, id FROM users WHERE app_id = :app_id AND email_key = :email_key
    AND {_LIVES} LIMIT :limit""",
)
# Limited before deleted users are left out, as are the followers below.
LIST = statement(
    "list_users",
    f"""SELECT {USERS.columns}, id FROM users WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT :limit""",
)
LIST_BY_IDS = statement(
    "list_users_by_ids",
    f"""SELECT {USERS.columns}, id FROM users WHERE app_id = :app_id
    AND id IN (SELECT key FROM json_each(:ids)) AND id > :after AND {_LIVES}
    ORDER BY id LIMIT :limit""",
)
LIST_BY_NAME = statement(
    "list_users_by_name",
    f"""SELECT {USERS.columns}, id || ' ' || lower(name) FROM users WHERE app_id = :app_id
    AND name IS NOT NULL AND lower(name) >= :name AND lower(name) < :name_end
    AND (lower(name), id) > (:after_name, :after) AND {_LIVES}
    ORDER BY lower(name), id LIMIT :limit""",
)
LIST_BY_STATUS, LIST_BY_LANGUAGE = (
    statement(
        f"list_users_by_{column}",
        f"""SELECT {USERS.columns}, id FROM users WHERE app_id = :app_id AND {column} = :{column}
        AND id > :after AND {_LIVES} ORDER BY id LIMIT :limit""",
    )
    for column in ("status", "language")
)
LIST_BY_TAG = statement(
    "list_users_by_tag",
    f"""SELECT {", ".join(f"users.{name}" for name in USERS.names)}, found.user_id FROM (
      SELECT app_id, user_id FROM user_tags WHERE app_id = :app_id AND tag = :tag
      AND user_id > :after ORDER BY user_id LIMIT :limit) AS found
    JOIN users ON users.app_id = found.app_id AND users.id = found.user_id
    ORDER BY found.user_id""",
)
LIST_BY_CREATION, LIST_BY_LAST_SEEN = (
    statement(
        f"list_users_by_{name}",
        f"""SELECT {USERS.columns}, {column}, id FROM users WHERE app_id = :app_id
        AND {column} >= :since AND {column} < :before AND ({column}, id) > (:since, :id)
        AND {_LIVES} ORDER BY {column}, id LIMIT :limit""",
    )
    for name, column in (("creation", "created_at"), ("last_seen", "last_seen_at"))
)
# The clock may have been ahead: a time to come is replaced, too.
TOUCH = statement(
    "touch_user",
    f"""UPDATE users SET last_seen_at = :now WHERE app_id = :app_id AND id = :id AND {_LIVES}
    AND (last_seen_at IS NULL OR last_seen_at <= :before OR last_seen_at > :now)""",
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
    f"""INSERT INTO follows (app_id, topic, user_id, created_at)
    SELECT app_id, :topic, id, CAST(:now AS BIGINT) FROM users
    WHERE app_id = :app_id AND id = :user_id AND deleted_at IS NULL
    AND (SELECT COUNT(*) FROM follows
    WHERE app_id = :app_id AND user_id = :user_id AND topic <> :topic) < {FOLLOWS_LIMIT}
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
# Limited before inactive users are left out: there may be a million of them.
LIST_FOLLOWERS = statement(
    "list_followers",
    """SELECT found.user_id, users.status FROM (
      SELECT app_id, user_id FROM follows WHERE app_id = :app_id AND topic = :topic
      AND user_id > :after ORDER BY user_id LIMIT :limit) AS found
    LEFT JOIN users ON users.app_id = found.app_id AND users.id = found.user_id
    AND users.deleted_at IS NULL ORDER BY found.user_id""",
)


class Users:
    """The users of the apps. A user id is unique within its app.

    A deleted user is found by no method and is in no list. A cursor is the last item of its page.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turns = RowTurns()

    async def put(self, user: User) -> tuple[User, bool]:
        """Create or replace a user; return the stored user and whether it is new.

        An existing user keeps `preferences`, `created_at`, `last_seen_at`, and `last_login_at`
        unless it is given. `EmailTaken` if another user of the app has the address, in capitals
        or not; `UserDeleted` if the user was deleted.
        """
        if await self._is_taken(user):
            before = await self.get(user.app_id, user.id)
            if before is None or before.email != user.email:
                raise EmailTaken
        steps = (PUT.guard(**_values(user)), *_write_tags(user))
        with _explain_email():
            done = await self._engine.write(Unit(user.id, steps, user.app_id))
        if done is None:
            raise UserDeleted
        row = done[0][0]
        return USERS.read(row), row[-1] == 1

    async def get(self, app_id: str, user_id: str) -> User | None:
        """Return the user, whether active or not, or None."""
        return USERS.first(await self._engine.fetch(GET, app_id=app_id, id=user_id))

    async def find_many(self, app_id: str, ids: Collection[str]) -> dict[str, User]:
        """Return those users that exist, by id, in one read."""
        if not ids:
            return {}
        keys = msgspec.json.encode(dict.fromkeys(ids)).decode()
        rows = await self._engine.fetch(FIND_MANY, app_id=app_id, ids=keys)
        return {user.id: user for user in map(USERS.read, rows)}

    async def patch(self, app_id: str, user_id: str, edit: Callable[[User], User]) -> User | None:
        """Replace a user by the result of `edit` and return it; None if there is no such user.

        No concurrent change is lost: if another writer was faster, `edit` is called again with
        the newer user. `Overloaded` after ten such attempts. App, id, `created_at`,
        `last_seen_at` and `deleted_at` stay. `EmailTaken` as in `put`.
        """
        async with self._turns.take(app_id, user_id):
            return await self._patch(app_id, user_id, edit)

    async def _patch(self, app_id: str, user_id: str, edit: Callable[[User], User]) -> User | None:
        for _ in range(_ATTEMPTS):
            rows = await self._engine.fetch(GET, app_id=app_id, id=user_id)
            if not rows:
                return None
            user, version = USERS.read(rows[0]), rows[0][-1]
            edited = replace(edit(user), app_id=app_id, id=user_id, created_at=user.created_at)
            if edited.email != user.email and await self._is_taken(edited):
                raise EmailTaken
            with _explain_email():
                done = await self._engine.write(_change(StoredUser(edited, user), version))
            if done:
                return USERS.read(done[0][0])
        raise Overloaded("Too many concurrent changes of this user; nothing was stored. Try again.")

    async def edit_many(
        self, app_id: str, edits: Mapping[str, Edit]
    ) -> dict[str, StoredUser | RequestError]:
        """Create or change many users of an app, and return the outcome for each, by id.

        Each edit gets the user, or None if there is none, and returns the user to store. An edit
        that raises a `RequestError`, an address that another user has (`EmailTaken`) and a deleted
        user (`UserDeleted`) are outcomes: the others are stored nevertheless, in few commits. No
        concurrent change is lost, as in `patch`. `ServiceError` if it is not known which users
        were stored; the same edits can be repeated.
        """
        outcomes: dict[str, StoredUser | RequestError] = {}
        for _ in range(_ATTEMPTS):
            waiting = {each: edits[each] for each in edits if each not in outcomes}
            if not waiting:
                return outcomes
            outcomes |= await self._edit_once(app_id, waiting)
        raise Overloaded("Too many concurrent changes of these users. Try again.")

    async def _edit_once(
        self, app_id: str, edits: Mapping[str, Edit]
    ) -> dict[str, StoredUser | RequestError]:
        """Edit users as they are now; those that another writer changed meanwhile are left out."""
        found = await self._find_stored(app_id, edits)
        outcomes: dict[str, StoredUser | RequestError] = {}
        proposed: dict[str, StoredUser] = {}
        async for user_id, edit in _in_slices(edits.items()):
            before, _ = found.get(user_id, (None, 0))
            try:
                proposed[user_id] = _apply(edit, app_id, user_id, before)
            except RequestError as error:
                outcomes[user_id] = error
        outcomes |= await self._find_taken(app_id, proposed)
        written = await self._write_all(
            _change(each, found[user_id][1]) if each.before else _add(each.user)
            for user_id, each in proposed.items()
            if user_id not in outcomes
        )
        async for user_id, rows in _in_slices(written.items()):
            if isinstance(rows, EmailTaken):
                outcomes[user_id] = rows
            elif rows is not None:
                before = proposed[user_id].before
                outcomes[user_id] = StoredUser(USERS.read(rows[0][0]), before)
        return outcomes

    async def _find_stored(self, app_id: str, ids: Iterable[str]) -> dict[str, tuple[User, int]]:
        """Return users by id, each with the version of the row."""
        found: dict[str, tuple[User, int]] = {}
        waiting, slices = iter(ids), Slices()
        while chunk := list(islice(waiting, READ_FOR_PAGE)):
            rows = await self._engine.fetch(FIND_STORED, app_id=app_id, ids=keys_of(chunk))
            users = map(USERS.read, rows)
            found |= {user.id: (user, row[-1]) for user, row in zip(users, rows, strict=True)}
            await slices.pause()
        return found

    async def _is_taken(self, user: User) -> bool:
        """Return whether another user has the address."""
        return bool(await self._find_taken(user.app_id, {user.id: StoredUser(user, None)}))

    async def _find_taken(
        self, app_id: str, proposed: Mapping[str, StoredUser]
    ) -> dict[str, EmailTaken]:
        """Return those whose new address another user has, or gets with them.

        The index refuses them, too. But on PostgreSQL that has a whole batch run again.
        """
        keys = {
            user_id: fold_email(each.user.email)
            for user_id, each in proposed.items()
            if each.user.email and (each.before is None or each.before.email != each.user.email)
        }
        if not keys:
            return {}
        sent = keys_of(keys.values())
        holders: dict[str, str] = dict(
            await self._engine.fetch(FIND_HOLDERS, app_id=app_id, keys=sent)
        )
        return {
            user_id: EmailTaken()
            for user_id, key in keys.items()
            if holders.setdefault(key, user_id) != user_id
        }

    async def _write_all(self, units: Iterable[Unit]) -> dict[str, Rows | EmailTaken | None]:
        """Queue units for the next commits, without waiting for each; return what became of them.

        `ServiceError` if one failed for another reason than its address.
        """
        queued: dict[str, asyncio.Future[Rows | None]] = {}
        try:
            async for unit in _in_slices(units):
                queued[unit.key] = self._engine.commit.write(unit)
        finally:
            done = await asyncio.gather(*queued.values(), return_exceptions=True)
        return {key: _outcome_of(each) for key, each in zip(queued, done, strict=True)}

    async def list(
        self, app_id: str, chosen: UserFilter, *, after: str | None, limit: int
    ) -> Page[User]:
        """Return the users for whom a filter holds.

        Sorted by what is searched for: name, creation or last activity; otherwise by id. A page
        with several conditions may have fewer than `limit`, even none, and a cursor: it reads a
        bounded number of users that meet the first condition.
        """
        query, values = _choose_list(chosen, after)
        read = limit if _count_conditions(chosen) <= 1 else max(limit, READ_FOR_PAGE)
        rows = await self._engine.fetch(query, app_id=app_id, limit=read + 1, **values)
        # A user may have 80 KiB.
        users = [(USERS.read(row), row) async for row in _in_slices(rows)]
        return fill_page(
            users,
            read=read,
            limit=limit,
            item_of=lambda found: found[0] if _fits(found[0], chosen) else None,
            place_of=lambda found: _place_of(found[1]),
        )

    async def touch(self, seen: Collection[tuple[str, str]], now: int) -> None:
        """Set when users, given as app and id, were last seen, at most once a minute for each."""
        if not seen:
            return
        times = {"now": now, "before": now - SEEN_EVERY_MS}
        # In key order, as every batch is written.
        rows = [TOUCH.bind(app_id=app, id=user, **times) for app, user in sorted(seen)]
        await self._engine.write(Unit("", (TOUCH.many(rows),)))

    async def follow(self, app_id: str, user_id: str, topic: str, now: int) -> bool:
        """Make a user follow a topic; False if there is no such user. Idempotent.

        Creates the topic, closed, if it does not exist. `Conflict` if the user follows 1,000 other
        topics.
        """
        steps = (
            FOLLOW.guard(app_id=app_id, topic=topic, user_id=user_id, now=now),
            topics.ENSURE.step(app_id=app_id, topic=topic, now=now),
        )
        done = await self._engine.write(Unit(user_id, steps, app_id))
        if done is None and await self.get(app_id, user_id) is not None:
            raise Conflict(
                f"This user follows {FOLLOWS_LIMIT:,} topics, which is the limit: unfollow one "
                "first."
            )
        return done is not None

    async def unfollow(self, app_id: str, user_id: str, topic: str) -> bool:
        """Stop following a topic; False if the user did not follow it."""
        step = UNFOLLOW.guard(app_id=app_id, topic=topic, user_id=user_id)
        return await self._engine.write(Unit(user_id, (step,), app_id)) is not None

    async def followed(
        self, app_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the topics that a user follows, sorted by name."""
        return await self._list(LIST_FOLLOWED, after, limit, app_id=app_id, user_id=user_id)

    async def followers(
        self, app_id: str, topic: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the ids of the active users that follow a topic, sorted.

        A page may have fewer than `limit`, even none, and a cursor: the others are not active.
        """
        rows = await self._engine.fetch(
            LIST_FOLLOWERS, app_id=app_id, topic=topic, after=after or "", limit=limit + 1
        )
        items = tuple(user_id for user_id, status in rows[:limit] if status == "active")
        return Page(items, rows[limit - 1][0] if len(rows) > limit else None)

    async def list_inactive(
        self, after: tuple[int, str, str], limit: int
    ) -> tuple[tuple[int, str, str], ...]:
        """Return inactive users of all apps by the time of their last change, oldest first.

        Each as that time, app and user id; only those after `after`, which is given likewise.
        """
        since, app_id, user_id = after
        rows = await self._engine.fetch(
            LIST_INACTIVE, since=since, app_id=app_id, id=user_id, limit=limit
        )
        return tuple((time, app, user) for time, app, user in rows)

    async def list_ids(self, app_id: str, *, after: str | None, limit: int) -> Page[str]:
        """Return the ids of the active users of an app, sorted."""
        return await self._list(LIST_IDS, after, limit, app_id=app_id)

    async def _list(
        self, query: Statement, after: str | None, limit: int, **values: str
    ) -> Page[str]:
        rows = await self._engine.fetch(query, after=after or "", limit=limit + 1, **values)
        items = tuple(row[0] for row in rows[:limit])
        return Page(items, items[-1] if len(rows) > limit else None)


def _values(user: User) -> dict[str, Value]:
    return {**USERS.values(user), "email_key": user.email and fold_email(user.email)}


async def _in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    slices = Slices()
    for item in items:
        await slices.pause()
        yield item


def _outcome_of(done: Rows | BaseException | None) -> Rows | EmailTaken | None:
    if isinstance(done, Conflict):
        return EmailTaken()
    if isinstance(done, BaseException):
        raise done
    return done


def _apply(edit: Edit, app_id: str, user_id: str, before: User | None) -> StoredUser:
    if before is not None and before.deleted_at is not None:
        raise UserDeleted
    user = replace(edit(before), app_id=app_id, id=user_id)
    if before is not None:
        user = replace(user, created_at=before.created_at)
    return StoredUser(user, before)


def _add(user: User) -> Unit:
    tags = _write_tags(user) if user.tags else ()
    return Unit(user.id, (ADD.guard(**_values(user)), *tags), user.app_id)


def _change(stored: StoredUser, version: int) -> Unit:
    """Return the unit that replaces a user who has this version."""
    user, values = stored.user, _values(stored.user)
    step = REPLACE.guard(version=version, **{name: values[name] for name in _REPLACED})
    is_tagged_anew = stored.before is None or stored.before.tags != user.tags
    tags = _write_tags(user) if is_tagged_anew else ()
    return Unit(user.id, (step, *tags), user.app_id)


def _choose_list(chosen: UserFilter, after: str | None) -> tuple[Statement, dict[str, Value]]:
    """Return the list statement for the most selective condition, and its values."""
    by_id: dict[str, Value] = {"after": after or ""}
    if found := _choose_few(chosen, by_id):
        return found
    if chosen.last_seen_after is not None or chosen.last_seen_before is not None:
        times = chosen.last_seen_after, chosen.last_seen_before
        return LIST_BY_LAST_SEEN, _range(*times, after)
    if chosen.created_after is not None or chosen.created_before is not None:
        return LIST_BY_CREATION, _range(chosen.created_after, chosen.created_before, after)
    if chosen.language is not None:
        return LIST_BY_LANGUAGE, {**by_id, "language": chosen.language}
    if chosen.status is not None:
        return LIST_BY_STATUS, {**by_id, "status": chosen.status.value}
    return LIST, by_id


def _choose_few(
    chosen: UserFilter, by_id: dict[str, Value]
) -> tuple[Statement, dict[str, Value]] | None:
    """Return the list statement for a condition on users or a tag, or None."""
    if chosen.email is not None:
        return FIND_BY_EMAIL, {"email_key": fold_email(chosen.email)}
    if chosen.ids is not None:
        return LIST_BY_IDS, {**by_id, "ids": keys_of(chosen.ids)}
    if chosen.name is not None:
        return LIST_BY_NAME, _begin_names(chosen.name, str(by_id["after"]))
    if chosen.tag is not None:
        return LIST_BY_TAG, {**by_id, "tag": chosen.tag}
    return None


def _begin_names(prefix: str, after: str) -> dict[str, Value]:
    """Return the range of names, and the id and name of the last user of the page before."""
    name = fold_name(prefix)
    user_id, _, after_name = after.partition(" ")
    end = name + _LAST_CHARACTER
    return {"name": name, "name_end": end, "after_name": after_name, "after": user_id}


def _range(first: int | None, before: int | None, after: str | None) -> dict[str, Value]:
    since, user_id = read_cursor(after) if after else (first or 0, "")
    return {"since": since, "id": user_id, "before": LARGEST if before is None else before}


def _place_of(row: Row) -> str:
    """Return the cursor after a row of a list: the id, or a time and the id."""
    place = row[len(USERS.names) :]
    return str(place[0]) if len(place) == 1 else write_cursor(*place)


def _count_conditions(chosen: UserFilter) -> int:
    """Return how many there are; the two ends of a range are one."""
    created = (chosen.created_after, chosen.created_before)
    last_seen = (chosen.last_seen_after, chosen.last_seen_before)
    single = (chosen.ids, chosen.name, chosen.email, chosen.status, chosen.tag, chosen.language)
    ranges = [any(end is not None for end in ends) for ends in (created, last_seen)]
    return sum(each is not None for each in single) + sum(ranges)


def _fits(user: User, chosen: UserFilter) -> bool:
    return (
        user.deleted_at is None
        and (chosen.ids is None or user.id in chosen.ids)
        and (chosen.name is None or fold_name(user.name or "").startswith(fold_name(chosen.name)))
        and chosen.status in (None, user.status)
        and chosen.language in (None, user.language)
        and (chosen.tag is None or chosen.tag in user.tags)
        and _is_within(user.created_at, chosen.created_after, chosen.created_before)
        and _is_within(user.last_seen_at, chosen.last_seen_after, chosen.last_seen_before)
    )


def _is_within(moment: int | None, first: int | None, before: int | None) -> bool:
    if first is None and before is None:
        return True
    return moment is not None and (first or 0) <= moment < (LARGEST if before is None else before)


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


def is_inactive(app_id: str, user_id: str) -> str:
    """Return the condition that a user is inactive or deleted, for statements of other slices."""
    return f"""EXISTS (SELECT 1 FROM users
    WHERE users.app_id = {app_id} AND users.id = {user_id}
    AND (users.status = 'inactive' OR users.deleted_at IS NOT NULL))"""
