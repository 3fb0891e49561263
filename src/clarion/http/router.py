"""The management API on Litestar: its routes on one page, its errors in our shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import (
    ClientException,
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    SerializationException,
    ValidationException,
)
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from clarion import __version__
from clarion.access.api.caller import get_caller
from clarion.access.api.keys import KeysController
from clarion.catalog.api.templates import TemplatesController
from clarion.catalog.api.types import TypesController
from clarion.errors import (
    ClarionError,
    FieldFault,
    InternalError,
    InvalidFields,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    RequestError,
)
from clarion.events.api.events import EventsController, explain
from clarion.events.api.notifications import NotificationsController, list_of_event
from clarion.events.api.waiting import list_waiting
from clarion.http import problems
from clarion.http.bodies import StrictBody
from clarion.inbox import api as inbox
from clarion.people.api.follows import FollowsController
from clarion.people.api.preferences import PreferencesController
from clarion.people.api.users import PeopleController
from clarion.push.api import devices, feedback, history, stats, topics
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

_ABOUT_A_FIELD = (
    (re.compile(r"unknown field `(.+?)`"), "there is no such field"),
    (re.compile(r"missing required field `(.+?)`"), "is required"),
)
ROUTES = (
    KeysController,
    get_caller,
    *devices.ROUTES,
    *history.ROUTES,
    *topics.ROUTES,
    *feedback.ROUTES,
    *stats.ROUTES,
    EventsController,
    explain,
    NotificationsController,
    list_of_event,
    list_waiting,
    PeopleController,
    PreferencesController,
    FollowsController,
    TypesController,
    TemplatesController,
    *inbox.ROUTES,
)

_DESCRIPTION = """Clarion takes in what happened, decides for each person whether, where and when
to say it, and keeps account of what became of it. Errors are `application/problem+json`; their
codes are explained on [/docs/errors](/docs/errors)."""


def build(parts: Mapping[str, object]) -> Litestar:
    """Return the framework's application; the parts are handed to handlers by their names."""
    return Litestar(
        route_handlers=ROUTES,
        dependencies={name: _provide(part) for name, part in parts.items()},
        exception_handlers={Exception: answer_error},
        openapi_config=_openapi(),
        logging_config=None,
        dto=StrictBody,
        return_dto=None,
        request_max_body_size=None,  # the front has the limit
    )


def _provide(part: object) -> Provide:
    return Provide(lambda: part, use_cache=True, sync_to_thread=False)


def _openapi() -> OpenAPIConfig:
    bearer = SecurityScheme(
        type="http",
        scheme="bearer",
        description="An API key of the app (`ck_…`), or a token that the app signed for a user.",
    )
    return OpenAPIConfig(
        title="Clarion",
        version=__version__,
        description=_DESCRIPTION,
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}],
        path="/openapi.json",
        # The page itself is ours: what Litestar would serve loads from foreign hosts.
        render_plugins=[JsonRenderPlugin(path="/")],
    )


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[problems.Problem]:
    """Answer any error as a problem."""
    request_id: str = request.scope.get("clarion.request_id", "")  # type: ignore[assignment]
    ours = translate(error)
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
    """Turn an error of the framework into one of ours."""
    match error:
        case ClarionError():
            return error
        case ValidationException():
            return InvalidFields(*_faults(error))
        # The decoder lets the last two through as they are: bytes that are no UTF-8, and nesting
        # without end.
        case SerializationException() | UnicodeDecodeError() | RecursionError():
            return MalformedBody()
        case NotFoundException():
            return NotFound()
        case MethodNotAllowedException():
            return MethodNotAllowed()
        case ClientException() | HTTPException() if error.status_code < problems.SERVER_FAULT:
            return MalformedBody() if error.__cause__ else RequestError(error.detail)
        case _:
            return InternalError()


def _faults(error: ValidationException) -> list[FieldFault]:
    extra = error.extra if isinstance(error.extra, list) else []
    faults = [
        _fault(str(item.get("key") or "body"), str(item.get("message", "is not valid")))
        for item in extra
        if isinstance(item, dict)
    ]
    return faults or [FieldFault("body", error.detail)]


def _fault(key: str, message: str) -> FieldFault:
    """Name the field itself where the decoder names only the object it is in."""
    place = "" if key in ("data", "body") else f"{key}."
    for pattern, reason in _ABOUT_A_FIELD:
        if found := pattern.search(message):
            return FieldFault(place + found[1], reason)
    return FieldFault(key, message)
