"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import notifications, overview, sign_in, start

PAGES = (
    *sign_in.PAGES,
    *start.PAGES,
    *overview.PAGES,
    *notifications.PAGES,
)
