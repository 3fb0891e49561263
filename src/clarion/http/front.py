"""The ASGI application in front of the framework: every HTTP request passes it.

It gives the request an id, authenticates the caller, counts the request against its limit, caps
the body, turns errors into problems, and observes the response. Fast routes are answered by plain
functions, everything else by the framework.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clarion.access.model import AppCaller, Caller
from clarion.access.port import Authenticator
from clarion.clock import Clock
from clarion.errors import (
    BodyTooLarge,
    ClarionError,
    FieldFault,
    InternalError,
    InvalidFields,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    TooManyRequests,
)
from clarion.http import problems
from clarion.http.asgi import (
    Endpoint,
    FastRoute,
    Headers,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    Streamed,
    announced_length,
    header,
    respond,
    stream,
)
from clarion.nodes.port import Limits, Quota
from clarion.settings import Settings
from clarion.telemetry.logs import get_logger
from clarion.telemetry.metrics import Metrics

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WINDOW_S = 60
# Users get no more than this part of their app's requests: the rest is left for its own servers.
_USERS_PART = 0.75
# Other methods are counted as one: a client can invent as many as it likes.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SAFETY: Headers = [(b"x-content-type-options", b"nosniff")]


class Framework(Protocol):
    """An ASGI application that lists its routes, each with a `path`."""

    @property
    def routes(self) -> Sequence[Any]: ...

    async def __call__(self, scope: Any, receive: Any, send: Any, /) -> None: ...


class Front:
    """The ASGI application that the listeners serve."""

    def __init__(
        self,
        *,
        routes: Sequence[FastRoute],
        prefixes: Mapping[str, Endpoint],
        framework: Framework,
        authenticator: Authenticator,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._routes = {(route.method, route.path): route.endpoint for route in routes}
        self._prefixes = tuple(prefixes.items())
        self._paths = frozenset(route.path for route in routes)
        # The framework has no route for these paths and would answer 404, not 405.
        self._own_paths = self._paths - {route.path for route in framework.routes}
        self._framework = framework
        self._authenticator = authenticator
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        request_id = self._request_id(scope)
        extra: Headers = [(b"x-request-id", request_id.encode()), *_SAFETY]
        recorder = _Recorder(send, extra)
        request = Request(scope, receive, request_id, None, self._settings.max_body_bytes)
        is_admitted = False
        try:
            _check_path(scope)
            if scope["path"].startswith("/v1/"):
                request.caller = await self._admit(scope, extra)
            endpoint = self._find(scope["method"], scope["path"])
            is_admitted = True
            if endpoint:
                await self._answer(recorder, request, await endpoint(request), started)
            else:
                await self._serve_framework(scope, receive, recorder, request_id, request.caller)
        except ClarionError as error:
            if not is_admitted or request.is_whole:
                await request.discard()
            await _send_problem(recorder, error, request_id)
        except Exception as error:  # noqa: BLE001 - the client gets an answer in any case
            get_logger().exception("request_failed", request_id=request_id, path=scope["path"])
            await _send_problem(recorder, InternalError(), request_id, cause=error)
        # A stream was observed when it began.
        if not recorder.is_observed:
            self._observe(scope, recorder.status, time.perf_counter() - started, request_id)

    async def _answer(
        self, recorder: _Recorder, request: Request, answer: Response | Streamed, started: float
    ) -> None:
        if isinstance(answer, Response):
            await respond(recorder, answer, [])
            return
        recorder.is_observed = True
        self._observe(request.scope, 200, time.perf_counter() - started, request.id)
        await stream(recorder, request, answer)

    def _find(self, method: str, path: str) -> Endpoint | None:
        # A HEAD is a GET whose body the listener does not send.
        method = "GET" if method == "HEAD" else method
        endpoint = self._routes.get((method, path)) or self._find_by_prefix(path)[1]
        if endpoint is None:
            # As in the framework, a slash at the end makes no difference.
            path = path.removesuffix("/")
            endpoint = self._routes.get((method, path))
            if endpoint is None and path in self._own_paths:
                raise MethodNotAllowed
        return endpoint

    def _find_by_prefix(self, path: str) -> tuple[str, Endpoint | None]:
        for prefix, endpoint in self._prefixes:
            if path.startswith(prefix):
                return prefix, endpoint
        return "unmatched", None

    def _request_id(self, scope: Scope) -> str:
        given = header(scope, b"x-request-id")
        return given if given and _REQUEST_ID.fullmatch(given) else self._clock.new_id()

    async def _admit(self, scope: Scope, extra: Headers) -> Caller:
        """Authenticate the caller, and count the request against its limit."""
        caller = await self._authenticator.identify(header(scope, b"authorization"))
        position, allowance = await self._limits.take_all(
            self._quotas(caller), window_s=_WINDOW_S, now=self._clock.now()
        )
        extra += (
            (b"ratelimit-limit", b"%d" % allowance.limit),
            (b"ratelimit-remaining", b"%d" % allowance.remaining),
            (b"ratelimit-reset", b"%d" % allowance.reset_s),
            (b"cache-control", b"no-store"),
        )
        if allowance.is_exceeded:
            raise TooManyRequests(allowance.reset_s, _explain_limit(caller, position))
        return caller

    def _quotas(self, caller: Caller) -> tuple[Quota, Quota]:
        """Return the caller's own quota, then the part of its app's that it may use up."""
        settings = self._settings
        per_app = settings.app_requests_per_minute
        if isinstance(caller, AppCaller):
            own = Quota(caller.key_id, settings.requests_per_minute)
            return own, Quota(caller.app_id, per_app)
        own = Quota(f"{caller.app_id}:{caller.user_id}", settings.user_requests_per_minute)
        return own, Quota(caller.app_id, max(1, int(per_app * _USERS_PART)))

    async def _serve_framework(
        self,
        scope: Scope,
        receive: Receive,
        recorder: _Recorder,
        request_id: str,
        caller: Caller | None,
    ) -> None:
        limit = self._settings.max_body_bytes
        # Whatever the header says, the body is capped when it is read.
        if (announced_length(scope) or 0) > limit:
            raise BodyTooLarge
        taken = 0

        async def receive_capped() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.disconnect":
                # Nobody reads the answer; but it is a fault of the client, not one of ours.
                raise MalformedBody
            taken += len(message.get("body", b""))
            if taken > limit:
                raise BodyTooLarge
            return message

        scope["clarion.request_id"] = request_id
        scope["clarion.caller"] = caller
        await self._framework(scope, receive_capped, recorder)

    def _observe(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        method, path = scope["method"], scope["path"]
        route = path if path in self._paths else scope.get("path_template")
        route = route or self._find_by_prefix(path)[0]
        label = method if method in _METHODS else "other"
        self._metrics.observe_request(label, route, status, seconds)
        which = self._settings.log_requests
        if which == "all" or (which == "errors" and status >= problems.SERVER_FAULT):
            get_logger().info(
                "request",
                request_id=request_id,
                method=method,
                path=path,
                status=status,
                duration_ms=round(seconds * 1000, 2),
            )


def _explain_limit(caller: Caller, position: int) -> str:
    if position > 0:
        return "This app has made all its requests of this minute; wait as `Retry-After` says."
    who = "API key" if isinstance(caller, AppCaller) else "user"
    return f"This {who} has made all its requests of this minute; wait as `Retry-After` says."


def _check_path(scope: Scope) -> None:
    path = scope["path"]
    if "//" in path or "\0" in path:
        # The framework would treat `//v1/…` as `/v1/…`, without authentication. No id has a zero
        # character, and PostgreSQL cannot be asked for one.
        raise NotFound
    if b"%00" in scope.get("query_string", b""):
        raise InvalidFields(FieldFault("query", "must not contain zero characters"))


@dataclass(slots=True, eq=False)
class _Recorder:
    """Sends a response with the headers of every response, and records its status."""

    send: Send
    extra: Headers
    status: int = 0
    is_observed: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self.extra]
        await self.send(message)


async def _send_problem(
    recorder: _Recorder, error: ClarionError, request_id: str, cause: BaseException | None = None
) -> None:
    if recorder.status:  # the response has begun: all that is left is to abort it
        raise error from cause
    body = problems.encode(error, request_id)
    await respond(recorder, Response(error.status, body), problems.headers_of(error))
