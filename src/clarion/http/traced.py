"""A span for each request of the API: around the front, and only if traces are on."""

from __future__ import annotations

from clarion.http.asgi import Message, Receive, Scope, Send, index_headers
from clarion.http.front import METHODS, Front
from clarion.telemetry.traces import Attribute, Span, StepKind, Tracer, entered, read_context

_FIRST_FAULT = 500
_STREAM = b"text/event-stream"


class TracedFront:
    """The front, with a span around each request under `/v1/` and of each provider."""

    def __init__(self, front: Front, tracer: Tracer) -> None:
        self._front = front
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._front.is_api(scope["path"]):
            await self._front(scope, receive, send)
            return
        parent = read_context(index_headers(scope["headers"]))
        # Any other is a name that a client has chosen.
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        about = {"http.request.method": method, "url.scheme": scope["scheme"]}
        span = self._tracer.start(method, parent, StepKind.SERVER, about)
        sender = _Observed(self._front, scope, send, method, span)
        with entered(span):
            await self._front(scope, receive, sender)


class _Observed:
    """Notes how a request is answered."""

    def __init__(self, front: Front, scope: Scope, send: Send, method: str, span: Span) -> None:
        self._front = front
        self._scope = scope
        self._send = send
        self._method = method
        self._span = span

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._note(message)
        await self._send(message)

    def _note(self, start: Message) -> None:
        span, status = self._span, start["status"]
        route = self._front.find_route(self._scope)
        span.rename(f"{self._method} {route}")
        about: dict[str, Attribute] = {"http.route": route, "http.response.status_code": status}
        headers = dict(start["headers"])
        if request_id := headers.get(b"x-request-id"):
            about["clarion.request.id"] = request_id.decode()
        span.set(about)
        if status >= _FIRST_FAULT:
            span.fail(str(status))
        if headers.get(b"content-type", b"").startswith(_STREAM):
            span.end()  # what follows may take hours
