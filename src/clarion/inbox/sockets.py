"""The endpoint of users' sockets: updates of their inbox, and actions in the other direction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from picows import WSUpgradeRequest

from clarion.access.model import Caller, UserCaller, explain_origin
from clarion.access.port import Authenticator, Origins
from clarion.clock import Clock, to_monotonic
from clarion.errors import ClarionError, RequestError, ServiceError, TooManyRequests
from clarion.http.quotas import RequestQuotas
from clarion.inbox.actions import InboxActions
from clarion.inbox.feed import Feed, read_sequence
from clarion.inbox.live import EndReason, LiveClient, LiveClients
from clarion.inbox.port import Inboxes
from clarion.inbox.session import Apply, Authorise, Pull, UserRequest, UserSession
from clarion.sockets.protocol import APP_IS_DELETED, USER_IS_INACTIVE, CloseCode
from clarion.sockets.shell import Socket
from clarion.sockets.tasks import BackgroundTasks

_CLOSES = {
    EndReason.RESTARTING: (CloseCode.RESTARTING, "the server restarts"),
    EndReason.USER_INACTIVE: (CloseCode.NOT_AUTHORISED, USER_IS_INACTIVE),
    EndReason.APP_DELETED: (CloseCode.NOT_AUTHORISED, APP_IS_DELETED),
    EndReason.KEY_ENDED: (CloseCode.RESTARTING, "a key of the app has ended: reconnect"),
}


class UserSocket(Socket[UserRequest]):
    """The socket of one client of a user.

    `origin` is that of the page which opened it, None if it is no browser. The other attributes are
    set when it has authenticated.
    """

    __slots__ = ("client", "feed", "origin")

    session: UserSession

    def __init__(self, endpoint: UserEndpoint) -> None:
        super().__init__(endpoint, UserSession(endpoint.clock.monotonic()))
        self.client: LiveClient | None = None
        self.feed: Feed | None = None
        self.origin: str | None = None

    def wake(self) -> None:
        self.carry_out(self.session.wake())

    def stop(self, reason: EndReason) -> None:
        self.end(*_CLOSES[reason])


@dataclass(eq=False, kw_only=True)
class UserEndpoint:
    """Serves users at `/v1/me/socket`."""

    path = b"/v1/me/socket"
    frames_limit = 1_000

    inboxes: Inboxes
    actions: InboxActions
    live: LiveClients
    authenticator: Authenticator
    origins: Origins
    quotas: RequestQuotas
    clock: Clock
    sockets: dict[Socket[Any], None] = field(default_factory=dict)
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)

    def accept(self) -> UserSocket:
        return UserSocket(self)

    def connected(self, socket: UserSocket, request: WSUpgradeRequest) -> None:
        """Authenticate by the header or a ticket, if given; else the hello has the token."""
        socket.origin = request.headers.get("origin")
        authorization = request.headers.get("authorization")
        query = parse_qs(request.path.partition(b"?")[2].decode("latin-1"))
        ticket = query.get("ticket", [""])[-1]
        if not authorization and not ticket:
            return
        try:
            given = query.get("after")
            after = read_sequence(given[-1], "after") if given else None
        except RequestError as error:
            socket.end(CloseCode.BAD_FRAME, error.detail)
            return
        token = _read_bearer(authorization) if authorization else ticket
        is_ticket = not authorization
        socket.carry_out(socket.session.present(token, after, is_ticket=is_ticket))

    def perform(self, socket: UserSocket, effect: UserRequest) -> None:
        match effect:
            case Authorise():
                self.tasks.start(self._authorise(socket, effect))
            case Pull():
                self.tasks.start(self._pull(socket))
            case Apply():
                self.tasks.start(self._apply(socket, effect))

    def disconnected(self, socket: UserSocket) -> None:
        if socket.client is not None:
            self.live.close(socket.client)

    async def tick(self, now: int) -> None:
        """Do nothing: the sockets have ticks of their own."""

    async def finish(self, grace_s: float) -> None:
        await self.tasks.finish(grace_s)

    async def _authorise(self, socket: UserSocket, asked: Authorise) -> None:
        try:
            caller = await self._identify(asked)
            if not isinstance(caller, UserCaller):
                socket.end(CloseCode.NOT_AUTHORISED, "a user token is required")
            elif not await self._allows(caller.app_id, socket.origin):
                socket.end(CloseCode.NOT_AUTHORISED, explain_origin(socket.origin or ""))
            elif not socket.session.is_closed:
                await self._welcome(socket, caller, asked.after)
        except TooManyRequests as error:
            socket.end(CloseCode.TOO_SLOW_OR_FAST, error.detail)
        except RequestError as error:
            socket.end(CloseCode.NOT_AUTHORISED, error.detail)
        except ServiceError as error:
            socket.end(CloseCode.RESTARTING, error.detail)

    async def _identify(self, asked: Authorise) -> Caller:
        if asked.is_ticket:
            return await self.authenticator.redeem(asked.token)
        return await self.authenticator.identify(f"Bearer {asked.token}")

    async def _allows(self, app_id: str, origin: str | None) -> bool:
        return origin is None or await self.origins.is_allowed(app_id, origin)

    async def _welcome(self, socket: UserSocket, caller: UserCaller, after: int | None) -> None:
        socket.client = self.live.open(
            caller.app_id, caller.user_id, wake=socket.wake, end=socket.stop
        )
        # Now, because one too many of a user's counts as unauthenticated until it is closed.
        socket.mark_authenticated()
        feed = Feed(self.inboxes, caller.app_id, caller.user_id)
        first = await feed.begin(after)
        socket.feed = feed
        expires_at = to_monotonic(self.clock, caller.expires_at)
        socket.carry_out(socket.session.welcome(first, expires_at))

    async def _pull(self, socket: UserSocket) -> None:
        if socket.feed is None:
            return
        try:
            updates, is_all = await socket.feed.more()
            socket.carry_out(socket.session.take(updates, is_all=is_all))
        except ServiceError:
            socket.end(CloseCode.RESTARTING, "the database does not answer")

    async def _apply(self, socket: UserSocket, asked: Apply) -> None:
        client, error_code = socket.client, None
        if client is None:
            return
        try:
            # An action counts like the request that does the same.
            await self.quotas.count(UserCaller(app_id=client.app_id, user_id=client.user_id), [])
            changed = await self.actions.apply(
                asked.action, client.app_id, client.user_id, asked.id
            )
            error_code = "not_found" if changed is None else None
        except ClarionError as error:
            error_code = error.code
        socket.carry_out(socket.session.settle(asked.id, error_code))


def _read_bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token if scheme.lower() == "bearer" else ""
