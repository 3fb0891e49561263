"""Files that are part of the package and served as they are, read when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import resources

from clarion.http.asgi import Endpoint, FastRoute, Request, Response

_PACKAGE = "clarion.http"
_SCRIPT = (b"content-type", b"text/javascript; charset=utf-8")
_TYPES = {".js": _SCRIPT, ".css": (b"content-type", b"text/css; charset=utf-8")}
_CACHED = (b"cache-control", b"max-age=3600")
# Pages of any origin load these; a browser refuses a module that does not allow it.
_FOR_ANY_PAGE = (
    (b"access-control-allow-origin", b"*"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)
_IMPORT_OF_CLIENT = b'import { ClarionError, Inbox } from "./clarion.js";\n'


def component_routes() -> tuple[FastRoute, ...]:
    """Return the scripts for the pages of applications: `<clarion-inbox>`, and the client alone.

    The component is one file: the client is put in the place of its import.
    """
    headers = (_SCRIPT, _CACHED, *_FOR_ANY_PAGE)
    return (
        FastRoute("GET", "/static/clarion.js", constant(partial(read, "clarion.js"), headers)),
        FastRoute("GET", "/static/clarion-inbox.js", constant(_read_component, headers)),
    )


@cache
def _read_component() -> bytes:
    return read("clarion-inbox.js").replace(_IMPORT_OF_CLIENT, read("clarion.js"))


def serve(path: str, name: str, package: str = _PACKAGE) -> FastRoute:
    """Return the route of a script or style sheet."""
    headers = (_TYPES[name[name.rindex(".") :]], _CACHED)
    return FastRoute("GET", path, constant(partial(read, name, package), headers))


@cache
def read(name: str, package: str = _PACKAGE) -> bytes:
    """Return a file of the folder `static` of a package."""
    return (resources.files(package) / "static" / name).read_bytes()


def constant(read_body: Callable[[], bytes], headers: tuple[tuple[bytes, bytes], ...]) -> Endpoint:
    """Return an endpoint whose response is always the same."""

    async def answer(_request: Request) -> Response:
        return Response(200, read_body(), headers)

    return answer
