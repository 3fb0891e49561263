"""The page `/demo`: two users of the demo app in one window, each with a bell.

It is served with `--demo`, only to requests from this machine, and only for the demo app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, Protocol

import msgspec

from clarion.access.model import App
from clarion.access.port import Apps
from clarion.clock import Clock
from clarion.demo import DEMO_BUNDLE_ID
from clarion.errors import NotFound
from clarion.http.asgi import Endpoint, FastRoute, Request, Response, Streamed, respond_json
from clarion.http.bodies import Body
from clarion.http.decoding import decode
from clarion.http.static_files import constant, read, serve
from clarion.http.strangers import Peers
from clarion.people.model import User
from clarion.people.port import Users

PATH = "/demo"
_PACKAGE = "clarion.demo"
_TOKEN_S = 3600
_NO_STORE = (b"cache-control", b"no-store")
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HTML = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
)
_NAMES = {"demo-ana": "Ana", "demo-ben": "Ben"}
# What one of them can do, by the type of the event.
_SNIPPETS = {
    "POST_LIKE": "My trip to Lisbon",
    "POST_COMMENT": "What a view!",
    "FOLLOWER_NEW": None,
    "SECURITY_NEW_DEVICE": "Chrome on Linux, near Lisbon.",
    "NEWS_SYSTEM_UPDATE": "You can now choose your quiet hours to the minute.",
}
Person = Literal["demo-ana", "demo-ben"]
Kind = Literal[
    "POST_LIKE", "POST_COMMENT", "FOLLOWER_NEW", "SECURITY_NEW_DEVICE", "NEWS_SYSTEM_UPDATE"
]


# Takes the app and the event as JSON, and returns the id of the event when it is stored.
Send = Callable[[str, bytes], Awaitable[str]]


class Sign(Protocol):
    """Signs a user token, or returns None."""

    def __call__(
        self, app_id: str, user_id: str, *, lasts_s: int
    ) -> Awaitable[tuple[str, int] | None]: ...


class _Session(Body):
    user_id: Person


class _Act(Body):
    to: Person
    type: Kind


_SESSION = msgspec.json.Decoder(_Session)
_ACT = msgspec.json.Decoder(_Act)


class DemoPage:
    """Serves the page, signs tokens for its two users, and sends their events."""

    def __init__(
        self, *, apps: Apps, users: Users, sign: Sign, send: Send, clock: Clock, peers: Peers
    ) -> None:
        self._apps = apps
        self._users = users
        self._sign = sign
        self._send = send
        self._clock = clock
        self._peers = peers

    @property
    def routes(self) -> tuple[FastRoute, ...]:
        page = constant(partial(read, "demo.html", _PACKAGE), _HTML)
        files = [serve(f"{PATH}/{name}", name, _PACKAGE) for name in ("demo.js", "demo.css")]
        routes = (
            FastRoute("GET", PATH, page),
            *files,
            FastRoute("POST", f"{PATH}/token", self._sign_in),
            FastRoute("POST", f"{PATH}/events", self._act),
        )
        return tuple(
            each._replace(endpoint=self._for_this_machine(each.endpoint)) for each in routes
        )

    def _for_this_machine(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: Request) -> Response | Streamed:
            if not self._peers.is_local(request.scope):
                raise NotFound
            return await endpoint(request)

        return answer

    async def _sign_in(self, request: Request) -> Response:
        """Create the user if need be, and return a token."""
        user_id = decode(_SESSION, await request.json()).user_id
        app = await self._find_app()
        if await self._users.get(app.id, user_id) is None:
            now = self._clock.now()
            user = User(
                app_id=app.id, id=user_id, name=_NAMES[user_id], created_at=now, updated_at=now
            )
            await self._users.put(user)
        signed = await self._sign(app.id, user_id, lasts_s=_TOKEN_S)
        if signed is None:
            raise NotFound("The demo app has no secret to sign user tokens with.")
        return respond_json(200, msgspec.json.encode({"token": signed[0]}), _NO_STORE)

    async def _act(self, request: Request) -> Response:
        act = decode(_ACT, await request.json())
        app = await self._find_app()
        event_id = await self._send(app.id, msgspec.json.encode(_describe(act)))
        return respond_json(202, msgspec.json.encode({"event_id": event_id}), _NO_STORE)

    async def _find_app(self) -> App:
        """Return the demo app; one of the first, because `clarion init` created it."""
        for app in await self._apps.list():
            if app.bundle_id.partition("-")[0] == DEMO_BUNDLE_ID:
                return app
        raise NotFound("There is no demo app. `clarion init` creates it.")


def absent_page(peers: Peers) -> FastRoute:
    """Return the route that says on a server with PostgreSQL why the page does not exist there."""

    async def answer(request: Request) -> Response:
        if not peers.is_local(request.scope):
            raise NotFound
        raise NotFound(
            "The page /demo is for one machine with SQLite, and this server uses PostgreSQL. "
            "`clarion demo` fills an app with people and events here, too."
        )

    return FastRoute("GET", PATH, answer)


def _describe(act: _Act) -> dict[str, object]:
    """Return the event as an application would send it."""
    sender = next(each for each in _NAMES if each != act.to)
    snippet = _SNIPPETS[act.type]
    return {
        "type": act.type,
        "recipient": {"user_id": act.to},
        "actor": {"id": sender, "name": _NAMES[sender]},
        "target": {"id": "lisbon", "type": "post"},
        "data": {"snippet": snippet} if snippet else {},
        # Likes of the same post become one notification with a count.
        "dedupe_key": "like:lisbon" if act.type == "POST_LIKE" else None,
    }
