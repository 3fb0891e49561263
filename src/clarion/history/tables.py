"""The tables of what happened, in the order in which a user is erased."""

from __future__ import annotations

from clarion.history.model import Attempt, Delivery, Notification
from clarion.store.table import (
    FLAG,
    OF_USER,
    GoesWith,
    Omitted,
    Owner,
    Pruned,
    Table,
    json,
    plain,
    times,
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
        **plain(
            "channel number device_id provider status provider_response error_code error_message"
        ),
        **times("attempted_at"),
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
        **OF_USER,
        **plain("channel status reason rule until"),
        **json("past_decisions"),
        **plain("digest count attempt_count provider"),
        **times("sent_at delivered_at last_attempt_at"),
        **plain("error_code error_message"),
        **times("decided_at"),
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
        **OF_USER,
        **plain("id event_id type category priority title body"),
        **json("content"),
        **plain("count"),
        "is_shown": FLAG,
        **plain("folded_into sequence"),
        **times("read_at dismissed_at first_read_at clicked_at expires_at created_at"),
        "ended_deliveries": Omitted("they are shown with the other deliveries"),
    },
    ends=Pruned("notifications_by_id", ("notification_days",)),
    archived=True,
    shard=("app_id", "user_id"),
    note="the notifications of an event are on all shards",
)
TABLES = (ATTEMPTS, DELIVERIES, NOTIFICATIONS)
