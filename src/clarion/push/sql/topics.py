"""Topics in SQL. A message to a topic is one row, for any number of subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from clarion.errors import Conflict
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.push.model import Message, StoragePolicy, SubscriptionState, Topic, TopicSubscription
from clarion.push.tables import TOPICS
from clarion.store.engine import Engine
from clarion.store.records import Record
from clarion.store.shared_reads import PAUSE_S, SharedReads
from clarion.store.statement import Row, Step, Unit, keys_of, statement
from clarion.store.sweeps import sweep

SUBSCRIPTIONS_LIMIT = 1000
# Messages or subscriptions of a deleted topic, in one commit.
DELETED_AT_ONCE = 500
_OF_TOPIC = "app_id = :app_id AND topic = :topic"
_SUBSCRIPTIONS = Record(TopicSubscription)
_MESSAGES = Record(Message)
# The topic keeps the highest sequence after its messages are deleted, so none is used twice.
_HIGHEST = f"""(SELECT MAX(sequence) FROM (
SELECT last_sequence AS sequence FROM topics WHERE {_OF_TOPIC}
UNION ALL SELECT MAX(sequence) FROM topic_messages WHERE {_OF_TOPIC}) AS known)"""

CREATE = statement(
    "create_topic",
    f"""INSERT INTO topics ({TOPICS.columns}, last_sequence)
    VALUES ({TOPICS.parameters}, 0) ON CONFLICT (app_id, topic) DO NOTHING RETURNING topic""",
)
PUT = statement(
    "put_topic",
    f"""INSERT INTO topics ({TOPICS.columns}, last_sequence)
    VALUES ({TOPICS.parameters}, 0) ON CONFLICT (app_id, topic) DO UPDATE
    SET is_open = excluded.is_open
    WHERE topics.deleted_at IS NULL AND topics.is_broadcast_channel = 0
    RETURNING {TOPICS.columns}""",
)
ENSURE = statement(
    "ensure_topic",
    """INSERT INTO topics
    (app_id, topic, is_broadcast_channel, storage_policy, last_sequence, created_at)
    VALUES (:app_id, :topic, 0, -1, 0, :now) ON CONFLICT (app_id, topic) DO NOTHING""",
)
# Locks the row: on PostgreSQL the sequences of a topic are assigned in the order of commits.
LOCK = statement(
    "lock_topic",
    """INSERT INTO topics
    (app_id, topic, is_broadcast_channel, storage_policy, last_sequence, created_at)
    VALUES (:app_id, :topic, 0, -1, 0, :now)
    ON CONFLICT (app_id, topic) DO UPDATE SET last_sequence = topics.last_sequence
    WHERE topics.deleted_at IS NULL RETURNING topic""",
)
GET = statement(
    "get_topic",
    f"SELECT {TOPICS.columns} FROM topics WHERE {_OF_TOPIC} AND deleted_at IS NULL",
)
LIST = statement(
    "list_topics",
    f"""SELECT {TOPICS.columns} FROM topics WHERE app_id = :app_id
    AND is_broadcast_channel = :is_broadcast_channel AND deleted_at IS NULL AND topic > :after
    ORDER BY topic LIMIT :limit""",
)
MARK_DELETED = statement(
    "mark_topic_deleted",
    f"""UPDATE topics SET deleted_at = :now
    WHERE {_OF_TOPIC} AND deleted_at IS NULL RETURNING topic""",
)
# Another node may have pruned the topic meanwhile, and a new one may have its name.
CHECK_DELETED = statement(
    "check_topic_deleted",
    f"""UPDATE topics SET deleted_at = deleted_at
    WHERE {_OF_TOPIC} AND deleted_at IS NOT NULL RETURNING topic""",
)
SELECT_MESSAGES = statement(
    "select_topic_messages",
    f"SELECT sequence FROM topic_messages WHERE {_OF_TOPIC} ORDER BY sequence LIMIT :limit",
)
SELECT_SUBSCRIBERS = statement(
    "select_subscribers",
    f"SELECT device_id FROM subscriptions WHERE {_OF_TOPIC} ORDER BY device_id LIMIT :limit",
)
# Counts and writes in one statement. Two nodes at once may each add the last topic of a device; a
# device that has more than the limit then gets the first of them by name.
SUBSCRIBE = statement(
    "subscribe",
    f"""INSERT INTO subscriptions (device_id, topic, app_id, cursor, since_sequence, created_at)
    SELECT :device_id, :topic, :app_id, {_HIGHEST}, {_HIGHEST}, CAST(:now AS BIGINT)
    WHERE (SELECT COUNT(*) FROM subscriptions
    WHERE device_id = :device_id AND topic <> :topic) < {SUBSCRIPTIONS_LIMIT}
    ON CONFLICT (device_id, topic) DO UPDATE SET cursor = subscriptions.cursor
    RETURNING cursor""",
)
UNSUBSCRIBE = statement(
    "unsubscribe",
    """DELETE FROM subscriptions WHERE device_id = :device_id AND topic = :topic
    RETURNING topic""",
)
# Devices in one read: each may have a thousand topics. Without a limit PostgreSQL expects a hundred
# devices, and then prefers to read the whole table.
_DEVICES_AT_A_TIME = 10
SELECT_SUBSCRIPTIONS = statement(
    "select_subscriptions",
    f"""SELECT device_id, {_SUBSCRIPTIONS.columns}
    FROM (SELECT key FROM json_each(:ids) LIMIT {_DEVICES_AT_A_TIME}) AS asked
    JOIN subscriptions ON device_id = asked.key""",
)
FIND_SUBSCRIPTIONS = statement(
    "find_subscriptions",
    """SELECT device_id, topic, cursor, (SELECT last_sequence FROM topics
    WHERE topics.app_id = :app_id AND topics.topic = subscriptions.topic AND deleted_at IS NULL)
    FROM subscriptions
    WHERE app_id = :app_id AND device_id IN (SELECT key FROM json_each(:ids))""",
)
FIND_LAST = statement(
    "find_last_sequences",
    """SELECT topic, last_sequence FROM topics WHERE app_id = :app_id AND deleted_at IS NULL
    AND topic IN (SELECT key FROM json_each(:topics))""",
)
# Of each message the topic is known, so that the index leads to it.
FIND_REACHED = statement(
    "find_reached_devices",
    """SELECT m.id, s.device_id FROM topic_messages AS m JOIN subscriptions AS s
    ON s.app_id = m.app_id AND s.topic = m.topic AND s.since_sequence < m.sequence
    WHERE m.app_id = :app_id AND m.topic IN (SELECT key FROM json_each(:topics))
    AND m.id IN (SELECT key FROM json_each(:messages))
    AND s.device_id IN (SELECT key FROM json_each(:ids))""",
)
PUBLISH = statement(
    "publish",
    f"""INSERT INTO topic_messages
    (app_id, topic, sequence, id, payload, priority, collapse_id, created_at, expires_at)
    VALUES (:app_id, :topic, 1 + {_HIGHEST}, :id, :payload, :priority, :collapse_id, :created_at,
    :expires_at)
    ON CONFLICT (app_id, topic, id) DO NOTHING RETURNING sequence""",
)
NUMBER = statement(
    "number_topic_message",
    f"""UPDATE topics SET last_sequence = 1 + {_HIGHEST}
    WHERE {_OF_TOPIC} RETURNING last_sequence""",
)
REMEMBER = statement(
    "remember_highest", f"UPDATE topics SET last_sequence = {_HIGHEST} WHERE {_OF_TOPIC}"
)
DROP_OLDER = statement(
    "drop_older_topic_messages",
    f"DELETE FROM topic_messages WHERE {_OF_TOPIC} AND sequence < {_HIGHEST}",
)
COLLAPSE = statement(
    "collapse_topic_messages",
    f"""DELETE FROM topic_messages WHERE {_OF_TOPIC} AND collapse_id = :collapse_id
    AND sequence < (SELECT MAX(sequence) FROM topic_messages
    WHERE {_OF_TOPIC} AND collapse_id = :collapse_id)""",
)
# The columns that only messages to devices have. Not traced: a span for each device is too much.
_CONSTANTS = {"device_id": "''", "is_stored": "1", "notification_id": "NULL", "trace": "NULL"}
_COLUMNS = ", ".join(_CONSTANTS.get(name, name) for name in _MESSAGES.names)
MISSED = statement(
    "select_missed_messages",
    f"""SELECT {_COLUMNS}
    FROM topic_messages WHERE {_OF_TOPIC}
    AND sequence > :cursor AND expires_at > :now ORDER BY sequence LIMIT :limit""",
)
ADVANCE = statement(
    "advance_cursor",
    """UPDATE subscriptions SET cursor = :cursor
    WHERE device_id = :device_id AND topic = :topic AND cursor < :cursor""",
)
SELECT_EXPIRED = statement(
    "select_expired_topic_messages",
    """SELECT app_id, topic, sequence FROM topic_messages WHERE expires_at <= :now
    ORDER BY expires_at LIMIT :limit""",
)
EXPIRE = statement(
    "expire_topic_message",
    f"DELETE FROM topic_messages WHERE {_OF_TOPIC} AND sequence = :sequence RETURNING id",
)
SELECT_DELETED = statement(
    "select_deleted_topics",
    """SELECT app_id, topic FROM topics WHERE deleted_at > 0 AND deleted_at < :before
    ORDER BY deleted_at LIMIT :limit""",
)
PRUNE = statement(
    "prune_topic",
    f"DELETE FROM topics WHERE {_OF_TOPIC} AND deleted_at < :before RETURNING topic",
)


class Topics:
    """Topics that users follow and devices subscribe to, APNs broadcast channels among them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, topic: Topic) -> bool:
        """Create a topic; False if one of that name exists, or was deleted and not pruned yet."""
        step = CREATE.guard(**TOPICS.values(topic))
        return await self._engine.write(Unit(topic.topic, (step,), topic.app_id)) is not None

    async def put(self, topic: Topic) -> tuple[Topic, bool] | None:
        """Create a topic, or open or close it; return it, and whether it is new.

        Its followers and subscriptions stay. None if it was deleted, or is a broadcast channel.
        """
        done = await self._engine.write(Unit(topic.topic, (PUT.guard(**TOPICS.values(topic)),)))
        if done is None:
            return None
        stored = TOPICS.read(done[0][0])
        return stored, stored.created_at == topic.created_at

    async def get(self, app_id: str, topic: str) -> Topic | None:
        """Return the topic, or None if it does not exist or was deleted."""
        rows = await self._engine.fetch(GET, app_id=app_id, topic=topic)
        return TOPICS.read(rows[0]) if rows else None

    async def delete(self, app_id: str, topic: str, now: int) -> bool:
        """Delete a topic, then its messages and subscriptions; False if it does not exist.

        From the first commit on it is deleted for everyone. The rest is deleted in small commits;
        after an interruption, the next call or the pruning of the topic deletes the remainder.
        """
        mark = MARK_DELETED.guard(app_id=app_id, topic=topic, now=now)
        marked = await self._engine.write(Unit(topic, (mark,), app_id))
        # A topic that is marked gets no more messages and subscribers. It may have a million: they
        # are deleted in chunks, so that other work does not wait. A repeated request continues
        # where the first was interrupted; if there is none, pruning does.
        await self._empty(app_id, topic)
        return marked is not None

    async def list(
        self, app_id: str, *, broadcast_channels: bool, after: str | None, limit: int
    ) -> Page[Topic]:
        """Return the topics, or the broadcast channels, in the order of their names."""
        rows = await self._engine.fetch(
            LIST,
            app_id=app_id,
            is_broadcast_channel=int(broadcast_channels),
            after=after or "",
            limit=limit + 1,
        )
        items = tuple(map(TOPICS.read, rows[:limit]))
        return Page(items, items[-1].topic if len(rows) > limit else None)

    async def prune_deleted(self, before: int, limit: int) -> int:
        """Forget topics that were deleted before a time, at most `limit`; return how many.

        A topic of the same name may be created then. Its sequence starts again at 1, which affects
        no device: the subscriptions to the old one were deleted with it.
        """
        found = await self._engine.fetch_in_background(SELECT_DELETED, before=before, limit=limit)
        for app_id, topic in found:
            await self._empty(app_id, topic)
        return await sweep(self._engine, SELECT_DELETED, PRUNE, before=before, limit=limit)

    async def _empty(self, app_id: str, topic: str) -> None:
        """Delete the messages and subscriptions of a topic that is deleted."""
        of_topic = {"app_id": app_id, "topic": topic}
        for find, delete, key, others in (
            (SELECT_MESSAGES, EXPIRE, "sequence", of_topic),
            (SELECT_SUBSCRIBERS, UNSUBSCRIBE, "device_id", {"topic": topic}),
        ):
            while found := await self._engine.fetch(find, **of_topic, limit=DELETED_AT_ONCE):
                rows = [delete.bind(**others, **{key: value}) for (value,) in found]
                steps = (CHECK_DELETED.guard(**of_topic), delete.many(rows))
                if await self._engine.write(Unit(topic, steps, app_id)) is None:
                    return


class Broadcasts:
    """Messages to topics, the subscriptions of devices and their cursors.

    A message to a topic is written once, however many devices are subscribed.
    """

    def __init__(self, engine: Engine, *, pause_s: float = PAUSE_S) -> None:
        self._engine = engine
        self._subscriptions = SharedReads(
            self._read_subscriptions, limit=_DEVICES_AT_A_TIME, pause_s=pause_s
        )

    async def subscribe(self, app_id: str, device_id: str, topic: str, now: int) -> int | None:
        """Subscribe a device to a topic from now on; return its cursor. A repeat changes nothing.

        Creates the topic if it does not exist; returns None if it was deleted. `Conflict` if the
        device is subscribed to 1,000 other topics.
        """
        steps = (
            LOCK.guard(app_id=app_id, topic=topic, now=now),
            SUBSCRIBE.step(app_id=app_id, device_id=device_id, topic=topic, now=now),
        )
        done = await self._engine.write(Unit(topic, steps, app_id))
        if done is None:
            return None
        if not done[1]:
            raise Conflict(
                f"This device is subscribed to {SUBSCRIPTIONS_LIMIT:,} topics, which is the limit: "
                "unsubscribe it from one first."
            )
        _, ((cursor,),) = done
        return int(cursor)

    async def unsubscribe(self, device_id: str, topic: str) -> bool:
        """Unsubscribe a device; False if it was not subscribed."""
        step = UNSUBSCRIBE.guard(device_id=device_id, topic=topic)
        return await self._engine.write(Unit(topic, (step,))) is not None

    async def subscriptions(self, device_id: str) -> tuple[TopicSubscription, ...]:
        """Return the subscriptions of a device, at most 1,000."""
        return tuple(await self._subscriptions.find(device_id) or ())

    async def _read_subscriptions(
        self, device_ids: Sequence[str]
    ) -> Mapping[str, list[TopicSubscription]]:
        rows = await self._engine.fetch(SELECT_SUBSCRIPTIONS, ids=keys_of(device_ids))
        found: dict[str, list[TopicSubscription]] = {}
        for device_id, *row in sorted(rows):
            found.setdefault(device_id, []).append(_SUBSCRIPTIONS.read(tuple(row)))
        return found

    async def find_subscriptions(
        self, app_id: str, device_ids: Collection[str]
    ) -> dict[str, dict[str, SubscriptionState]]:
        """Return the subscriptions of an app's devices by device and topic, in one read.

        Devices without one are left out, and topics that were deleted.
        """
        found: dict[str, dict[str, SubscriptionState]] = {}
        for device_id, topic, cursor, last in await self._engine.fetch(
            FIND_SUBSCRIPTIONS, app_id=app_id, ids=keys_of(device_ids)
        ):
            if last is not None:
                found.setdefault(device_id, {})[topic] = SubscriptionState(cursor, last)
        return found

    async def find_last_sequences(self, app_id: str, topics: Collection[str]) -> dict[str, int]:
        """Return the sequence of the last message to each of these topics of an app, in one read.

        Topics that were deleted are left out.
        """
        rows = await self._engine.fetch(FIND_LAST, app_id=app_id, topics=keys_of(topics))
        return {topic: int(last) for topic, last in rows}

    async def publish(
        self, message: Message, storage_policy: StoragePolicy, once: IdempotencyClaim | None = None
    ) -> StoredResponse | int | None:
        """Write a message to its `topic` and return its sequence there, which only grows.

        None if the topic had one with the same id, or was deleted. With `StoragePolicy.NONE`
        only the sequence is stored; with `StoragePolicy.LAST` older messages are deleted. `once`
        as in `Keys.create`.
        """
        topic, steps = message.topic or "", publish_steps(message, storage_policy)
        done = await idempotency.write_once(self._engine, topic, once, *steps, owner=message.app_id)
        if done is None or isinstance(done, StoredResponse):
            return done
        numbered = done[1]
        return numbered[0][0] if numbered else None

    async def find_reached(
        self, app_id: str, messages: Mapping[str, str], device_ids: Collection[str]
    ) -> frozenset[tuple[str, str]]:
        """Return which of these devices get which messages, as pairs of their ids, in one read.

        Of the messages the topics are given. A device gets those that were published after it
        subscribed, and have not expired.
        """
        rows = await self._engine.fetch(
            FIND_REACHED,
            app_id=app_id,
            topics=keys_of(messages.values()),
            messages=keys_of(messages),
            ids=keys_of(device_ids),
        )
        return frozenset((message_id, device_id) for message_id, device_id in rows)

    async def missed(
        self, app_id: str, topic: str, *, cursor: int, now: int, limit: int
    ) -> tuple[Message, ...]:
        """Return the messages of a topic after a cursor that have not expired, oldest first.

        Of several with the same collapse id only the newest. `sequence` is that of the topic.
        """
        rows = await self._engine.fetch(
            MISSED, app_id=app_id, topic=topic, cursor=cursor, now=now, limit=limit
        )
        return tuple(map(_MESSAGES.read, rows))

    async def advance(self, device_id: str, topic: str, cursor: int) -> None:
        """Move a device's cursor forward; it never goes back."""
        await self.advance_many([(device_id, topic, cursor)])

    async def advance_many(self, cursors: Sequence[tuple[str, str, int]]) -> None:
        """Do that for several cursors: each is a device, a topic and a sequence."""
        by_topic: dict[str, list[Row]] = {}
        for device_id, topic, cursor in sorted(cursors):  # in key order, as every batch is written
            row = ADVANCE.bind(device_id=device_id, topic=topic, cursor=cursor)
            by_topic.setdefault(topic, []).append(row)
        units = [Unit(topic, (ADVANCE.many(rows),)) for topic, rows in by_topic.items()]
        await asyncio.gather(*map(self._engine.write, units))

    async def expire(self, now: int, limit: int) -> int:
        """Delete messages that are past `expires_at`, at most `limit`; return how many."""
        return await sweep(self._engine, SELECT_EXPIRED, EXPIRE, now=now, limit=limit)


def publish_steps(message: Message, storage_policy: StoragePolicy) -> tuple[Step, ...]:
    """Return the steps that write a message to its topic; the second returns the sequence.

    The first is a guard: it refuses a topic that was deleted.
    """
    where = {"app_id": message.app_id, "topic": message.topic or ""}
    lock = LOCK.guard(**where, now=message.created_at)
    if storage_policy is StoragePolicy.NONE:
        return (lock, NUMBER.step(**where))
    publish = PUBLISH.step(
        **where,
        id=message.id,
        payload=message.payload,
        priority=message.priority.value,
        collapse_id=message.collapse_id,
        created_at=message.created_at,
        expires_at=message.expires_at,
    )
    steps = [lock, publish, REMEMBER.step(**where)]
    if storage_policy is StoragePolicy.LAST:
        steps.append(DROP_OLDER.step(**where))
    elif message.collapse_id is not None:
        steps.append(COLLAPSE.step(**where, collapse_id=message.collapse_id))
    return tuple(steps)
