"""The tables of devices, their messages and topics, in the order in which a user is erased."""

from __future__ import annotations

from clarion.push.model import Device, Feedback, Message, Topic, address_context
from clarion.push.webpush.model import PushEndpoint
from clarion.store.table import (
    APP_ID,
    FLAG,
    HASH,
    OF_USER,
    PAYLOAD,
    PLAIN,
    TIME,
    TRACE,
    Ages,
    GoesWith,
    Owner,
    Pruned,
    Sealed,
    Table,
    json,
    plain,
    times,
)

MESSAGES = Table(
    "messages",
    Message,
    without=("topic",),
    key=("device_id", "id"),
    owner=Owner.DEVICE_MESSAGES,
    section="messages",
    columns={
        "app_id": APP_ID,
        **plain("device_id id notification_id"),
        "payload": PAYLOAD,
        **plain("priority collapse_id"),
        "is_stored": FLAG,
        **plain("status reason sequence"),
        **times("created_at expires_at updated_at"),
        "trace": TRACE,
    },
    ends=Pruned("messages_by_app", ("message_days",)),
    by_app=("app_id", "sequence"),
    archived=True,
    shard=("device_id",),
)
SUBSCRIPTIONS = Table(
    "subscriptions",
    tuple,
    key=("device_id", "topic"),
    owner=Owner.DEVICE,
    section="subscriptions",
    columns={
        "app_id": APP_ID,
        **plain("device_id topic cursor since_sequence"),
        **times("created_at"),
    },
    ends=GoesWith("devices"),
    by_app=("app_id", "topic", "device_id"),
    shard=("device_id",),
    note="the subscribers of a topic are on all shards",
)
PUSH_ENDPOINTS = Table(
    "push_endpoints",
    PushEndpoint,
    key=("device_id", "id"),
    owner=Owner.DEVICE_OF_USER,
    section="push_endpoints",
    columns={
        **OF_USER,
        **plain("device_id id"),
        "capability_hash": HASH,
        **plain("vapid_key label"),
        **times("created_at"),
    },
    ends=GoesWith("devices"),
    shard=("device_id",),
    note="found by `capability_hash`, which needs an index across shards",
)
FEEDBACK = Table(
    "feedback",
    Feedback,
    key=("app_id", "invalidated_at", "token_hash"),
    owner=Owner.TOKEN,
    section="feedback",
    columns={"app_id": APP_ID, "token_hash": HASH, "reason": PLAIN, "invalidated_at": TIME},
    ends=Ages("feedback_by_time", "invalidated_at", ("device_days",), "invalidated_at > 0"),
    shard=("app_id", "token_hash"),
)
DEVICES = Table(
    "devices",
    Device,
    inline=("details",),
    key=("id",),
    owner=Owner.USER,
    section="devices",
    columns={
        **OF_USER,
        "token_hash": HASH,
        "secret_hash": HASH,
        "address": Sealed(address_context, ("app_id", "token_hash")),
        **plain("id platform model os_version app_version language timezone label"),
        **json("preferences"),
        **times("created_at last_seen_at connected_at invalidated_at"),
        **plain("invalidation_reason"),
    },
    ends=Pruned("devices_ended", ("device_days",)),
    shard=("id",),
    note="found by `token_hash` when a device connects, and by `user_id`: both need an index "
    "across shards",
)
FORMER_DEVICE_USERS = Table(
    "former_device_users",
    tuple,
    key=("app_id", "user_id", "device_id", "until"),
    owner=Owner.USER,
    section="former_devices",
    columns={**OF_USER, "token_hash": HASH, **plain("device_id since until")},
    ends=Pruned("former_device_users_by_time", ("message_days", "device_days")),
    shard=("app_id", "user_id"),
)
TOPICS = Table(
    "topics",
    Topic,
    key=("app_id", "topic"),
    owner=Owner.APP,
    impersonal="names of topics, without subscribers",
    ends=Pruned("device_topics_deleted", ("device_days",)),
    shard=("app_id", "topic"),
)
TOPIC_MESSAGES = Table(
    "topic_messages",
    tuple,
    key=("app_id", "topic", "sequence"),
    owner=Owner.APP,
    impersonal="sent to the subscribers of a topic",
    columns={"payload": PAYLOAD},
    ends=Pruned("topic_messages_expiring"),
    shard=("app_id", "topic"),
)
TABLES = (
    MESSAGES,
    SUBSCRIPTIONS,
    PUSH_ENDPOINTS,
    FEEDBACK,
    DEVICES,
    FORMER_DEVICE_USERS,
    TOPIC_MESSAGES,
    TOPICS,
)
