"""Paths of fast routes with one parameter, like `/v1/users/{user_id}/notifications`."""

from __future__ import annotations

from collections.abc import Iterable


class PathTemplates:
    """Finds the template of a path. A parameter is one segment of it."""

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
    """Return what comes before and after the parameter."""
    head, _, rest = path.partition("{")
    return head, rest.partition("}")[2]
