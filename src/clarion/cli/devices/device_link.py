"""One connection to the gateway, seen from the device: says hello, hands on, acknowledges."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from clarion.push.frames import Ack, Hello
from clarion.sockets.protocol import PONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from clarion.cli.devices.known_devices import KnownDevice

_HANG_UP_S = 2


class _Frame(msgspec.Struct, tag_field="type"):
    """A frame of the server. Fields that we do not know are left to newer clients."""


class Ready(_Frame, tag="ready"):
    """The server let the device in."""

    device_id: str
    heartbeat_s: int
    pending: int


class Notification(_Frame, tag="notification", omit_defaults=True):
    """A message has arrived."""

    id: str
    payload: dict[str, Any]
    priority: int
    sent_at: str
    collapse_id: str | None = None
    topic: str | None = None


class _Ping(_Frame, tag="ping"):
    pass


_Frames = Ready | Notification | _Ping
_decoder: msgspec.json.Decoder[_Frames] = msgspec.json.Decoder(_Frames)
_encode = msgspec.json.Encoder().encode


class DeviceLink(WSListener):
    """One connection of one device.

    What arrives is held back until `open` says what to do with it, so that whoever connects can
    first prepare. `take` returns whether the device has a message for good; then it is
    acknowledged, and the server forgets it.
    """

    def __init__(self, device: KnownDevice) -> None:
        self.ready: asyncio.Future[Ready | None] = asyncio.get_running_loop().create_future()
        self.close_code = 0
        self.close_reason = ""
        self._device = device
        self._transport: WSTransport | None = None
        self._take: Callable[[Notification], bool] | None = None
        self._held: list[Notification] = []

    def open(self, take: Callable[[Notification], bool]) -> None:
        """Hand on what has arrived, and from now on what arrives."""
        self._take = take
        held, self._held = self._held, []
        for notification in held:
            self._hand_on(notification, take)

    async def hang_up(self) -> None:
        """End the connection; what was acknowledged before still reaches the server."""
        if self._transport is None or self._transport.is_disconnected:
            return
        self._take = _refuse
        self._transport.send_close(WSCloseCode.OK)
        self._transport.disconnect()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.wait_ended(), _HANG_UP_S)

    async def wait_ended(self) -> None:
        """Wait for the end of the connection; raise what `take` raised, if that was the cause."""
        if self._transport is not None:
            await self._transport.wait_disconnected()

    # What picows calls.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._send(Hello(self._device.token, self._device.secret))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self._receive(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.CLOSE:
            # picows names the codes of the standard alone; ours come as plain numbers.
            code: Any = frame.get_close_code()
            self.close_code = int(getattr(code, "value", code))
            self.close_reason = frame.get_close_message().decode(errors="replace")
            transport.send_close(code)
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002 - picows' signature
        if not self.ready.done():
            self.ready.set_result(None)

    def _receive(self, data: bytes) -> None:
        try:
            frame = _decoder.decode(data)
        except msgspec.DecodeError:
            return  # of a newer server: what it cannot do without, it will not send unasked
        match frame:
            case Ready():
                if not self.ready.done():
                    self.ready.set_result(frame)
            case Notification():
                if self._take is None:
                    self._held.append(frame)
                else:
                    self._hand_on(frame, self._take)
            case _Ping():
                self._write(PONG)

    def _hand_on(self, notification: Notification, take: Callable[[Notification], bool]) -> None:
        if take(notification):
            self._send(Ack(notification.id))

    def _send(self, frame: Hello | Ack) -> None:
        self._write(_encode(frame))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, data)


def _refuse(_notification: Notification) -> bool:
    return False
