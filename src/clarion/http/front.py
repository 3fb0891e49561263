"""The front of the house: what every HTTP request passes, whatever answers it behind.

Gives the request its id, asks who calls, counts what they take, caps the body, turns errors into
problems, and observes the answer. The routes in its table are answered by plain functions; the
rest by the framework.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from clarion.access.model import AppCaller
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
    Headers,
    Request,
    Response,
    Streamed,
    announced_length,
    header,
    respond,
    stream,
)
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from clarion.access.callers import Callers
    from clarion.access.model import Caller
    from clarion.clock import Clock
    from clarion.http.asgi import Endpoint, Message, Receive, Scope, Send
    from clarion.nodes.port import Limits
    from clarion.settings import Settings
    from clarion.telemetry.metrics import Metrics

    # Litestar types the messages of ASGI one by one; to us they are mappings.
    Framework = Callable[[Any, Any, Any], Awaitable[None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WINDOW_S = 60
SERVER_FAULT = 500
# Others are counted as one: a caller can make up as many as it likes.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Front:
    """The ASGI application that the listeners serve."""

    def __init__(
        self,
        *,
        routes: Mapping[tuple[str, str], Endpoint],
        prefixes: Mapping[str, Endpoint],
        framework: Framework,
        callers: Callers,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._routes = routes
        self._prefixes = tuple(prefixes.items())
        self._paths = frozenset(path for _, path in routes)
        self._framework = framework
        self._callers = callers
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        request_id = self._request_id(scope)
        extra: Headers = [(b"x-request-id", request_id.encode()), *_SAFETY]
        watch = _Watch(send, extra)
        request = Request(scope, receive, request_id, None, self._settings.max_body_bytes)
        is_let_in = False
        try:
            _check_path(scope)
            if scope["path"].startswith("/v1/"):
                request.caller = await self._admit(scope, extra)
            endpoint = self._find(scope["method"], scope["path"])
            is_let_in = True
            if endpoint:
                await self._answer(watch, request, await endpoint(request), started)
            else:
                await self._serve_framework(scope, receive, watch, request_id, request.caller)
        except ClarionError as error:
            if not is_let_in or request.is_whole:
                await request.discard()
            await _send_problem(watch, error, request_id)
        except Exception as error:  # noqa: BLE001 - the last net: the caller gets an answer
            get_logger().exception("request_failed", request_id=request_id, path=scope["path"])
            await _send_problem(watch, InternalError(), request_id, cause=error)
        # A stream was observed when it began.
        if not watch.is_observed:
            self._observe(scope, watch.status, time.perf_counter() - started, request_id)

    async def _answer(
        self, watch: _Watch, request: Request, answer: Response | Streamed, started: float
    ) -> None:
        if isinstance(answer, Response):
            await respond(watch, answer, [])
            return
        watch.is_observed = True
        self._observe(request.scope, 200, time.perf_counter() - started, request.id)
        await stream(watch, request, answer)

    def _find(self, method: str, path: str) -> Endpoint | None:
        # A HEAD is a GET whose body the listener keeps to itself.
        kind = "GET" if method == "HEAD" else method
        endpoint = self._routes.get((kind, path))
        if endpoint is None and path.endswith("/"):
            # As the framework has it: a slash more at the end is the same path.
            endpoint = self._routes.get((kind, path[:-1]))
        # What is fast is answered here, the other methods of its path by the framework.
        if endpoint is None and path in self._paths and not path.startswith("/v1/"):
            raise MethodNotAllowed
        return endpoint or self._find_by_prefix(path)[1]

    def _find_by_prefix(self, path: str) -> tuple[str, Endpoint | None]:
        for prefix, endpoint in self._prefixes:
            if path.startswith(prefix):
                return prefix, endpoint
        return "unmatched", None

    def _request_id(self, scope: Scope) -> str:
        given = header(scope, b"x-request-id")
        return given if given and _REQUEST_ID.fullmatch(given) else self._clock.new_id()

    async def _admit(self, scope: Scope, extra: Headers) -> Caller:
        """Ask who calls, and count the request against its limit."""
        caller = await self._callers.identify(header(scope, b"authorization"))
        who = (
            caller.key_id if isinstance(caller, AppCaller) else f"{caller.app_id}:{caller.user_id}"
        )
        allowance = await self._limits.take(
            who,
            limit=self._settings.requests_per_minute,
            window_s=_WINDOW_S,
            now=self._clock.now(),
        )
        extra += (
            (b"ratelimit-limit", b"%d" % allowance.limit),
            (b"ratelimit-remaining", b"%d" % allowance.remaining),
            (b"ratelimit-reset", b"%d" % allowance.reset_s),
            (b"cache-control", b"no-store"),
        )
        if allowance.is_exceeded:
            raise TooManyRequests(allowance.reset_s)
        return caller

    async def _serve_framework(
        self, scope: Scope, receive: Receive, watch: _Watch, request_id: str, caller: Caller | None
    ) -> None:
        limit = self._settings.max_body_bytes
        # Whatever it says, the body is capped when it is read.
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
        await self._framework(scope, receive_capped, watch)

    def _observe(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        method, path = scope["method"], scope["path"]
        kind = method if method in _METHODS else "other"
        route = path if path in self._paths else scope.get("path_template")
        route = route or self._find_by_prefix(path)[0]
        self._metrics.observe_request(kind, route, status, seconds)
        which = self._settings.log_requests
        if which == "all" or (which == "errors" and status >= SERVER_FAULT):
            get_logger().info(
                "request",
                request_id=request_id,
                method=method,
                path=path,
                status=status,
                duration_ms=round(seconds * 1000, 2),
            )


def _check_path(scope: Scope) -> None:
    path = scope["path"]
    if "//" in path or "\0" in path:
        # The framework would take `//v1/…` for `/v1/…`, and nobody would have asked who calls.
        # No name has a zero character, and PostgreSQL cannot even be asked for one.
        raise NotFound
    if b"%00" in scope.get("query_string", b""):
        raise InvalidFields(FieldFault("query", "must not hold zero characters"))


_SAFETY: Headers = [(b"x-content-type-options", b"nosniff")]


class _Watch:
    """Sends on, adds the headers of the house, and remembers what was answered."""

    __slots__ = ("_extra", "_send", "is_observed", "status")

    def __init__(self, send: Send, extra: Headers) -> None:
        self.status = 0
        self.is_observed = False
        self._send = send
        self._extra = extra

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *self._extra]
        await self._send(message)


async def _send_problem(
    watch: _Watch, error: ClarionError, request_id: str, cause: BaseException | None = None
) -> None:
    if watch.status:  # the answer has begun; all that is left is to break it off
        raise error from cause
    body = problems.encode(error, request_id)
    await respond(watch, Response(error.status, body), problems.headers_of(error))
