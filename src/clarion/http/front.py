"""The ASGI application in front of the framework: every HTTP request passes it.

It gives the request an id, authenticates the caller, counts the request against its limit, caps
the body, turns errors into problems, and observes the response. Fast routes are answered by plain
functions, everything else by the framework.
"""

from __future__ import annotations

import asyncio
import errno
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from clarion.access.model import AdminCredential, AppCaller, Caller
from clarion.access.port import Authenticators, Origins
from clarion.clock import Clock
from clarion.errors import (
    BodyTooLarge,
    ClarionError,
    FieldFault,
    InternalError,
    InvalidFields,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
)
from clarion.http import problems
from clarion.http.admission import Admission
from clarion.http.asgi import (
    Endpoint,
    FastRoute,
    Framework,
    Headers,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    Streamed,
    identity_of,
    index_headers,
    stream,
)
from clarion.http.budgets import MemoryBudget, Running
from clarion.http.connections import Requests, watch
from clarion.http.cors import Cors, is_from_another_origin
from clarion.http.paths import Methods, PathTemplates
from clarion.http.plain.connection import Connection
from clarion.http.queries import check_names, list_parameters
from clarion.http.quotas import RequestQuotas
from clarion.http.sending import ResponseSender
from clarion.http.strangers import Peers, check_head, is_direct, leads_elsewhere
from clarion.nodes.port import Limits
from clarion.settings import Settings
from clarion.telemetry import logs
from clarion.telemetry.logs import Handled, end_request, get_logger
from clarion.telemetry.metrics import Metrics

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_OK = 200  # a look-up in `HTTPStatus` takes as long as ten of these
# Other methods are counted as one: a client can invent as many as it likes.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SAFETY = (b"x-content-type-options", b"nosniff")
HSTS = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
# For operators: other machines get 404, or fewer details.
_FOR_ALL = ("/health", "/live", "/ready")
_FOR_OPERATORS = (*_FOR_ALL, "/metrics", "/docs", "/openapi.json")
# Pages below a prefix: their readers come once, and do not keep a connection as providers do.
_FOR_PEOPLE = ("/unsubscribe/", "/admin/", "/docs/")
# Bodies below this path are text, unless they are said to be JSON.
_WITH_TEXT = "/v1/publish/"
# How often it is tried to build the rest while no file can be opened.
_DESCRIPTORS_PAUSE_S = 0.5
# Requests that a caller may have running at a time; each can hold memory.
_APP_REQUESTS = 2_000
_USER_REQUESTS = 100


class Rest(NamedTuple):
    """What takes long to build: the framework, and the routes and prefixes that need it."""

    routes: Sequence[FastRoute]
    prefixes: Mapping[str, Endpoint]
    framework: Framework


class Front:
    """The ASGI application that the listeners serve.

    It answers its fast routes from the start, and the rest when that is built.
    """

    def __init__(  # noqa: PLR0913 - a line for each dependency
        self,
        *,
        routes: Sequence[FastRoute],
        prefixes: Mapping[str, Endpoint],
        build_rest: Callable[[], Rest],
        authenticators: Authenticators,
        origins: Origins,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._routes = tuple(routes)
        self._prefixes: tuple[tuple[str, Endpoint], ...] = tuple(prefixes.items())
        self._build_rest = build_rest
        self._framework: Framework | None = None
        self._completing: asyncio.Task[Framework] | None = None
        quotas = RequestQuotas(limits, clock, settings)
        self._admission = Admission(authenticators, quotas, settings)
        self._index(())
        self._cors = Cors(origins)
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._peers = Peers.of(settings)
        self._body_limit = settings.max_body_bytes
        self._log_requests = settings.log_requests
        # Not with the development certificate: it is for localhost, where all else is plain HTTP.
        has_certificate = settings.tls_certificate is not None
        self._safety = {"http": (_SAFETY,), "https": (_SAFETY, *[HSTS] * has_certificate)}
        self.connections = watch(settings)
        self.sending = MemoryBudget()
        self._running = Running()

    def _index(self, framework_routes: Sequence[Any]) -> None:
        routes = self._routes
        self.fast_routes = {(route.method, route.path): route.endpoint for route in routes}
        self._providers = tuple(each for each, _ in self._prefixes if each not in _FOR_PEOPLE)
        self._paths = frozenset(route.path for route in routes)
        self._templates = PathTemplates(self._paths)
        self._parameters = {
            route.endpoint: list_parameters(route.operation) for route in routes if route.operation
        }
        self._admission.ticket_paths = frozenset(
            route.path for route in routes if route.takes_tickets
        )
        # The framework has no route for these paths and would answer 404, not 405.
        self._own_paths = self._paths - {route.path for route in framework_routes}
        self._methods = Methods(routes, framework_routes)

    async def complete(self) -> Framework:
        """Build the rest in a thread, the first time, and return the framework."""
        if self._framework is not None:
            return self._framework
        if self._completing is None:
            self._completing = asyncio.create_task(self._complete())
        return await asyncio.shield(self._completing)

    async def _complete(self) -> Framework:
        while (rest := await asyncio.to_thread(self._try_build_rest)) is None:  # noqa: ASYNC110 - a pause
            await asyncio.sleep(_DESCRIPTORS_PAUSE_S)
        self._routes += tuple(rest.routes)
        self._prefixes += tuple(rest.prefixes.items())
        self._index(rest.framework.routes)
        self._framework = rest.framework
        return rest.framework

    def _try_build_rest(self) -> Rest | None:
        """Import and build it; None if strangers hold all descriptors, and it must be later."""
        try:
            return self._build_rest()
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
            return None

    async def list_operations(self) -> set[str]:
        """Return everything that is served: methods and paths, and prefixes as `* /3/`."""
        framework = await self.complete()
        fast = {f"{method} {path}" for method, path in self.fast_routes}
        prefixes = {f"* {prefix}" for prefix, _ in self._prefixes}
        return (
            fast
            | prefixes
            | {
                f"{method} {route.path_format}"
                for route in framework.routes
                for method in route.methods
                if method != "OPTIONS"
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        headers = index_headers(scope["headers"])
        request_id = self._request_id(headers)
        extra = self._start_headers(scope, headers, request_id)
        requests = self._begin(scope)
        request = Request(
            scope,
            receive,
            request_id,
            None,
            self._body_limit,
            self.connections.receiving,
            requests,
            headers,
        )
        logs.request.set(Handled(request_id, headers))
        sender = ResponseSender(request, send, extra, self.sending)
        try:
            self._check(request)
            if scope["path"].startswith("/v1/"):
                parts = await self._answer_caller(request, sender, extra)
            else:
                parts = await self._answer(request, sender)
            if parts is not None:
                await self._send_stream(request, sender, parts, started)
        except ClarionError as error:
            if not request.is_admitted or request.is_whole:
                await request.discard()
            await _send_problem(sender, error, request_id)
        except Exception as error:  # noqa: BLE001 - the client gets an answer in any case
            get_logger().exception("request_failed", path=self._shown(scope["path"]))
            await _send_problem(sender, InternalError(), request_id, cause=error)
        finally:
            if isinstance(requests, Requests):
                self.connections.end(requests)
        self._conclude(request, requests, sender, started)

    def _begin(self, scope: Scope) -> Requests | Connection:
        """Return the connection of a request: a listener of our own adds it to the scope."""
        own: Connection | None = scope.get("connection")
        return own or self.connections.begin((*scope["client"], scope["server"][1]))

    def _start_headers(
        self, scope: Scope, headers: Mapping[bytes, bytes], request_id: str
    ) -> Headers:
        """Return the headers that every response has."""
        extra: Headers = [(b"x-request-id", request_id.encode()), *self._safety[scope["scheme"]]]
        if self._peers.ended_tls(scope, headers):
            extra.append(HSTS)
        return extra

    def _check(self, request: Request) -> None:
        """Refuse ambiguous requests, and hide paths that are not for other machines."""
        scope = request.scope
        path = scope["path"]
        check_head(scope, request.headers)
        if "//" in path or "\0" in path:
            # The framework would treat `//v1/…` as `/v1/…`, without authentication. No id has a
            # zero character, and PostgreSQL cannot be asked for one.
            raise NotFound
        if b"%00" in scope["query_string"]:
            raise InvalidFields(FieldFault("query", "must not contain zero characters"))
        if path.startswith(_FOR_OPERATORS):
            request.is_trusted = self._trusts(scope)
            # Below the OpenAPI document the framework would serve one of its own.
            is_below = path.startswith("/openapi.json/") and path != "/openapi.json/"
            if is_below or (not request.is_trusted and not path.startswith(_FOR_ALL)):
                raise NotFound

    def _trusts(self, scope: Scope) -> bool:
        match self._settings.metrics_and_docs:
            case "local":
                return self._peers.is_local(scope)
            case "direct":
                return is_direct(scope)
            case readers:
                return readers == "public"

    async def _answer_caller(
        self, request: Request, sender: ResponseSender, extra: Headers
    ) -> Streamed | None:
        """Answer a request of a caller; a limited number of each may run at a time."""
        is_foreign = is_from_another_origin(request)
        if is_foreign:
            self._cors.open(extra)
            if preflight := self._cors.find_preflight(request):
                await sender.respond(preflight)
                return None
        request.caller = caller = await self._admit(request, extra)
        if is_foreign:
            await self._cors.check(caller, request, extra)
        if caller is None:
            return await self._answer(request, sender)
        who = identity_of(caller)
        self._running.begin(who, _APP_REQUESTS if isinstance(caller, AppCaller) else _USER_REQUESTS)
        try:
            return await self._answer(request, sender)
        finally:
            self._running.end(who)

    async def _admit(self, request: Request, extra: Headers) -> Caller | None:
        try:
            return await self._admission.admit(request, extra)
        except Unauthenticated:
            if leads_elsewhere(request.scope["path"]):
                raise NotFound from None
            raise

    async def _answer(self, request: Request, sender: ResponseSender) -> Streamed | None:
        """Answer a request, unless its response is a stream; that is returned."""
        endpoint = self._find(request.scope)
        if endpoint is None and self._framework is None:
            await self.complete()
            endpoint = self._find(request.scope)
        request.is_admitted = True
        if endpoint is None:
            await self._serve_framework(request, sender)
        else:
            if request.scope["query_string"] and endpoint in self._parameters:
                check_names(request.scope["query_string"], self._parameters[endpoint])
            answer = await endpoint(request)
            if isinstance(answer, Streamed):
                return answer
            await sender.respond(answer)
        if sender.refusal:
            raise sender.refusal
        return None

    async def _send_stream(
        self, request: Request, sender: ResponseSender, parts: Streamed, started: float
    ) -> None:
        # Streams have limits of their own.
        sender.is_stream = True
        self._observe(request, _OK, time.perf_counter() - started)
        if request.credential is None:
            await stream(sender, request, parts)
        else:
            await self._stream_to_administrator(sender, request, parts, request.credential)

    async def _stream_to_administrator(
        self, sender: ResponseSender, request: Request, parts: Streamed, credential: AdminCredential
    ) -> None:
        """Send a stream until it ends, at the latest with the session."""
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(stream(sender, request, parts))
            watching = tasks.create_task(self._admission.wait_ended(credential))
            sending.add_done_callback(lambda _: watching.cancel())
            watching.add_done_callback(lambda _: sending.cancel())

    def _conclude(
        self,
        request: Request,
        requests: Requests | Connection,
        sender: ResponseSender,
        started: float,
    ) -> None:
        """Record for the connection whether it is a provider's, and whether its client reads."""
        if sender.is_stalled:
            requests.is_stalled = True
        if not request.scope["path"].startswith(self._providers):
            requests.is_provider = False
        elif sender.status == _OK:
            requests.is_provider = True
        # A stream was observed when it began.
        if not sender.is_stream:
            self._observe(request, sender.status, time.perf_counter() - started)
        end_request()

    def _find(self, scope: Scope) -> Endpoint | None:
        method, path = scope["method"], self._templates.find(scope["path"])
        if path is not scope["path"]:
            scope["path_template"] = path
        if method == "OPTIONS" and not self._find_by_prefix(path)[1]:
            return self._describe_methods
        # A HEAD is a GET whose body the listener does not send.
        method = "GET" if method == "HEAD" else method
        endpoint = self.fast_routes.get((method, path)) or self._find_by_prefix(path)[1]
        if endpoint is None:
            # As in the framework, a slash at the end makes no difference.
            path = path.removesuffix("/")
            endpoint = self.fast_routes.get((method, path))
            if endpoint is None and self._framework and path in self._own_paths:
                raise MethodNotAllowed(self._list_methods(path))
        return endpoint

    async def _describe_methods(self, request: Request) -> Response:
        """Answer OPTIONS; the framework knows but a part of the methods of a path."""
        await self.complete()
        methods = self._methods.find(request.scope["path"])
        if not methods:
            raise NotFound
        return Response(204, b"", ((b"allow", ", ".join(sorted(methods)).encode()),))

    def _list_methods(self, path: str) -> set[str]:
        methods = {method for method, at in self.fast_routes if at == path}
        return methods | {"HEAD"} if "GET" in methods else methods

    def _find_by_prefix(self, path: str) -> tuple[str, Endpoint | None]:
        for prefix, endpoint in self._prefixes:
            if path.startswith(prefix):
                return prefix, endpoint
        return "unmatched", None

    def _shown(self, path: str) -> str:
        """Return a path as it is logged: what follows a prefix is a token or a secret."""
        prefix, endpoint = self._find_by_prefix(path)
        return f"{prefix}…" if endpoint else path

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        given = headers.get(b"x-request-id")
        return given.decode() if given and _REQUEST_ID.fullmatch(given) else self._clock.new_id()

    async def _serve_framework(self, request: Request, sender: ResponseSender) -> None:
        # The header may be wrong: the body is capped when it is read.
        if (request.announced_length or 0) > self._body_limit:
            raise BodyTooLarge

        takes_text = request.scope["path"].startswith(_WITH_TEXT)
        is_given = False

        async def receive() -> Message:
            nonlocal is_given
            if is_given:
                await request.wait_disconnected()
                return {"type": "http.disconnect"}
            is_given = True
            body = await (request.body() if takes_text else request.json())
            return {"type": "http.request", "body": body, "more_body": False}

        request.scope.update(root_path="", state={})
        request.scope["clarion.request_id"] = request.id
        request.scope["clarion.caller"] = request.caller
        framework = await self.complete()
        await framework(request.scope, receive, sender)

    def is_api(self, path: str) -> bool:
        """Whether a path is for programs: applications, their users, and providers."""
        return path.startswith(("/v1/", *self._providers))

    def find_route(self, scope: Scope) -> str:
        """Return the route of a request that was answered: its path without ids and secrets."""
        path: str = scope["path"]
        if path in self._paths:
            return path
        template: str | None = scope.get("path_template")
        if template:
            return template
        # As in the framework, a slash at the end makes no difference.
        plain = path.removesuffix("/")
        return plain if plain in self._paths else self._find_by_prefix(path)[0]

    def _observe(self, request: Request, status: int, seconds: float) -> None:
        method, path = request.scope["method"], request.scope["path"]
        route = self.find_route(request.scope)
        label = method if method in METHODS else "other"
        self._metrics.observe_request(label, route, status, seconds)
        which = self._log_requests
        if which == "all" or (which == "errors" and status >= problems.SERVER_FAULT):
            get_logger().info(
                "request",
                method=method,
                path=self._shown(path),
                status=status,
                duration_ms=round(seconds * 1000, 2),
            )


async def _send_problem(
    sender: ResponseSender, error: ClarionError, request_id: str, cause: BaseException | None = None
) -> None:
    if sender.is_begun:  # all that is left is to abort the response
        raise error from cause
    body = problems.encode(error, request_id)
    await sender.respond(Response(error.status, body, tuple(problems.headers_of(error))))
