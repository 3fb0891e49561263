"""The tables of events, the queue, and what decisions count."""

from __future__ import annotations

from clarion.catalog.model import Priority
from clarion.events.model import POOLS, Event, Job
from clarion.store.table import (
    APP_ID,
    OF_USER,
    PLAIN,
    TIME,
    TRACE,
    Expires,
    Omitted,
    Owner,
    Pruned,
    Stays,
    Table,
    json,
    plain,
    times,
)

DEAD_LANE = -1
_LANES = ", ".join(map(str, (DEAD_LANE, *sorted(each.value for each in Priority))))
_POOLS = ", ".join(f"'{each}'" for each in POOLS)

JOBS = Table(
    "jobs",
    Job,
    key=("id",),
    owner=Owner.USER,
    section="jobs",
    columns={
        **plain("id"),
        **OF_USER,
        **plain("kind event_id subject due_at tries lane pool"),
        "token": Omitted("counts the claims of workers"),
        "node_id": Omitted("the node of the latest claim"),
    },
    ends=Stays("A job ends when it is done; a dead letter goes with its event."),
    by_app=("pool", "lane", "app_id", "due_at"),
    where=f"pool IN ({_POOLS}) AND lane IN ({_LANES})",
    shard=("app_id", "user_id"),
    note="jobs for an audience have no user: they are placed with their event",
)
DEDUPES = Table(
    "dedupes",
    tuple,
    key=("app_id", "id"),
    owner=Owner.PREFIX,
    section="dedupe_keys",
    columns={**OF_USER, **plain("id notification_id"), **times("expires_at")},
    ends=Expires("dedupes_expiring"),
    shard=("app_id", "id"),
    note="the id begins with that of the user",
)
LIMIT_COUNTS = Table(
    "limit_counts",
    tuple,
    key=("app_id", "id"),
    owner=Owner.PREFIX,
    section="limit_counts",
    columns={"app_id": APP_ID, "id": PLAIN, "used": PLAIN, "expires_at": TIME},
    ends=Expires("limit_counts_expiring"),
    shard=("app_id", "id"),
    note="the id begins with that of the user",
)
# An event to one user alone is deleted with the user. One to several loses this recipient; one
# that names the user as actor or target loses that, and so do its notifications.
EVENTS = Table(
    "events",
    Event,
    key=("app_id", "id"),
    owner=Owner.SEVERAL_USERS,
    section="events",
    columns={
        "app_id": APP_ID,
        **plain("id type"),
        **json("content"),
        **plain("priority dedupe_key status retry_count last_error"),
        **times("scheduled_at expires_at created_at updated_at"),
        "trace": TRACE,
        "audience": Omitted("may name other users"),
        "remaining": Omitted("counts users"),
        "notification_count": Omitted("counts users"),
    },
    ends=Pruned("events", ("event_days",)),
    shard=("app_id", "id"),
    note="counts the recipients that are left to decide, who are on all shards",
)
