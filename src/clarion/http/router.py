"""The management API on Litestar: handlers and their dependencies; errors as problems."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import ControllerRouterHandler

from clarion.errors import (
    ClarionError,
    FieldFault,
    InternalError,
    InvalidFields,
    MethodNotAllowed,
    NotFound,
    RequestError,
)
from clarion.http import openapi, problems
from clarion.http.asgi import FastRoute
from clarion.http.auditing import note_error
from clarion.http.decoding import explain
from clarion.http.queries import READS_QUERY, check_names
from clarion.http.strict_body import StrictBody
from clarion.telemetry.logs import get_logger

_MISSING = re.compile(r"Missing required \w+ parameter '(.+?)'")


def build(
    handlers: Sequence[ControllerRouterHandler],
    parts: Mapping[str, object],
    fast_routes: Sequence[FastRoute] = (),
) -> Litestar:
    """Return the framework's application; handlers get the parts by the names of parameters.

    The fast routes, which the front answers, are named with its own if a method is not allowed.
    """
    provided = {name: _provide(part) for name, part in parts.items()}
    known: dict[BaseRouteHandler, frozenset[str]] = {}
    framework = Litestar(
        route_handlers=[_give_parts(handler, provided) for handler in handlers],
        exception_handlers={Exception: partial(answer_error, _methods_of(fast_routes))},
        before_request=partial(_check_query, known),
        openapi_config=openapi.configure(),
        plugins=openapi.PLUGINS,
        logging_config=None,
        dto=StrictBody,
        return_dto=None,
        request_max_body_size=None,  # the front has the limit
    )
    known.update(_list_parameters(framework))
    return framework


def _list_parameters(framework: Litestar) -> Iterator[tuple[BaseRouteHandler, frozenset[str]]]:
    """Yield each handler with the names of the parameters in its query, unless it reads that."""
    for route in framework.routes:
        if isinstance(route, HTTPRoute):
            for handler, model in route.route_handler_map.values():
                if READS_QUERY in handler.opt:
                    continue
                yield handler, frozenset(each.field_alias for each in model.expected_query_params)


async def _check_query(
    known: Mapping[BaseRouteHandler, frozenset[str]], request: Request[Any, Any, Any]
) -> None:
    query, names = request.scope["query_string"], known.get(request.route_handler)
    if query and names is not None:
        check_names(query, names)


def _give_parts(handler: Any, provided: Mapping[str, Provide]) -> Any:
    """Return a handler, or a class of them, with the parts that it has parameters for.

    If all had all of them, Litestar would compare every part with each other for each handler: half
    of the time in which the framework is built.
    """
    is_class = isinstance(handler, type)
    of_class = vars(handler) if is_class else {"": handler, "dependencies": handler.dependencies}
    own: dict[str, Provide] = of_class.get("dependencies") or {}
    functions = [each.fn for each in of_class.values() if isinstance(each, BaseRouteHandler)]
    functions += [each.dependency for each in own.values()]
    names = {name for each in functions for name in inspect.signature(each).parameters}
    chosen = {name: part for name, part in provided.items() if name in names} | own
    if is_class:
        return type(handler.__name__, (handler,), {"dependencies": chosen})
    given = copy(handler)
    given.dependencies = chosen
    return given


def _provide(part: object) -> Provide:
    return Provide(lambda: part, use_cache=True, sync_to_thread=False)


def _methods_of(fast_routes: Sequence[FastRoute]) -> dict[str, set[str]]:
    """Return the methods that the front answers, by path."""
    methods: dict[str, set[str]] = {}
    for route in fast_routes:
        methods.setdefault(route.path, set()).add(route.method)
    return methods


def answer_error(
    methods: Mapping[str, set[str]], request: Request[Any, Any, Any], error: Exception
) -> Response[problems.Problem]:
    """Answer any error as a problem; for a wrong method, list the allowed ones."""
    if isinstance(error, MethodNotAllowedException):
        allowed = (error.headers or {}).get("allow", "").split(", ")
        error = MethodNotAllowed({*allowed, *methods.get(request.scope["path"], ())})
    request_id: str = request.scope.get("clarion.request_id", "")  # type: ignore[assignment]
    ours = translate(error)
    note_error(request, ours)
    if isinstance(ours, InternalError):
        get_logger().error("request_failed", request_id=request_id, exc_info=error)
    headers = {key.decode(): value.decode() for key, value in problems.headers_of(ours)}
    media_type = headers.pop("content-type")
    return Response(
        problems.describe(ours, request_id),
        status_code=ours.status,
        media_type=media_type,
        headers=headers,
    )


def translate(error: Exception) -> ClarionError:
    """Turn an error of the framework into an error of Clarion."""
    match error:
        case ClarionError():
            return error
        case ValidationException():
            return InvalidFields(*_faults(error))
        case NotFoundException():
            return NotFound()
        case MethodNotAllowedException():
            return MethodNotAllowed()
        case HTTPException() if error.status_code < problems.SERVER_FAULT:
            return RequestError(error.detail)
        case _:
            return InternalError()


def _faults(error: ValidationException) -> list[FieldFault]:
    """Return what is wrong with the parameters; bodies are checked by `StrictBody`."""
    if missing := _MISSING.search(error.detail):
        return [FieldFault(missing[1], "is required")]
    extra = error.extra if isinstance(error.extra, list) else []
    return [_fault(each.get("key", "query"), each["message"]) for each in extra]


def _fault(key: str, message: str) -> FieldFault:
    if key == "data":  # what the body says has been checked before: there is none
        return FieldFault("body", "is required")
    # Every parameter comes as text: "not a string" would only confuse.
    return FieldFault(key, explain(message).partition(", not ")[0])
