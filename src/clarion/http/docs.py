"""Pages for developers: the browsable API description and the list of errors."""

from __future__ import annotations

import html
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING

from clarion.errors import ClarionError, RequestError, ServiceError
from clarion.http.asgi import Request, Response
from clarion.http.fast_routes import FastRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clarion.http.asgi import Endpoint

# Swagger UI sets styles from its script; scripts come from here alone.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_TYPES = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}
_HTML = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
)


def routes() -> tuple[FastRoute, ...]:
    """Return the pages and the files they load, all read once."""
    return (
        FastRoute("GET", "/docs", _constant(_read("docs.html"), _HTML)),
        FastRoute("GET", "/docs/errors", _constant(render_errors().encode(), _HTML)),
        *map(_static, ("docs.js", "swagger-ui-bundle.js", "swagger-ui.css")),
    )


def _static(name: str) -> FastRoute:
    suffix = name[name.rindex(".") :]
    headers = ((b"content-type", _TYPES[suffix]), (b"cache-control", b"max-age=3600"))
    return FastRoute("GET", f"/static/{name}", _constant(_read(name), headers))


def _read(name: str) -> bytes:
    return (resources.files(__package__) / "static" / name).read_bytes()


def _constant(body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> Endpoint:
    response = Response(200, body, headers)

    async def answer(_request: Request) -> Response:
        return response

    return answer


def error_kinds() -> list[type[ClarionError]]:
    """Return every error that the API can answer, by status and code."""
    kinds = [kind for root in (RequestError, ServiceError) for kind in _below(root)]
    return sorted(kinds, key=lambda kind: (kind.status, kind.code))


def _below(kind: type[ClarionError]) -> Iterator[type[ClarionError]]:
    for child in kind.__subclasses__():
        if child.__module__ == "clarion.errors":
            yield child
            yield from _below(child)


def render_errors() -> str:
    """Return the page to which the `type` of a problem points."""
    rows = "".join(
        f'<h2 id="{kind.code}">{kind.code}</h2>'
        f"<p>{kind.status} {HTTPStatus(kind.status).phrase}. {html.escape(_meaning(kind))} "
        f"{advise(kind)}</p>"
        for kind in error_kinds()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Clarion errors</title>'
        "<style>body{font:16px/1.5 system-ui;max-width:44rem;margin:2rem auto;padding:0 1rem}"
        "h2{font:600 1rem ui-monospace,monospace;margin-top:2rem}</style></head>"
        f"<body><h1>Errors of the Clarion API</h1>{rows}</body></html>"
    )


def advise(kind: type[ClarionError]) -> str:
    """Return whether to retry a request after this error."""
    if kind.retryable:
        return "Retry the request later."
    return "Retrying the same request will fail again."


def _meaning(kind: type[ClarionError]) -> str:
    return (kind.__doc__ or "").strip()
