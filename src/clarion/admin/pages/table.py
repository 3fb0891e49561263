"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import (
    apps,
    keys,
    notifications,
    overview,
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
    *types.PAGES,
    *templates.PAGES,
    *keys.PAGES,
    *apps.PAGES,
)
