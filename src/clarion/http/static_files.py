"""Files that are part of the package and served as they are, read once."""

from __future__ import annotations

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
    client, component = read("clarion.js"), read("clarion-inbox.js")
    whole = component.replace(_IMPORT_OF_CLIENT, client)
    headers = (_SCRIPT, _CACHED, *_FOR_ANY_PAGE)
    return (
        FastRoute("GET", "/static/clarion.js", constant(client, headers)),
        FastRoute("GET", "/static/clarion-inbox.js", constant(whole, headers)),
    )


def serve(path: str, name: str, package: str = _PACKAGE) -> FastRoute:
    """Return the route of a script or style sheet."""
    headers = (_TYPES[name[name.rindex(".") :]], _CACHED)
    return FastRoute("GET", path, constant(read(name, package), headers))


def read(name: str, package: str = _PACKAGE) -> bytes:
    """Return a file of the folder `static` of a package."""
    return (resources.files(package) / "static" / name).read_bytes()


def constant(body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> Endpoint:
    """Return an endpoint whose response is always the same."""
    response = Response(200, body, headers)

    async def answer(_request: Request) -> Response:
        return response

    return answer
