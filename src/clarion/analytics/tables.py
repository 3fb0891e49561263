"""The tables of counts."""

from __future__ import annotations

from clarion.analytics.model import RollupProgress
from clarion.store.table import Owner, Pruned, Stays, Table

ANALYTICS = Table(
    "analytics",
    tuple,
    key=("app_id", "metric", "step", "at", "type", "channel", "platform", "label"),
    owner=Owner.APP,
    impersonal="counts of what happened to all users of an app",
    ends=Pruned("analytics_by_time"),
    shard=("app_id",),
)
PROGRESS = Table(
    "analytics_progress",
    RollupProgress,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="up to which time is counted",
    ends=Stays("One row."),
    note="one row for each shard",
)
TABLES = (ANALYTICS, PROGRESS)
