"""The served OpenAPI document: the handlers of the framework and the fast routes side by side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, Schema, SecurityScheme
from litestar.plugins import OpenAPISchemaPlugin
from litestar.routes import HTTPRoute
from litestar.typing import FieldDefinition

from clarion import __version__
from clarion.errors import ClarionError
from clarion.http import examples
from clarion.http.asgi import FastRoute, Operation, Parameter, Request
from clarion.http.asgi import Response as FastResponse
from clarion.http.error_responses import ErrorResponses
from clarion.http.schemas import Schemas, drop_null, join_lines

_DESCRIPTION = """Clarion accepts events, decides for each user whether, when and on which channels
to notify them, and records the outcome.

Send an event with `POST /v1/events`, and read what became of it in the inbox of the user
(`GET /v1/users/{user_id}/notifications`) or in its timeline
(`GET /v1/notifications/{notification_id}/timeline`).

* Bodies are JSON. An unknown field in a request is an error.
* Times are RFC 3339; responses have them in UTC.
* A list has `items`, and `next`: the value for `?after=` to get the next page, or null.
* Errors are `application/problem+json`. Their codes are explained on [/docs/errors](/docs/errors).
* A POST that creates something can be repeated safely with the header `Idempotency-Key`."""
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
_JSON = "application/json"
_OF_ME = "/v1/me/"
_KNOWN_TAG = Parameter(
    "If-None-Match", "header", str, "The `ETag` of the response that the client has."
)
_TAG: dict[str, Any] = {
    "description": "Changes with the response. Send it as `If-None-Match` the next time.",
    "schema": {"type": "string"},
}
_ARTICLES = re.compile(r"\b(a|an|the)\s+", re.IGNORECASE)
_VERB = re.compile(r"^([a-z]+_(?:all_)?)")


class Tag(NamedTuple):
    """A group of operations. Groups are listed in the order in which a newcomer needs them."""

    name: str
    description: str


class _NoSchemas(OpenAPISchemaPlugin):
    """Keeps Litestar from creating schemas: `Schemas` creates those of the document."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return isinstance(field_definition.annotation, type) or field_definition.is_generic

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        del field_definition, schema_creator
        return Schema()


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
        use_handler_docstrings=True,
    )


PLUGINS = (_NoSchemas(),)


class OpenApiDocument:
    """The encoded document, created once in a thread when it is first requested."""

    def __init__(
        self, framework: Litestar, fast_routes: Sequence[FastRoute], tags: Sequence[Tag] = ()
    ) -> None:
        self._framework = framework
        self._fast_routes = fast_routes
        self._tags = tags
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

    async def _answer(self, _request: Request) -> FastResponse:
        return FastResponse(200, await self.read(), ((b"content-type", _MEDIA_TYPE),))

    def _encode(self) -> bytes:
        document = describe(self._framework, self._fast_routes, self._tags)
        return msgspec.json.encode(document) + b"\n"


def describe(
    framework: Litestar, fast_routes: Sequence[FastRoute], tags: Sequence[Tag]
) -> dict[str, Any]:
    """Return the document."""
    document = framework.openapi_schema.to_schema()
    schemas, errors = Schemas(), ErrorResponses()
    for path, method, handler in _list_handlers(framework):
        operation = document["paths"][path][method]
        _add_types(operation, handler, schemas)
        declared: tuple[type[ClarionError], ...] = handler.opt.get("errors", ())
        errors.add(path, method, operation, declared)
    for route in fast_routes:
        if route.operation:
            operation = _describe_fast(route.operation, schemas)
            document["paths"].setdefault(route.path, {})[route.method.lower()] = operation
            errors.add(route.path, route.method.lower(), operation)
    document["tags"] = [tag._asdict() for tag in tags]
    document["paths"] = _sort_paths(document["paths"], [tag.name for tag in tags])
    errors.want_schema(schemas)
    document["components"]["schemas"] = schemas.fill()
    for _, _, operation in list_operations(document):
        _finish_parameters(operation)
    document["components"]["responses"] = errors.components
    _name_operations(document)
    examples.add(document)
    return document


def list_operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, method and description of each operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _list_handlers(framework: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in framework.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.resolve_include_in_schema():
                    for method in handler.http_methods - {"OPTIONS"}:
                        yield route.path_format, method.lower(), handler


def _add_types(operation: dict[str, Any], handler: HTTPRouteHandler, schemas: Schemas) -> None:
    """Request the schemas of a handler's parameters and results."""
    if "description" in operation:
        operation["description"] = join_lines(operation["description"])
    if bodies := _list_bodies(handler):
        content: dict[str, dict[str, Any]] = {media_type: {} for media_type in bodies}
        is_required = handler.parsed_data_field is not None
        operation["requestBody"] = {"required": is_required, "content": content}
        for media_type, body in bodies.items():
            schemas.want(content[media_type], body)
    operation["responses"].pop("400", None)  # Litestar's own form, which is never sent
    returned = _find_returned(handler.parsed_return_field)
    for status, response in operation["responses"].items():
        if status == "204":
            response.pop("content", None)
        specified = (handler.responses or {}).get(int(status))
        for holder in response.get("content", {}).values():
            schemas.want(holder, specified.data_container if specified else returned)
    _add_parameters(operation, dict(_list_fields(handler)), schemas)


def _add_parameters(
    operation: dict[str, Any], fields: dict[str, FieldDefinition], schemas: Schemas
) -> None:
    for parameter in operation.get("parameters", ()):
        field = fields.get(parameter["name"])
        if field is not None:  # otherwise the handler reads it itself, and has described it
            schemas.want(parameter, field.raw)
            parameter["extra"] = getattr(field.kwarg_definition, "schema_extra", None) or {}


def _list_bodies(handler: HTTPRouteHandler) -> dict[str, Any]:
    """Return the types of a body by media type; a handler that reads it itself names them."""
    if handler.parsed_data_field is not None:
        return {_JSON: handler.parsed_data_field.annotation}
    bodies: dict[str, Any] = getattr(handler.operation_class, "bodies", {})
    return bodies


def _find_returned(field: FieldDefinition) -> Any:
    return field.inner_types[0].annotation if field.is_subclass_of(Response) else field.annotation


def _list_fields(handler: HTTPRouteHandler) -> Iterator[tuple[str, FieldDefinition]]:
    """Yield the parameters of a handler and of its dependencies, by their names in a request."""
    signatures = [
        each.parsed_fn_signature
        for each in handler.resolve_dependencies().values()
        if hasattr(each, "parsed_fn_signature")
    ]
    for signature in (*signatures, handler.parsed_fn_signature):
        for name, field in signature.parameters.items():
            given = field.kwarg_definition
            yield (getattr(given, "header", None) or getattr(given, "name", None) or name), field


def _finish_parameters(operation: dict[str, Any]) -> None:
    """Let a parameter be described as a whole, not by its schema."""
    for parameter in operation.get("parameters", ()):
        schema = drop_null(parameter["schema"]) | parameter.pop("extra", {})
        described = schema.pop("description", None)
        parameter.setdefault("description", described)
        parameter["schema"] = schema
    if not operation.get("parameters"):
        operation.pop("parameters", None)


def _describe_fast(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    wanted = (*operation.parameters, _KNOWN_TAG) if operation.has_tag else operation.parameters
    parameters: list[dict[str, Any]] = [
        {
            "name": parameter.name,
            "in": parameter.place,
            "required": parameter.place == "path",
            "description": parameter.description,
        }
        for parameter in wanted
    ]
    for holder, parameter in zip(parameters, wanted, strict=True):
        schemas.want(holder, parameter.type)
    answer: dict[str, Any] = {}
    schemas.want(answer, operation.response)
    described: dict[str, Any] = {
        "summary": operation.summary,
        "description": operation.description,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": {
            str(operation.status): {
                "description": operation.response_description,
                "content": {operation.media_type: answer},
            }
        },
    }
    if operation.has_tag:
        described["responses"][str(operation.status)]["headers"] = {"ETag": _TAG}
        described["responses"]["304"] = {
            "description": "The response that the client has is current.",
            "headers": {"ETag": _TAG},
        }
    if operation.body is not None:
        body: dict[str, Any] = {}
        schemas.want(body, operation.body)
        described["requestBody"] = {"required": True, "content": {_JSON: body}}
    return described


def _sort_paths(paths: dict[str, Any], tags: list[str]) -> dict[str, Any]:
    """Return the paths in the order of their tags."""
    places = {tag: place for place, tag in enumerate(tags)}

    def place_of(path: str) -> tuple[int, str]:
        named = (tag for operation in paths[path].values() for tag in operation.get("tags", ()))
        first = min((places.get(tag, len(places)) for tag in named), default=len(places))
        return first, path

    return {path: dict(sorted(paths[path].items())) for path in sorted(paths, key=place_of)}


def _name_operations(document: dict[str, Any]) -> None:
    names = set[str]()
    for path, method, operation in list_operations(document):
        name = _name_operation(path, operation["summary"])
        operation["operationId"] = f"{name}_with_{method}" if name in names else name
        names.add(name)


def _name_operation(path: str, summary: str) -> str:
    """Return the id of an operation: `list_events` for "List events"."""
    name = re.sub(r"[^a-z]+", "_", _ARTICLES.sub("", summary).lower()).strip("_")
    if path.startswith(_OF_ME):
        return _VERB.sub(r"\1my_", name.removesuffix("_of_user"))
    return name
