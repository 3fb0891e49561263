"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import (
    administrators,
    apps,
    audit,
    dead_letters,
    devices,
    events,
    explain,
    feedback,
    health,
    keys,
    notifications,
    overview,
    people,
    providers,
    segments,
    sign_in,
    start,
    templates,
    topics,
    types,
)

PAGES = (
    *sign_in.PAGES,
    *start.PAGES,
    *overview.PAGES,
    *notifications.PAGES,
    *events.PAGES,
    *explain.PAGES,
    *people.PAGES,
    *dead_letters.PAGES,
    *types.PAGES,
    *templates.PAGES,
    *segments.PAGES,
    *devices.PAGES,
    *topics.PAGES,
    *feedback.PAGES,
    *providers.PAGES,
    *keys.PAGES,
    *audit.PAGES,
    *apps.PAGES,
    *administrators.PAGES,
    *health.PAGES,
)
