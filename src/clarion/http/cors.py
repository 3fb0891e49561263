"""Requests of web pages from other origins: a page may use user tokens if its app allows it.

No request has cookies that count here, so a response that any page may read gives nothing away:
the sender has the token. A refusal can be read too, so that developers see the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from clarion.access.model import Caller, UserCaller, explain_origin
from clarion.access.port import Origins
from clarion.errors import OriginNotAllowed
from clarion.http.asgi import Headers, Request, Response

_EXPOSED = (
    b"etag, idempotent-replayed, ratelimit-limit, ratelimit-remaining, ratelimit-reset, "
    b"retry-after, x-request-id"
)
_ALLOWED = (
    b"authorization, content-type, idempotency-key, if-none-match, last-event-id, x-request-id"
)
_READABLE = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _EXPOSED),
)
# An answer to a browser that asks before it sends: it does not send the token yet, so the app is
# not known. The request itself is checked.
_PREFLIGHT = Response(
    204,
    b"",
    (
        (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
        (b"access-control-allow-headers", _ALLOWED),
        (b"access-control-max-age", b"7200"),
    ),
)


@dataclass(frozen=True, slots=True)
class Cors:
    """Decides which pages may read which responses."""

    origins: Origins

    def find_preflight(self, request: Request) -> Response | None:
        """Return the answer if a browser asks whether it may send a request; else None."""
        is_asked = b"access-control-request-method" in request.headers
        return _PREFLIGHT if is_asked and request.scope["method"] == "OPTIONS" else None

    def open(self, extra: Headers) -> None:
        """Let any page read the response, until the caller is known."""
        extra += _READABLE

    async def check(self, caller: Caller | None, request: Request, extra: Headers) -> None:
        """Close the response to pages if the caller is not a user.

        `OriginNotAllowed` if the user's app does not allow the origin of the page.
        """
        origin = request.headers[b"origin"].decode("latin-1")
        if not isinstance(caller, UserCaller):
            # The keys of servers and administrators do not belong into pages.
            extra[:] = [each for each in extra if each not in _READABLE]
        elif not await self.origins.is_allowed(caller.app_id, origin):
            raise OriginNotAllowed(f"{explain_origin(origin)} Add it with PATCH /v1/app.")


def is_from_another_origin(request: Request) -> bool:
    """Whether a page that this server has not served sent the request."""
    origin = request.headers.get(b"origin")
    if origin is None:
        return False
    return origin.partition(b"://")[2] != request.headers.get(b"host")
