"""Pages for developers: the API documentation and the list of errors."""

from __future__ import annotations

import html
from http import HTTPStatus
from importlib import resources

from clarion.errors import ClarionError, RequestError, ServiceError
from clarion.http.asgi import Endpoint, FastRoute, Request, Response

# Swagger UI sets styles from its script; scripts come from this server alone.
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
_DO_NOT_RETRY = "Retrying the same request will fail again."


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


def list_errors() -> list[type[ClarionError]]:
    """Return every error that the API can answer, by status and code."""
    errors = [*RequestError.__subclasses__(), *ServiceError.__subclasses__()]
    ours = [error for error in errors if error.__module__ == "clarion.errors"]
    return sorted(ours, key=lambda error: (error.status, error.code))


def render_errors() -> str:
    """Return the page that the `type` of a problem links to."""
    rows = "".join(
        f'<h2 id="{error.code}">{error.code}</h2><p>{html.escape(describe(error))}</p>'
        for error in list_errors()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Clarion errors</title>'
        "<style>body{font:16px/1.5 system-ui;max-width:44rem;margin:2rem auto;padding:0 1rem}"
        "h2{font:600 1rem ui-monospace,monospace;margin-top:2rem}</style></head>"
        f"<body><h1>Errors of the Clarion API</h1>{rows}</body></html>"
    )


def describe(error: type[ClarionError]) -> str:
    """Return the status and meaning of an error, and whether to retry."""
    status = f"{error.status} {HTTPStatus(error.status).phrase}"
    retry = "Retry the request later." if error.retryable else _DO_NOT_RETRY
    return f"{status}. {(error.__doc__ or '').strip()} {retry}"
