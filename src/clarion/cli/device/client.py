"""A device that stays connected: it reconnects after a loss, and shows each message once."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from picows import WSError, ws_connect

from clarion.cli.device.connection import DeviceConnection, Notification, Ready
from clarion.cli.server_connection import explain_failure
from clarion.errors import CommandFailed
from clarion.sockets.protocol import CloseCode

if TYPE_CHECKING:
    import ssl

    from clarion.cli.device.credentials import Device

READY_TIMEOUT_S = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
# A connection that was silent for this long is checked with a ping.
_PING_AFTER_S, _PONG_WITHIN_S = 40, 20
_RECENT_IDS = 1_000

# Close codes after which the same device must not reconnect.
_FINAL = {
    CloseCode.BAD_FRAME: "The server did not understand this client. "
    "Check that both have the same version.",
    CloseCode.FRAME_TOO_LARGE: "This client sent a frame that is too large.",
    CloseCode.NOT_AUTHORISED: "The server does not know this device, or the secret is wrong. "
    "`clarion device listen --new` registers a new one.",
    CloseCode.REPLACED: "Another connection of the same device replaced this one. "
    "`clarion device listen --new` registers another device.",
    CloseCode.REVOKED: "The device was revoked. `clarion device listen --new` registers a new one.",
}


class Observer(Protocol):
    """Learns what happens to devices."""

    async def on_ready(self, device: Device, ready: Ready) -> None:
        """Take note of a connection; its messages are delivered after this returns."""

    def on_message(self, device: Device, message: Notification) -> bool:
        """Process a new message and return True; False leaves it unacknowledged."""

    def on_lost(self, device: Device, why: str, retry_s: float) -> None:
        """Take note of a lost connection, and when it is tried again."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """How to reach the gateway, and how many devices may connect at the same time."""

    url: str
    tls_context: ssl.SSLContext | None
    connecting: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class _End:
    """Why a connection ended."""

    why: str
    is_final: bool = False
    was_ready: bool = False


class DeviceClient:
    """Keeps one device connected."""

    def __init__(self, device: Device, gateway: Gateway, listener: Observer) -> None:
        self._device = device
        self._gateway = gateway
        self._listener = listener
        self._recent: OrderedDict[tuple[str | None, str], None] = OrderedDict()

    async def run(self) -> NoReturn:
        """Stay connected; `CommandFailed` if the first connection fails, or an end is final."""
        was_ready, attempt = False, 0
        while True:
            end = await self._connect_once()
            was_ready = was_ready or end.was_ready
            if end.is_final or not was_ready:
                raise CommandFailed(end.why)
            attempt = 0 if end.was_ready else attempt + 1
            wait_s = pause_s(attempt, random.random())  # noqa: S311 - jitter, not a secret
            why = end.why if end.was_ready else "The server does not respond yet."
            self._listener.on_lost(self._device, why, wait_s)
            await asyncio.sleep(wait_s)

    async def _connect_once(self) -> _End:
        connection = DeviceConnection(self._device)
        try:
            ready = await self._open(connection)
        except (OSError, WSError, ValueError) as error:
            await connection.close()
            return _End(explain_failure(error, self._gateway.url, "--gateway-url"))
        try:
            if ready is not None:
                await self._listener.on_ready(self._device, ready)
                connection.start(self._receive)
            await connection.wait_closed()
        finally:
            await connection.close()
        return self._describe(connection, was_ready=ready is not None)

    async def _open(self, connection: DeviceConnection) -> Ready | None:
        """Connect and return the server's `ready`; None if the server closed instead."""
        async with self._gateway.connecting, asyncio.timeout(READY_TIMEOUT_S):
            transport, _ = await ws_connect(
                lambda: connection,
                self._gateway.url,
                ssl_context=self._gateway.tls_context,
                enable_auto_ping=True,
                auto_ping_idle_timeout=_PING_AFTER_S,
                auto_ping_reply_timeout=_PONG_WITHIN_S,
                read_buffer_init_size=1024,
                use_aiofastnet=False,
            )
            # From a port that speaks TLS, picows returns a transport that is closed already.
            return None if transport.is_disconnected else await connection.ready

    def _receive(self, message: Notification) -> bool:
        """Process a message; acknowledge one that was processed before, but do no more."""
        key = (message.topic, message.id)
        if key in self._recent:
            return True
        if not self._listener.on_message(self._device, message):
            return False
        self._recent[key] = None
        if len(self._recent) > _RECENT_IDS:
            self._recent.popitem(last=False)
        return True

    def _describe(self, connection: DeviceConnection, *, was_ready: bool) -> _End:
        code, reason = connection.close_code, connection.close_reason
        if code in _FINAL:
            return _End(_FINAL[CloseCode(code)], is_final=True)
        if reason:
            return _End(f"{reason[0].upper()}{reason[1:]}.", was_ready=was_ready)
        if not was_ready:
            error = ConnectionResetError()
            return _End(explain_failure(error, self._gateway.url, "--gateway-url"))
        return _End("The connection is lost.", was_ready=True)


def pause_s(attempt: int, chance: float) -> float:
    """Return the pause before an attempt: 0.5 s, 1 s, 2 s … 30 s, less up to 50 % jitter."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(attempt, 16)))
    return longest * (1 - chance / 2)
