"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import (
    apps,
    dead_letters,
    explain,
    keys,
    notifications,
    overview,
    people,
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
    *keys.PAGES,
    *apps.PAGES,
)
