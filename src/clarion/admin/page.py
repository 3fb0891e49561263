"""The definition of a page: its path, who may open it, and the function that answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from clarion.access.model import Scope
from clarion.admin.paths import ROOT
from clarion.admin.permissions import Needs
from clarion.admin.visit import Visit
from clarion.http.asgi import Response, Streamed

_PARAMETER = re.compile(r"\{(\w+)\}")


Endpoint = Callable[[Visit], Awaitable[Response | Streamed]]


class AdminPage(NamedTuple):
    """A page. `{name}` in its path is one part of the path; `{app_id}` is the app it acts for."""

    method: str
    path: str
    answer: Endpoint
    needs: Needs = None


class Found(NamedTuple):
    """A page, and the parts of the path that it names."""

    page: AdminPage
    parts: dict[str, str]


class Pages:
    """Finds a page by method and path."""

    def __init__(self, pages: Sequence[AdminPage]) -> None:
        self._patterns = [(_pattern_of(page.path), page) for page in pages]

    def find(self, method: str, path: str) -> Found | set[str]:
        """Return the page, or else the methods that the path has."""
        path = path.rstrip("/")
        methods = set[str]()
        for pattern, page in self._patterns:
            if match := pattern.fullmatch(path):
                if page.method == method:
                    return Found(page, match.groupdict())
                methods.add(page.method)
        return methods


def app_page(method: str, path: str, answer: Endpoint, needs: Scope) -> AdminPage:
    """Return a page of an app: its path is below `/admin/apps/{app_id}`."""
    return AdminPage(method, f"{ROOT}/apps/{{app_id}}{path}", answer, needs)


def _pattern_of(path: str) -> re.Pattern[str]:
    """Return the pattern of a path, whose fixed parts have no special characters."""
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", path))
