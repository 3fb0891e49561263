"""The served OpenAPI document: what Litestar generates from its handlers, and the fast routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from clarion import __version__
from clarion.http import problems
from clarion.http.asgi import FastRoute, Operation

_DESCRIPTION = """Clarion accepts events, decides for each user whether, when and on which channels
to notify them, and records the outcome. Errors are `application/problem+json`; their codes are
explained on [/docs/errors](/docs/errors)."""
_BEARER = SecurityScheme(
    type="http",
    scheme="bearer",
    description="An API key of the app (`ck_…`), or a token that the app signed for a user.",
)
_REF = "#/components/schemas/{name}"


def configure(fast_routes: Sequence[FastRoute]) -> OpenAPIConfig:
    """Return what makes Litestar serve the whole document at `/openapi.json`."""
    return OpenAPIConfig(
        title="Clarion",
        version=__version__,
        description=_DESCRIPTION,
        components=Components(security_schemes={"bearer": _BEARER}),
        security=[{"bearer": []}],
        path="/openapi.json",
        # The page itself is ours: what Litestar would serve loads from foreign hosts.
        render_plugins=[_WholeDocument(fast_routes)],
    )


class _WholeDocument(JsonRenderPlugin):
    def __init__(self, fast_routes: Sequence[FastRoute]) -> None:
        super().__init__(path="/")
        self._fast_routes = fast_routes
        self._rendered = b""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        if not self._rendered:
            add_fast_routes(openapi_schema, self._fast_routes)
            document_errors(openapi_schema)
            self._rendered = self.render_json(request, openapi_schema)
        return self._rendered


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
