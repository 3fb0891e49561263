"""The tables of what happened, in the order in which a user is erased."""

from __future__ import annotations

from clarion.history.model import Attempt, Delivery, Notification
from clarion.store.table import (
    APP_ID,
    FLAG,
    JSON,
    PLAIN,
    TIME,
    USER_ID,
    GoesWith,
    Omitted,
    Owner,
    Pruned,
    Table,
)

_WITH_NOTIFICATION = Omitted("they are shown with the notification")

ATTEMPTS = Table(
    "attempts",
    Attempt,
    key=("notification_id", "channel", "number", "device_id"),
    owner=Owner.NOTIFICATION,
    section="attempts",
    columns={
        "notification_id": _WITH_NOTIFICATION,
        "channel": PLAIN,
        "number": PLAIN,
        "device_id": PLAIN,
        "provider": PLAIN,
        "status": PLAIN,
        "provider_response": PLAIN,
        "error_code": PLAIN,
        "error_message": PLAIN,
        "attempted_at": TIME,
    },
    ends=GoesWith("notifications"),
    archived=True,
    shard=("notification_id",),
    note="placed with its notification",
)
DELIVERIES = Table(
    "deliveries",
    Delivery,
    key=("notification_id", "channel"),
    owner=Owner.NOTIFICATION,
    section="deliveries",
    columns={
        "notification_id": _WITH_NOTIFICATION,
        "app_id": APP_ID,
        "user_id": USER_ID,
        "channel": PLAIN,
        "status": PLAIN,
        "reason": PLAIN,
        "rule": PLAIN,
        "until": PLAIN,  # may be later than any date
        "past_decisions": JSON,
        "digest": PLAIN,
        "count": PLAIN,
        "attempt_count": PLAIN,
        "provider": PLAIN,
        "sent_at": TIME,
        "delivered_at": TIME,
        "last_attempt_at": TIME,
        "error_code": PLAIN,
        "error_message": PLAIN,
        "decided_at": TIME,
    },
    ends=GoesWith("notifications"),
    archived=True,
    shard=("app_id", "user_id"),
)
NOTIFICATIONS = Table(
    "notifications",
    Notification,
    # The name of a built-in category may be a member of its enum.
    codecs={"category": (str, None)},
    key=("app_id", "user_id", "id"),
    owner=Owner.USER,
    section="notifications",
    columns={
        "app_id": APP_ID,
        "user_id": USER_ID,
        "id": PLAIN,
        "event_id": PLAIN,
        "type": PLAIN,
        "category": PLAIN,
        "priority": PLAIN,
        "title": PLAIN,
        "body": PLAIN,
        "content": JSON,
        "count": PLAIN,
        "is_shown": FLAG,
        "folded_into": PLAIN,
        "sequence": PLAIN,
        "read_at": TIME,
        "dismissed_at": TIME,
        "first_read_at": TIME,
        "clicked_at": TIME,
        "expires_at": TIME,
        "created_at": TIME,
    },
    # By the ids of their deliveries, which are in the order of time.
    ends=Pruned("deliveries", ("notification_days",)),
    archived=True,
    shard=("app_id", "user_id"),
    note="the notifications of an event are on all shards",
)
TABLES = (ATTEMPTS, DELIVERIES, NOTIFICATIONS)
