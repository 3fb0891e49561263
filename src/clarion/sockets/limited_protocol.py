"""The protocol of picows with limits: time to the upgrade, and bytes of an unfinished frame.

The read buffer of picows begins with 2 KiB, doubles whenever it is nine tenths full, and never
shrinks. Its own limit for frames is the same for all connections, and it reads on after an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from picows import WSAutoPingStrategy, WSListener, WSUpgradeRequest
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from clarion.sockets.newcomers import Newcomers, group_address
from clarion.sockets.protocol import FRAME_LIMIT_BYTES, HELLO_LIMIT_BYTES, CloseCode
from clarion.telemetry.limited_log import LimitedLog

# Never reached: a client that exceeds the limits of `Socket` is not read from any more.
_PICOWS_LIMIT_BYTES = 64 * FRAME_LIMIT_BYTES
# How long the rest that a client sends is read and discarded, so that it can read the reason.
_LINGER_S = 1.0
_discarded = bytearray(65_536)
_no_headers: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Listening:
    """What all connections of a listener share."""

    route: Callable[[WSUpgradeRequest], WSListener | None]
    newcomers: Newcomers
    log: LimitedLog
    picows_log: PicowsLog
    # How long a connection may take from its beginning to the upgrade.
    upgrade_limit_s: float
    # Whether the node has as many connections as allowed: the store needs files of its own.
    is_full: Callable[[], bool]
    # The descriptors of all connections.
    descriptors: set[int] = field(default_factory=set)

    # Of the acceptor.

    def wait_s(self) -> float:
        return 0.0

    def admit(self, accepted: socket.socket, host: str) -> LimitedProtocol | None:
        if self.is_full() and not self.newcomers.drop_oldest():
            self.log.warning("cannot_accept", message="too many connections")
            return None
        return LimitedProtocol(accepted, group_address(host), self)

    def run_out(self, error: OSError) -> None:
        """Close the oldest unauthenticated connection."""
        self.log.warning("cannot_accept", message=error.strerror)
        self.newcomers.drop_oldest()


class LimitedProtocol(WSProtocol):  # type: ignore[misc]
    """One connection, from its acceptance. The `Newcomer` port."""

    __slots__ = ("_accepted", "_descriptor", "_listening", "_timer", "address")

    def __init__(self, accepted: socket.socket, address: str, listening: Listening) -> None:
        super().__init__(
            None,  # host and port, of clients
            None,  # path, of clients
            False,  # noqa: FBT003 - is_client_side
            listening.route,
            listening.picows_log,
            True,  # noqa: FBT003 - disconnect_on_exception
            None,  # websocket_handshake_timeout: ours begins before the handshake of TLS
            False,  # noqa: FBT003 - enable_auto_ping
            0,
            0,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,  # noqa: FBT003 - enable_auto_pong: a ping is a sign of life
            _PICOWS_LIMIT_BYTES,
            None,  # extra_headers, of clients
            0,  # read_buffer_init_size: the smallest there is
        )
        self.address = address
        self._listening = listening
        self._accepted: socket.socket | None = accepted
        self._descriptor = accepted.fileno()
        listening.descriptors.add(self._descriptor)
        loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = loop.call_later(
            listening.upgrade_limit_s, self.drop
        )
        if listening.newcomers.add(self):
            listening.log.warning(
                "unauthenticated_connection_closed", reason="too many", address=address
            )

    def drop(self) -> None:
        """Close the connection at once, in any state."""
        accepted = self._accepted
        self.leave()
        if self.transport is not None:
            self.transport.disconnect(graceful=False)
        elif accepted is not None:
            # The handshake of TLS is in progress: it fails.
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Stop counting the connection: it has ended."""
        self._stop_waiting()
        self._accepted = None
        self._listening.newcomers.discard(self)
        self._listening.descriptors.discard(self._descriptor)

    # Called by the event loop.

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)

    def buffer_updated(self, nbytes: int) -> None:
        connected: Any = self.listener
        if connected is None:
            self._read_upgrade(nbytes)
            return
        connected.unread += nbytes
        super().buffer_updated(nbytes)
        if connected.unread > HELLO_LIMIT_BYTES and connected.unread > connected.read_limit:
            self._refuse(connected)

    def _read_upgrade(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        connected: Any = self.listener
        if connected is not None:
            self._stop_waiting()
            connected.on_authenticated = self._admit
            # picows keeps both as long as the connection lasts. Their headers were read, and would
            # be a sixth of the memory of an idle one.
            self.transport.request.headers = _no_headers
            self.transport.response.headers = _no_headers

    def _refuse(self, connected: Any) -> None:
        connected.end(
            CloseCode.FRAME_TOO_LARGE, f"a frame has at most {connected.session.frame_limit} bytes"
        )
        self.transport.underlying_transport.set_protocol(_Discard(self))
        asyncio.get_running_loop().call_later(_LINGER_S, self.transport.disconnect)

    def _admit(self) -> None:
        self._accepted = None
        self._listening.newcomers.admit(self)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Discard(asyncio.BufferedProtocol):
    """Reads and discards the rest for a protocol that has refused it."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        self._protocol = protocol

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        return _discarded

    def buffer_updated(self, nbytes: int) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PicowsLog:
    """The warnings and errors of picows in our format, limited in number."""

    log: LimitedLog

    def isEnabledFor(self, level: int) -> bool:  # noqa: ARG002, N802 - the name in `logging`
        return False

    def debug(self, message: str, *values: object) -> None: ...

    def info(self, message: str, *values: object) -> None: ...

    def warning(self, message: str, *values: object) -> None:
        self.log.warning("websocket_fault", message=message % values)

    def error(self, message: str, *values: object) -> None:
        self.log.warning("websocket_fault", message=message % values)

    def exception(self, message: str, *values: object) -> None:
        self.log.warning("websocket_failed", message=message % values, exc_info=True)  # noqa: LOG014 - picows handles one
