"""Calls operations of the API within the process, without a connection.

A page is a client of the API: the same handlers check the same permissions and fields, and write
the same audit records. Only the caller was identified before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from clarion.errors import ClarionError, NotFound
from clarion.http import problems
from clarion.http.asgi import JSON, FastRoute, Framework, Message, Request, Response, Scope
from clarion.http.paths import PathTemplates

# What the headers of a page say about its own body is not true of an operation's.
_OF_BODY = frozenset({b"content-type", b"content-length", b"transfer-encoding"})
_KEY = b"idempotency-key"
_FAILED = 400
Query = Mapping[str, str | int | None]


class Refused(Exception):
    """An operation was refused, with the problem that a client of the API would have got."""

    def __init__(self, problem: problems.Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)

    @property
    def fields(self) -> dict[str, str]:
        """What is wrong, by field."""
        return {each.field: each.reason for each in self.problem.errors}

    def explain(self) -> str:
        """Return what is wrong in one line."""
        faults = "; ".join(f"{each.field} {each.reason}" for each in self.problem.errors)
        return faults or self.problem.detail


class OperationAnswer(NamedTuple):
    """The answer of an operation that was not refused."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def json(self) -> dict[str, Any]:
        """The object in the body; empty if there is no body."""
        return msgspec.json.decode(self.body, type=dict[str, Any]) if self.body else {}

    @property
    def cookies(self) -> tuple[tuple[bytes, bytes], ...]:
        return tuple(each for each in self.headers if each[0] == b"set-cookie")


class Operations:
    """The operations of the API, by method and path."""

    def __init__(self, framework: Framework, fast_routes: Sequence[FastRoute]) -> None:
        self._framework = framework
        self._fast = {(route.method, route.path): route.endpoint for route in fast_routes}
        self._templates = PathTemplates(route.path for route in fast_routes)

    async def call(
        self,
        page: Request,
        method: str,
        *parts: str,
        query: Query | None = None,
        body: Any = None,
        form_key: str = "",
    ) -> OperationAnswer:
        """Call an operation as the caller of a page; `Refused` if it is refused.

        The parts of the path follow `/v1/`. What a form with the same key creates by the same
        request is created once.
        """
        path = path_of(*parts)
        encoded = b"" if body is None else msgspec.json.encode(body)
        scope = _scope_of(page, method, path, query or {}, encoded)
        if form_key and method == "POST":
            scope["headers"].append((_KEY, _once(form_key, path, encoded)))
        endpoint = self._fast.get((method, self._templates.find(path)))
        collected = _Collected(encoded)
        if endpoint is None:
            await self._framework(scope, collected.receive, collected.send)
        else:
            inner = Request(scope, collected.receive, page.id, page.caller, page.limit)
            try:
                answer = await endpoint(inner)
            except ClarionError as error:
                raise Refused(problems.describe(error, page.id)) from error
            assert isinstance(answer, Response)  # noqa: S101 - pages do not call streams
            return OperationAnswer(answer.body, answer.headers)
        if collected.status >= _FAILED:
            raise Refused(msgspec.json.decode(collected.body, type=problems.Problem))
        return OperationAnswer(bytes(collected.body), collected.headers)

    async def look(self, page: Request, path: str) -> bytes:
        """Return the answer of a route for operators, such as `/health`, with any status.

        Only for pages of administrators of the whole server: they are trusted to see it.
        """
        collected = _Collected(b"")
        scope = _scope_of(page, "GET", path, {}, b"")
        inner = Request(scope, collected.receive, page.id, page.caller, page.limit)
        inner.is_trusted = True
        answer = await self._fast["GET", path](inner)
        assert isinstance(answer, Response)  # noqa: S101 - pages do not call streams
        return answer.body


def path_of(*parts: str) -> str:
    """Return the path of an operation; `NotFound` if a part of it would be taken for several."""
    if not all(parts) or any("/" in part or "\0" in part for part in parts):
        raise NotFound
    return "/".join(("/v1", *parts))


def _scope_of(page: Request, method: str, path: str, query: Query, body: bytes) -> Scope:
    given = {name: value for name, value in query.items() if value is not None}
    kept = [each for each in page.scope["headers"] if each[0] not in _OF_BODY]
    length = (b"content-length", b"%d" % len(body))
    return {
        **page.scope,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(given).encode(),
        "headers": [*kept, JSON, length] if body else kept,
        "root_path": "",
        "state": {},
        "clarion.request_id": page.id,
        "clarion.caller": page.caller,
    }


def _once(form_key: str, path: str, body: bytes) -> bytes:
    """Return the idempotency key of a request.

    With its body, because a browser may show the same form again, in which something is changed.
    """
    sent = (form_key.encode(), path.encode(), body)
    return hashlib.sha256(b"\0".join(sent)).hexdigest().encode()


class _Collected:
    """A body to send, and the response to it."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self.status = 0
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        self.body = bytearray()

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self._sent, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = tuple(message["headers"])
        else:
            self.body += message.get("body", b"")
