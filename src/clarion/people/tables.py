"""The tables of users and what they follow, in the order in which a user is erased."""

from __future__ import annotations

from clarion.people.erasure.model import Erasure, hash_key_context, subject_context
from clarion.people.model import Segment, User
from clarion.store.table import (
    APP_ID,
    HASH,
    OF_USER,
    PLAIN,
    TIME,
    USER_ID,
    GoesWith,
    Omitted,
    Owner,
    Sealed,
    Stays,
    Table,
    json,
    plain,
    times,
)

_SAME_AS_ATTRIBUTES = Omitted("the same as the attributes of the user")
_OF_USER = ("app_id", "user_id")

USERS = Table(
    "users",
    User,
    key=("app_id", "id"),
    owner=Owner.ID,
    section="user",
    columns={
        "app_id": APP_ID,
        **plain("id name email"),
        "email_key": Omitted("the same as email"),
        **plain("phone language timezone status"),
        **json("tags attributes metadata consent profile preferences"),
        **times("last_login_at last_seen_at created_at updated_at deleted_at"),
        "version": Omitted("counts changes"),
    },
    ends=Stays("Deleted users are erased after `--deleted-user-days`."),
    shard=("app_id", "id"),
)
USER_TAGS = Table(
    "user_tags",
    tuple,
    key=("app_id", "tag", "user_id"),
    owner=Owner.USER,
    columns={
        "app_id": APP_ID,
        "tag": Omitted("the same as the tags of the user"),
        "user_id": USER_ID,
    },
    ends=GoesWith("users"),
    shard=_OF_USER,
    note="a segment asks all shards",
)
USER_ATTRIBUTES = Table(
    "user_attributes",
    tuple,
    key=("app_id", "user_id", "term"),
    owner=Owner.USER,
    columns={
        **OF_USER,
        "term": _SAME_AS_ATTRIBUTES,
        "value": _SAME_AS_ATTRIBUTES,
        "number": _SAME_AS_ATTRIBUTES,
    },
    ends=GoesWith("users"),
    shard=_OF_USER,
    note="a segment asks all shards",
)
INACTIVE_USERS = Table(
    "inactive_users",
    tuple,
    key=_OF_USER,
    owner=Owner.USER,
    columns={"app_id": APP_ID, "user_id": USER_ID},
    ends=GoesWith("users"),
    shard=_OF_USER,
)
FOLLOWS = Table(
    "follows",
    tuple,
    key=("app_id", "topic", "user_id"),
    owner=Owner.USER,
    section="followed_topics",
    columns={"app_id": APP_ID, "topic": PLAIN, "user_id": USER_ID, "created_at": TIME},
    ends=GoesWith("users"),
    shard=_OF_USER,
    note="the followers of a topic are on all shards",
)
SEGMENTS = Table(
    "segments",
    Segment,
    key=("app_id", "name"),
    owner=Owner.APP,
    impersonal="filters of apps",
    ends=Stays("Deleted over the API."),
    shard=("app_id",),
    note="small, on every shard",
)
ERASURES = Table(
    "erasures",
    Erasure,
    key=("app_id", "id"),
    owner=Owner.APP,
    impersonal="the hash of a user is keyed; the sealed subject is removed when an erasure is done",
    columns={"user_hash": HASH, "subject": Sealed(subject_context)},
    ends=Stays("Kept as receipts and tombstones of erased users."),
    shard=("app_id",),
)
ERASURE_KEYS = Table(
    "erasure_keys",
    tuple,
    key=("app_id",),
    owner=Owner.APP,
    impersonal="keys of apps",
    columns={"key": Sealed(hash_key_context)},
    ends=Stays("One row for each app."),
    shard=("app_id",),
)
TABLES = (
    USERS,
    USER_TAGS,
    USER_ATTRIBUTES,
    INACTIVE_USERS,
    FOLLOWS,
    SEGMENTS,
    ERASURES,
    ERASURE_KEYS,
)
