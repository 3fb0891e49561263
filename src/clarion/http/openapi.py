"""The served OpenAPI document: what Litestar generates from its handlers, and the fast routes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from clarion import __version__
from clarion.http import problems
from clarion.http.asgi import FastRoute, Operation, Request, Response

_DESCRIPTION = """Clarion accepts events, decides for each user whether, when and on which channels
to notify them, and records the outcome. Errors are `application/problem+json`; their codes are
explained on [/docs/errors](/docs/errors)."""
_BEARER = SecurityScheme(
    type="http",
    scheme="bearer",
    description="An API key of the app (`ck_…`), a token that it signed for a user, or an admin "
    "API key (`cak_…`). Administrators name the app in the header `Clarion-App`.",
)
_SESSION = SecurityScheme(
    type="apiKey",
    name="__Host-clarion_session",
    security_scheme_in="cookie",
    description="The session of an administrator. A request that changes something also needs the "
    "header `Clarion-CSRF-Token`.",
)
PATH = "/openapi.json"
_MEDIA_TYPE = b"application/vnd.oai.openapi+json"
_REF = "#/components/schemas/{name}"


def configure() -> OpenAPIConfig:
    """Return what Litestar says of itself; it is served by `OpenApiDocument`."""
    return OpenAPIConfig(
        title="Clarion",
        version=__version__,
        description=_DESCRIPTION,
        components=Components(security_schemes={"bearer": _BEARER, "session": _SESSION}),
        security=[{"bearer": []}, {"session": []}],
        path=PATH,
        render_plugins=[JsonRenderPlugin()],
    )


class OpenApiDocument:
    """The encoded document: made once, when it is first asked for, beside the event loop."""

    def __init__(self, framework: Litestar, fast_routes: Sequence[FastRoute]) -> None:
        self._framework = framework
        self._fast_routes = fast_routes
        self._encoding: asyncio.Future[bytes] | None = None

    @property
    def routes(self) -> tuple[FastRoute, ...]:
        """Return the route that serves the document."""
        return (FastRoute("GET", PATH, self._answer),)

    async def read(self) -> bytes:
        """Return the document."""
        if self._encoding is None:
            self._encoding = asyncio.ensure_future(asyncio.to_thread(self._encode))
        return await asyncio.shield(self._encoding)

    async def _answer(self, _request: Request) -> Response:
        return Response(200, await self.read(), ((b"content-type", _MEDIA_TYPE),))

    def _encode(self) -> bytes:
        document = self._framework.openapi_schema.to_schema()
        add_fast_routes(document, self._fast_routes)
        document_errors(document)
        return msgspec.json.encode(document) + b"\n"


def add_fast_routes(document: dict[str, Any], fast_routes: Sequence[FastRoute]) -> None:
    """Add the routes that are documented, and the schemas they refer to."""
    for route in fast_routes:
        if route.operation:
            path = document["paths"].setdefault(route.path, {})
            path[route.method.lower()] = _describe(route.operation, document)


def document_errors(document: dict[str, Any]) -> None:
    """Let every operation answer errors with a problem; Litestar would name its own shape."""
    content = {problems.MEDIA_TYPE: {"schema": _schema_of(problems.Problem, document)}}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("400", None)
            operation["responses"]["default"] = {"description": "An error.", "content": content}


def _describe(operation: Operation, document: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [operation.tag],
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": False,
                "description": parameter.description,
                "schema": _schema_of(parameter.type, document),
            }
            for parameter in operation.parameters
        ],
        "responses": {
            str(operation.status): {
                "description": operation.response_description,
                "content": _content(operation.media_type, operation.response, document),
            }
        },
    }
    if operation.body is not None:
        content = _content("application/json", operation.body, document)
        described["requestBody"] = {"required": True, "content": content}
    return described


def _content(media_type: str, body: Any, document: dict[str, Any]) -> dict[str, Any]:
    return {media_type: {"schema": _schema_of(body, document)}}


def _schema_of(body: Any, document: dict[str, Any]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([body], ref_template=_REF)
    for name, component in components.items():
        document["components"]["schemas"].setdefault(name, component)
    return schema
