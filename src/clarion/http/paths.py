"""Paths with parameters, like `/v1/users/{user_id}/notifications`: their templates and methods."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from clarion.http.asgi import FastRoute

_PARAMETER = re.compile(r"\\\{[^/]+?\\\}")


class PathTemplates:
    """Finds the template of a path among those of fast routes, which have one parameter.

    A parameter is one segment of the path.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        found = {path: _cut(path) for path in paths if "{" in path}
        self._templates = tuple((*ends, path) for path, ends in found.items())
        self._heads = tuple({head for head, _ in found.values()})

    def find(self, path: str) -> str:
        """Return the template of a path, or the path itself if it has none.

        As in the framework, a slash at the end makes no difference.
        """
        if path.startswith(self._heads):
            plain = path.removesuffix("/")
            for head, tail, template in self._templates:
                if plain.startswith(head) and plain.endswith(tail):
                    given = plain[len(head) : len(plain) - len(tail)]
                    if given and "/" not in given:
                        return template
        return path


def _cut(path: str) -> tuple[str, str]:
    """Return the parts before and after the parameter."""
    head, _, rest = path.partition("{")
    return head, rest.partition("}")[2]


class Methods:
    """Finds the methods of a path, of the fast routes and of the framework together."""

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
