"""Pages for developers: the API documentation and the list of errors."""

from __future__ import annotations

import html
from functools import partial
from http import HTTPStatus

from clarion.errors import ClarionError, RequestError, ServiceError
from clarion.http.asgi import FastRoute
from clarion.http.static_files import constant, read, serve

# Swagger UI sets styles from its script; scripts come from this server alone.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_FILES = ("docs.js", "swagger-ui-bundle.js", "swagger-ui.css")
_HTML = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
)
_DO_NOT_RETRY = "Retrying the same request will fail again."


def routes() -> tuple[FastRoute, ...]:
    """Return the pages and the files they load: two megabytes that most servers never serve."""
    return (
        FastRoute("GET", "/docs", constant(partial(read, "docs.html"), _HTML)),
        FastRoute("GET", "/docs/errors", constant(lambda: render_errors().encode(), _HTML)),
        *(serve(f"/docs/{name}", name) for name in _FILES),
    )


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
