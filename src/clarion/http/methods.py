"""Which methods a path has, of the fast routes and of the framework together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from clarion.http.asgi import FastRoute

_PARAMETER = re.compile(r"\\\{[^/]+?\\\}")


class Methods:
    """Finds the methods of a path."""

    def __init__(self, fast_routes: Sequence[FastRoute], routes: Sequence[Any]) -> None:
        methods: defaultdict[str, set[str]] = defaultdict(set)
        for fast in fast_routes:
            methods[fast.path].add(fast.method)
        for route in routes:
            methods[route.path] |= set(route.methods)
        # The path with the fewest parameters comes first: `/v1/users/me` is no user's id.
        paths = sorted(methods, key=lambda path: path.count("{"))
        self._patterns = [(_compile(path), methods[path] | {"OPTIONS"}) for path in paths]

    def find(self, path: str) -> set[str]:
        """Return the methods of a path; empty if there is no such path."""
        path = path.removesuffix("/") or "/"
        return next((found for pattern, found in self._patterns if pattern.fullmatch(path)), set())


def _compile(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub("[^/]+", re.escape(path)))
