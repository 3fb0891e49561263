"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import (
    apps,
    audit,
    dead_letters,
    devices,
    explain,
    keys,
    notifications,
    overview,
    people,
    providers,
    sign_in,
    start,
    templates,
    types,
)

PAGES = (
    *sign_in.PAGES,
    *start.PAGES,
    *overview.PAGES,
    *notifications.PAGES,
    *explain.PAGES,
    *people.PAGES,
    *dead_letters.PAGES,
    *types.PAGES,
    *templates.PAGES,
    *devices.PAGES,
    *providers.PAGES,
    *keys.PAGES,
    *audit.PAGES,
    *apps.PAGES,
)
