"""One table: every page of the dashboard."""

from __future__ import annotations

from clarion.admin.pages import overview, sign_in, start

PAGES = (
    *sign_in.PAGES,
    *start.PAGES,
    *overview.PAGES,
)
