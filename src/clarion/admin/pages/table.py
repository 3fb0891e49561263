"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import (
    dead_letters,
    explain,
    notifications,
    overview,
    people,
    sign_in,
    start,
)

PAGES = (
    *sign_in.PAGES,
    *start.PAGES,
    *overview.PAGES,
    *notifications.PAGES,
    *explain.PAGES,
    *people.PAGES,
    *dead_letters.PAGES,
)
