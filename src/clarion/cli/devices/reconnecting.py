"""One device that stays connected: comes back after a loss, and takes every message once."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from picows import WSError, ws_connect

from clarion.cli.calls import explain
from clarion.cli.devices.device_link import DeviceLink
from clarion.errors import CommandFailed
from clarion.sockets.protocol import CloseCode

if TYPE_CHECKING:
    import ssl

    from clarion.cli.devices.device_link import Notification, Ready
    from clarion.cli.devices.known_devices import KnownDevice

READY_TIMEOUT_S = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
# Of a line on which nothing has come for so long we ask whether it still lives.
_PING_AFTER_S, _PONG_WITHIN_S = 40, 20
_IDS_KNOWN = 1_000

# With these there is no use in trying again as the same device.
_FINAL = {
    CloseCode.BAD_FRAME: "The server did not understand this client. Are both of one version?",
    CloseCode.FRAME_TOO_LARGE: "This client sent a frame that is too large.",
    CloseCode.NOT_AUTHORISED: "The server does not know this device, or not by this secret. "
    "`clarion device listen --new` registers a fresh one.",
    CloseCode.REPLACED: "Another connection took over as the same device. "
    "`clarion device listen --new` listens as one of its own.",
    CloseCode.REVOKED: "The device was revoked. "
    "`clarion device listen --new` registers a fresh one.",
}


class Audience(Protocol):
    """Whom a device tells what happens to it."""

    async def welcome(self, device: KnownDevice, ready: Ready) -> None:
        """The device is connected; what waits for it is held back until this returns."""
        ...

    def take(self, device: KnownDevice, message: Notification) -> bool:
        """Take a message that is new; False leaves it with the server."""
        ...

    def lose(self, device: KnownDevice, why: str, retry_s: float) -> None:
        """The connection is lost, and tried again after so long."""
        ...


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Where the gateway is, whom to trust there, and how many may knock at a time."""

    url: str
    trust: ssl.SSLContext | None
    knocking: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class _End:
    """Why a connection ended."""

    why: str
    is_final: bool = False
    was_ready: bool = False


class ReconnectingDevice:
    """One device that stays connected."""

    def __init__(self, device: KnownDevice, gateway: Gateway, audience: Audience) -> None:
        self._device = device
        self._gateway = gateway
        self._audience = audience
        self._known: OrderedDict[tuple[str | None, str], None] = OrderedDict()

    async def run(self) -> NoReturn:
        """Stay connected; `CommandFailed` if that fails at once, or for good."""
        was_ready, attempt = False, 0
        while True:
            end = await self._hold_connection()
            was_ready = was_ready or end.was_ready
            if end.is_final or not was_ready:
                raise CommandFailed(end.why)
            attempt = 0 if end.was_ready else attempt + 1
            wait_s = pause_s(attempt, random.random())  # noqa: S311 - it spreads, it hides nothing
            why = end.why if end.was_ready else "The server does not answer yet."
            self._audience.lose(self._device, why, wait_s)
            await asyncio.sleep(wait_s)

    async def _hold_connection(self) -> _End:
        link = DeviceLink(self._device)
        try:
            ready = await self._knock(link)
        except (OSError, WSError, ValueError) as error:
            await link.hang_up()
            return _End(explain(error, self._gateway.url, "--gateway-url"))
        try:
            if ready is not None:
                await self._audience.welcome(self._device, ready)
                link.open(self._take)
            await link.wait_ended()
        finally:
            await link.hang_up()
        return self._describe(link, was_ready=ready is not None)

    async def _knock(self, link: DeviceLink) -> Ready | None:
        """Connect, say hello, and return the answer; None if the server hung up instead."""
        async with self._gateway.knocking, asyncio.timeout(READY_TIMEOUT_S):
            transport, _ = await ws_connect(
                lambda: link,
                self._gateway.url,
                ssl_context=self._gateway.trust,
                enable_auto_ping=True,
                auto_ping_idle_timeout=_PING_AFTER_S,
                auto_ping_reply_timeout=_PONG_WITHIN_S,
                read_buffer_init_size=1024,
                use_aiofastnet=False,
            )
            # From a port that speaks TLS, picows returns a transport that is over already.
            return None if transport.is_disconnected else await link.ready

    def _take(self, message: Notification) -> bool:
        """Take a message; one that was taken before is only acknowledged again."""
        key = (message.topic, message.id)
        if key in self._known:
            return True
        if not self._audience.take(self._device, message):
            return False
        self._known[key] = None
        if len(self._known) > _IDS_KNOWN:
            self._known.popitem(last=False)
        return True

    def _describe(self, link: DeviceLink, *, was_ready: bool) -> _End:
        code = link.close_code
        if code in _FINAL:
            return _End(_FINAL[CloseCode(code)], is_final=True)
        if link.close_reason:
            return _End(_sentence(link.close_reason), was_ready=was_ready)
        if not was_ready:
            return _End(explain(ConnectionResetError(), self._gateway.url, "--gateway-url"))
        return _End("The connection is lost.", was_ready=True)


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."


def pause_s(attempt: int, chance: float) -> float:
    """Return how long to wait: 0.5 s, 1 s, 2 s … 30 s, each up to a half less by chance."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(attempt, 16)))
    return longest * (1 - chance / 2)
