"""What must hold in every run: after each commit, and when everything has come to rest."""

import math
from collections import Counter
from collections.abc import Iterator

from clarion.store.statement import Row
from tests.simulation.disk import Disk
from tests.simulation.world import APP, DAY_MS, PEOPLE, World

# What is final stays as it is; only what failed is tried again, when it is replayed.
_WATCH = (
    "CREATE TABLE breaks (what TEXT)",
    """CREATE TRIGGER watch_deliveries AFTER UPDATE OF status ON deliveries
    WHEN old.status IN ('delivered', 'failed', 'expired', 'cancelled', 'dropped', 'folded')
    AND new.status <> old.status AND NOT (
      old.status = 'failed' AND old.reason = 'attempts_exhausted')
    BEGIN INSERT INTO breaks VALUES (
      'delivery ' || old.notification_id || '/' || old.channel || ': ' || old.status || ' → '
      || new.status); END""",
    """CREATE TRIGGER watch_messages AFTER UPDATE OF status ON messages
    WHEN old.status IN ('delivered', 'failed', 'expired') AND new.status <> old.status
    BEGIN INSERT INTO breaks VALUES (
      'message ' || old.id || ': ' || old.status || ' → ' || new.status); END""",
    """CREATE TRIGGER watch_sequences AFTER UPDATE OF sequence ON inboxes
    WHEN new.sequence < old.sequence
    BEGIN INSERT INTO breaks VALUES ('the sequence of ' || old.user_id || ' went back'); END""",
    """CREATE TRIGGER watch_unread AFTER UPDATE OF unread_count ON inboxes
    WHEN new.unread_count < 0
    BEGIN INSERT INTO breaks VALUES ('fewer than no unread ones of ' || old.user_id); END""",
)
# The longest time until a device that is connected has a message, or has been disconnected.
LATE_S = 30
# So long after its last trouble a node must keep that.
CALM_S = 60
_VALID = "SELECT id, user_id FROM devices WHERE invalidated_at IS NULL ORDER BY id"
_PUSHED = """SELECT notifications.id, notifications.type FROM deliveries JOIN notifications
ON notifications.id = deliveries.notification_id JOIN events ON events.id = notifications.event_id
WHERE channel = 'push' AND deliveries.status IN ('delivered', 'failed') AND read_at IS NULL
AND dismissed_at IS NULL AND notifications.type IN ('PLAIN', 'ALARM')
AND events.expires_at IS NULL AND events.status <> 'cancelled' AND notifications.user_id = ?"""
_MESSAGE = "SELECT 1 FROM messages WHERE notification_id = ? AND device_id = ?"
# After these, a message whose outcome nobody knows may be sent again.
_EXCUSES = (
    *("node_crash", "writer_dies", "writer_dies_after", "clock_step"),
    *("node_pause", "store_cut", "sleep"),
)


def watch(disk: Disk) -> None:
    """Have every commit looked at."""
    for each in _WATCH:
        disk.connection.execute(each)


def find_breaks(world: World) -> list[str]:
    """Return what does not hold in a run that has come to rest."""
    return [
        *(what for (what,) in world.disk.read("SELECT what FROM breaks")),
        *world.loop.failures,
        *world.errors,
        *_find_unfinished(world),
        *_find_lost(world),
        *_find_repeated(world),
        *_find_miscounted(world),
        *_find_doubled(world),
        *_find_erased(world),
        *_find_undelivered(world),
        *_find_late(world),
        *_find_left_out(world),
    ]


def _find_unfinished(world: World) -> Iterator[str]:
    for job_id, kind, due_at in world.disk.read(
        "SELECT id, kind, due_at FROM jobs WHERE lane >= 0"
    ):
        yield f"the job {job_id} ({kind}) is left, due at {due_at}"
    for event_id, status in world.disk.read(
        "SELECT id, status FROM events WHERE status IN ('scheduled', 'pending', 'processing')"
    ):
        yield f"the event {event_id} is {status}"
    for notification_id, channel, status in world.disk.read(
        """SELECT notification_id, channel, status FROM deliveries
        WHERE status IN ('held', 'collected', 'queued') OR status = 'sent' AND NOT EXISTS (
          SELECT 1 FROM messages WHERE messages.notification_id = deliveries.notification_id
          AND messages.status IN ('pending', 'queued'))"""
    ):
        yield f"the delivery {notification_id}/{channel} is {status}"


def _find_lost(world: World) -> Iterator[str]:
    """Yield accepted events that are gone, and recipients without a notification."""
    known: dict[str, Row] = {
        row[0]: row for row in world.disk.read("SELECT id, status, last_error FROM events")
    }
    told = Counter(world.disk.read("SELECT event_id, user_id FROM notifications"))
    for event_id, recipients in world.accepted.items():
        if event_id not in known:
            # Erased with the only user that it was for.
            if not world.erasing & set(recipients):
                yield f"the event {event_id} was accepted and is gone"
            continue
        if known[event_id][1] == "cancelled":
            continue
        for user_id in recipients:
            count = told[event_id, user_id]
            if not count and world.kept_ms == DAY_MS:
                continue
            if count != 1 and user_id not in world.erasing:
                yield f"{user_id} has {count} notifications of the event {event_id}"


def _find_repeated(world: World) -> Iterator[str]:
    """Yield keys under which not exactly the event is stored that was answered."""
    known = {row[0] for row in world.disk.read("SELECT id FROM events")}
    for key, (tried, answered) in world.once.items():
        stored = known.intersection(tried)
        if stored - {answered}:
            yield f"{key}: {sorted(stored)} are stored, and {answered} was answered"


def _find_miscounted(world: World) -> Iterator[str]:
    for user_id in PEOPLE:
        stored = world.disk.read(
            "SELECT unread_count, sequence FROM inboxes WHERE user_id = ?", (user_id,)
        )
        ((unread, newest),) = world.disk.read(
            """SELECT COALESCE(SUM(is_shown AND folded_into IS NULL AND read_at IS NULL
              AND dismissed_at IS NULL), 0), COALESCE(MAX(sequence), 0)
            FROM notifications WHERE user_id = ?""",
            (user_id,),
        )
        known, sequence = stored[0] if stored else (0, 0)
        if known != unread:
            yield f"{user_id} has {unread} unread notifications, and {known} are counted"
        if newest > sequence:
            yield f"the inbox of {user_id} is at {sequence}, and has {newest}"


def _find_doubled(world: World) -> Iterator[str]:
    if any(world.faults.counts[each] for each in _EXCUSES):
        return
    sent = Counter(
        message.notification.id for message, _, is_delivered in world.provider.sent if is_delivered
    )
    for notification_id, times in sent.items():
        if times > 1 and notification_id not in world.overslept:
            yield f"the notification {notification_id} was delivered {times} times"


def _find_erased(world: World) -> Iterator[str]:
    if not world.disk.read("SELECT 1 FROM erasures"):
        return
    for user_id in world.erasing:
        for table in ("users", "notifications", "deliveries", "devices", "inboxes", "follows"):
            column = "id" if table == "users" else "user_id"
            ((left,),) = world.disk.read(
                f"SELECT COUNT(*) FROM {table} WHERE app_id = ? AND {column} = ?",  # noqa: S608
                (APP, user_id),
            )
            if left:
                yield f"{left} rows of {table} are left of {user_id}, who was erased"
        count, ended_at = world.erased.get(user_id, (len(world.provider.sent), 0))
        for message, at, _ in world.provider.sent[count:]:
            if message.user.id == user_id and at > ended_at + 1_000:
                yield f"{message.notification.id} was sent to {user_id}, who was erased"


def _find_undelivered(world: World) -> Iterator[str]:
    rows = {
        (row[0], row[1]): (row[2], row[3])
        for row in world.disk.read("SELECT id, device_id, status, reason FROM messages")
    }
    valid = {
        row[0] for row in world.disk.read("SELECT id FROM devices WHERE invalidated_at IS NULL")
    }
    for (message_id, device_id), (status, _) in rows.items():
        client = world.devices.get(device_id)
        if status in ("pending", "queued") and device_id in valid and client:
            yield f"the message {message_id} to a device that is there is {status}"
        if status == "delivered" and client and message_id not in client[0].received:
            yield f"the message {message_id} is delivered, and never came"
    for message_id, (device_id, _) in world.pushed.items():
        if device_id in valid and (message_id, device_id) not in rows:
            yield f"the push {message_id} was accepted and is gone"
    for message_id, device_id in world.find_missed():
        yield f"{message_id} was published, and {device_id} was subscribed and never got it"


def _find_late(world: World) -> Iterator[str]:
    """Yield what took long though a device was connected to a node without trouble."""
    replaced = {
        row[0] for row in world.disk.read("SELECT id FROM messages WHERE reason = 'collapsed'")
    }
    for device_id, (client, _) in world.devices.items():
        for spell in client.spells:
            ended = min(spell.ended, world.loop.awake())
            calm = world.troubled.get(spell.node, -math.inf) + CALM_S
            since = world.revoked.get(device_id, math.inf)
            if calm < since < ended - LATE_S:
                yield f"{device_id} was revoked, and is connected for more than {LATE_S} s"
            for message_id, (meant_for, at) in world.pushed.items():
                if message_id in replaced:  # before the answer came that it was accepted
                    continue
                is_there = meant_for == device_id and spell.began <= at < ended - LATE_S
                is_late = client.received.get(message_id, math.inf) > at + LATE_S
                if is_there and is_late and calm < at:
                    yield f"{message_id} took more than {LATE_S} s to {device_id}"


def _find_left_out(world: World) -> Iterator[str]:
    """Yield devices that were there before a notification, of which only others got the push."""
    for device_id, user_id in world.disk.read(_VALID):
        was_there = world.born.get(device_id, "~")[-12:]
        for notification_id, name in world.disk.read(_PUSHED, (user_id,)):
            is_new = name not in world.broken and was_there < notification_id[-12:]
            if is_new and not world.disk.read(_MESSAGE, (notification_id, device_id)):
                yield f"{notification_id} was pushed to others, and not to {device_id}"
