"""The endpoint of users' sockets: who is let in, what is sent, and how actions are answered."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from clarion.access.model import AppCaller, Caller, UserCaller
from clarion.errors import Unauthenticated
from clarion.http.quotas import RequestQuotas
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import LiveClients
from clarion.inbox.model import InboxAction
from clarion.inbox.session import Effect
from clarion.inbox.sockets import UserEndpoint, UserSocket
from clarion.nodes.memory import MemoryLimits
from clarion.settings import load
from clarion.sockets.protocol import Close, CloseCode, SendFrame
from tests.factories import FixedClock
from tests.unit.inbox.memory import ALLOWED_ORIGIN, MemoryInboxes, OneOrigin

SETTINGS = load({"user-requests-per-minute": "20"})
CALLERS: dict[str, Caller] = {
    "Bearer ana": UserCaller(app_id="app", user_id="ana", expires_at=None),
    "Bearer app": AppCaller(app_id="app", key_id="k", scopes=frozenset()),
    "tk_ana": UserCaller(app_id="app", user_id="ana", expires_at=None),
}


class Recorder(UserSocket):
    """A socket that keeps what it sends and how it is closed."""

    def __init__(self, endpoint: UserEndpoint) -> None:
        super().__init__(endpoint)
        self.sent: list[Any] = []
        self.closed: list[CloseCode] = []

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendFrame):
                self.sent.append(json.loads(effect.data))
            if isinstance(effect, Close):
                self.closed.append(effect.code)
        super().carry_out(effects)


async def settle() -> None:
    """Let the background work run: nothing in memory takes longer than this."""
    for _ in range(20):
        await asyncio.sleep(0)


class Server:
    """The endpoint with what it works with."""

    def __init__(self) -> None:
        self.inboxes = MemoryInboxes()
        self.live = LiveClients(self.inboxes, per_user=1, total=2)
        clock = FixedClock()
        self.endpoint = UserEndpoint(
            inboxes=self.inboxes,
            actions=InboxActions(self.inboxes, self.live, clock),
            live=self.live,
            authenticator=self,
            origins=OneOrigin(),
            quotas=RequestQuotas(MemoryLimits(clock), clock, SETTINGS),
            clock=clock,
        )

    async def redeem(self, ticket: str) -> UserCaller:
        caller = await self.identify(ticket)
        assert isinstance(caller, UserCaller)
        return caller

    async def identify(self, authorization: str | None) -> Caller:
        if authorization not in CALLERS:
            raise Unauthenticated
        return CALLERS[authorization]

    async def connect(
        self, header: str | None = "Bearer ana", query: bytes = b"", **more: str
    ) -> Recorder:
        headers = more if header is None else {"authorization": header, **more}
        socket = Recorder(self.endpoint)
        request: Any = SimpleNamespace(headers=headers, path=b"/v1/me/socket" + query)
        self.endpoint.connected(socket, request)
        await settle()
        return socket

    async def receive(self, socket: Recorder, **frame: Any) -> None:
        data = json.dumps(frame).encode()
        now = self.endpoint.clock.now()
        socket.carry_out(socket.session.receive(data, is_text=True, now=now))
        await settle()


@pytest.fixture
async def server() -> Server:
    return Server()


STATE = {"type": "state", "unread_count": 0, "sequence": 0}


async def test_a_token_in_the_header_is_enough(server: Server) -> None:
    socket = await server.connect()
    assert (socket.sent, socket.closed) == ([STATE], [])
    assert len(server.live) == 1


async def test_a_ticket_in_the_query_is_enough(server: Server) -> None:
    socket = await server.connect(None, b"?ticket=tk_ana&after=0")
    assert (socket.sent, socket.closed) == ([STATE], [])


async def test_a_ticket_is_no_token_and_a_token_no_ticket(server: Server) -> None:
    for header, query in (("Bearer tk_ana", b""), (None, b"?ticket=ana")):
        socket = await server.connect(header, query)
        assert (socket.sent, socket.closed) == ([], [CloseCode.NOT_AUTHORISED])


@pytest.mark.parametrize("header", ["Bearer ana", None])
async def test_a_page_must_be_of_an_allowed_origin(server: Server, header: str | None) -> None:
    query = b"" if header else b"?ticket=tk_ana"
    for origin in ("https://evil.example", "null", ""):
        socket = await server.connect(header, query, origin=origin)
        assert (socket.closed, len(server.live)) == ([CloseCode.NOT_AUTHORISED], 0)
    socket = await server.connect(header, query, origin=ALLOWED_ORIGIN)
    assert (socket.sent, socket.closed) == ([STATE], [])


async def test_the_origin_counts_for_a_hello_too(server: Server) -> None:
    socket = await server.connect(None, origin="https://evil.example")
    await server.receive(socket, type="hello", token="ana")
    assert (socket.sent, socket.closed) == ([], [CloseCode.NOT_AUTHORISED])


async def test_without_a_header_the_hello_has_the_token(server: Server) -> None:
    socket = await server.connect(None)
    assert socket.sent == []
    await server.receive(socket, type="hello", token="ana", after=0)
    assert socket.sent == [STATE]


async def test_a_socket_resumes_after_the_number_in_the_path(server: Server) -> None:
    server.inboxes.add()
    server.inboxes.add()
    socket = await server.connect(query=b"?after=1")
    assert [frame["sequence"] for frame in socket.sent] == [1, 2]


@pytest.mark.parametrize(
    ("header", "query", "code"),
    [
        ("Bearer x", b"", CloseCode.NOT_AUTHORISED),
        ("Basic ana", b"", CloseCode.NOT_AUTHORISED),
        ("Bearer app", b"", CloseCode.NOT_AUTHORISED),
        ("Bearer ana", b"?after=x", CloseCode.BAD_FRAME),
    ],
)
async def test_others_are_refused(
    server: Server, header: str, query: bytes, code: CloseCode
) -> None:
    socket = await server.connect(header, query)
    assert (socket.sent, socket.closed, len(server.live)) == ([], [code], 0)


async def test_beyond_the_users_limit_a_socket_is_4429(server: Server) -> None:
    await server.connect()
    assert (await server.connect()).closed == [CloseCode.TOO_SLOW_OR_FAST]
    assert len(server.live) == 1


async def test_without_the_store_the_client_comes_back(server: Server) -> None:
    socket = await server.connect()
    server.inboxes.is_broken = True
    server.live.notify("app", "ana")
    await settle()
    assert socket.closed == [CloseCode.RESTARTING]
    assert (await server.connect()).closed == [CloseCode.RESTARTING]
    assert len(server.live) == 0


async def test_a_stop_of_the_live_clients_closes_with_1012(server: Server) -> None:
    socket = await server.connect()
    await server.live.stop(5)
    assert socket.closed == [CloseCode.RESTARTING]
    assert len(server.live) == 0


async def test_the_socket_of_a_user_who_is_inactive_is_4401(server: Server) -> None:
    socket = await server.connect()
    server.live.disconnect_user("app", "ana")
    assert socket.closed == [CloseCode.NOT_AUTHORISED]
    assert len(server.live) == 0


async def test_an_action_is_sent_back_as_an_update(server: Server) -> None:
    made = server.inboxes.add()
    socket = await server.connect()
    await server.receive(socket, type="read", id=made.id)
    assert [frame["type"] for frame in socket.sent] == ["state", "read"]


@pytest.mark.parametrize("action", InboxAction)
async def test_an_action_that_fails_is_answered(server: Server, action: InboxAction) -> None:
    socket = await server.connect()
    await server.receive(socket, type=action.value, id="nothing")
    assert socket.sent[1:] == [{"type": "error", "id": "nothing", "code": "not_found"}]


async def test_actions_count_like_requests_of_the_user(server: Server) -> None:
    """By a socket a user could change as much as the database could take."""
    socket = await server.connect()
    for _ in range(21):
        await server.receive(socket, type="read", id="nothing")
    codes = [frame["code"] for frame in socket.sent[1:]]
    assert codes == ["not_found"] * 20 + ["too_many_requests"]
    assert socket.closed == []


async def test_an_error_of_the_store_is_the_answer_to_an_action(server: Server) -> None:
    socket = await server.connect()
    server.inboxes.is_broken = True
    await server.receive(socket, type="read", id="n1")
    assert socket.sent[1:] == [{"type": "error", "id": "n1", "code": "store_unavailable"}]
