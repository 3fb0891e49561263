"""All tables, in the order in which the rows of a user or of an app are removed.

What would still be sent comes first. A row by which others are found comes after those.
"""

from __future__ import annotations

from clarion.access import tables as access
from clarion.analytics import tables as analytics
from clarion.audit import tables as audit
from clarion.catalog import tables as catalog
from clarion.channels import tables as channels
from clarion.events import tables as events
from clarion.history import tables as history
from clarion.idempotency import tables as idempotency
from clarion.inbox import tables as inbox
from clarion.nodes import tables as nodes
from clarion.people import tables as people
from clarion.push import tables as push
from clarion.store import tables as store

TABLES = (
    events.JOBS,
    *people.TABLES,
    *access.TABLES,
    *channels.TABLES,
    *history.TABLES,
    *inbox.TABLES,
    *push.TABLES,
    events.DEDUPES,
    events.LIMIT_COUNTS,
    *idempotency.TABLES,
    *catalog.TABLES,
    *analytics.TABLES,
    events.EVENTS,
    *audit.TABLES,
    *nodes.TABLES,
    *store.TABLES,
)
PERSONAL = tuple(each for each in TABLES if each.owner.is_user)
COPIED = tuple(each.name for each in TABLES if not each.not_copied)
