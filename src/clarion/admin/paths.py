"""The paths of pages."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

ROOT = "/admin"
# Where a sign-in may redirect to: a page of the dashboard, never a text that is read as a host.
_PAGE = re.compile(r"/admin(/[A-Za-z0-9._~:@=+|%-]+)*(\?[A-Za-z0-9._~:@=+|%&/-]*)?")


def path_of(*parts: str) -> str:
    """Return the path of a page of the dashboard."""
    return "/".join((ROOT, *(quote(part, safe="~:@=+|") for part in parts)))


def confirm_path(path: str) -> str:
    """Return the path of the page that asks for the password again, and then opens this one."""
    return f"{ROOT}/confirm?{urlencode({'next': path}, safe='/')}"


def check_next(path: str) -> str:
    """Return where to go next: a page of the dashboard, or else its first one."""
    return path if _PAGE.fullmatch(path) else ROOT
