"""The smallest endpoint there is: it greets, and echoes frames by a request to itself."""

from dataclasses import dataclass
from typing import Any

import msgspec
from picows import WSUpgradeRequest

from clarion.clock import Clock
from clarion.sockets.protocol import (
    ClientFrame,
    CloseCode,
    Effects,
    Ping,
    Pong,
    SendFrame,
    Session,
)
from clarion.sockets.shell import Socket
from tests.factories import FixedClock


class Say(ClientFrame, tag="say"):
    text: str


Frame = Say | Ping | Pong


@dataclass(frozen=True)
class Echo:
    text: str


class EchoSession(Session[Frame, Echo]):
    __slots__ = ()

    _decoder = msgspec.json.Decoder[Frame](Frame)

    def _take(self, frame: Frame, now: int) -> Effects[Echo]:
        assert now == self.received_at
        self._has_hello = True
        if isinstance(frame, Say):
            return [Echo(frame.text)]
        return self._pong() if isinstance(frame, Ping) else []

    def resume(self, now: int) -> Effects[Echo]:
        self.is_paused = False
        return [Echo(f"resumed at {now}")]


class EchoSocket(Socket[Echo]):
    __slots__ = ()

    def __init__(self, endpoint: "EchoEndpoint") -> None:
        super().__init__(endpoint, EchoSession(endpoint.clock.now()))


class EchoEndpoint:
    """The `SocketEndpoint` protocol; records what it is asked for."""

    frames_limit = 3

    def __init__(
        self,
        path: bytes = b"/echo",
    ) -> None:
        self.path = path
        self.time = FixedClock()
        self.clock: Clock = self.time
        self.sockets: dict[Socket[Any], None] = {}
        self.calls: list[str] = []

    def accept(self) -> EchoSocket:
        return EchoSocket(self)

    def connected(self, socket: EchoSocket, request: WSUpgradeRequest) -> None:
        assert not socket.session.is_closed
        self.calls.append(f"connected {request.path.decode()}")

    def perform(self, socket: EchoSocket, effect: Echo) -> None:
        if effect.text == "bye":
            socket.end(CloseCode.REVOKED, "bye")
        socket.carry_out([SendFrame(effect.text.encode())])

    def disconnected(self, socket: EchoSocket) -> None:
        assert socket.session.is_closed
        self.calls.append("disconnected")

    async def tick(self, now: int) -> None:
        self.calls.append(f"tick {now}")

    async def finish(self, grace_s: float) -> None:
        self.calls.append(f"finish {grace_s}")
