"""The style sheet, scripts and pictures of the dashboard, read once.

All are below a path that has a digest of them, so browsers may keep them forever.
"""

from __future__ import annotations

import hashlib
from importlib import resources

from clarion.http.asgi import Response

_PACKAGE = "clarion.admin"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_KEPT = (b"cache-control", b"public, max-age=31536000, immutable")
PATH = "/admin/static/"


class Assets:
    """Files by their path."""

    def __init__(self) -> None:
        files = _read_all()
        digest = hashlib.sha256()
        for name, body in sorted(files.items()):
            digest.update(name.encode() + b"\0" + body)
        self._folder = f"{PATH}{digest.hexdigest()[:16]}/"
        self._responses = {
            self._folder + name: Response(200, body, ((b"content-type", _type_of(name)), _KEPT))
            for name, body in files.items()
        }

    def path_of(self, name: str) -> str:
        """Return the path of a file; `KeyError` if there is none."""
        path = self._folder + name
        if path not in self._responses:
            raise KeyError(name)
        return path

    def find(self, path: str) -> Response | None:
        return self._responses.get(path)


def _read_all() -> dict[str, bytes]:
    folder = resources.files(_PACKAGE) / "static"
    return {
        each.name: each.read_bytes() for each in folder.iterdir() if _suffix_of(each.name) in _TYPES
    }


def _type_of(name: str) -> bytes:
    return _TYPES[_suffix_of(name)]


def _suffix_of(name: str) -> str:
    return name[name.rfind(".") :]
