"""One connection of a device to the gateway: hello, messages, acknowledgements, pings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from clarion.cli.device.credentials import Device
from clarion.push.frames import Ack, Hello
from clarion.sockets.protocol import PONG

_CLOSE_TIMEOUT_S = 2


class _Frame(msgspec.Struct, tag_field="type"):
    """A frame of the server; unknown fields are ignored."""


class Ready(_Frame, tag="ready"):
    device_id: str
    heartbeat_s: int
    pending: int


class Notification(_Frame, tag="notification", omit_defaults=True):
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


class DeviceConnection(WSListener):
    """One WebSocket of one device.

    Messages are buffered until `start` passes a receiver. The receiver returns whether the device
    has processed a message; only then is it acknowledged.
    """

    def __init__(self, device: Device) -> None:
        self.ready: asyncio.Future[Ready | None] = asyncio.get_running_loop().create_future()
        self.close_code = 0
        self.close_reason = ""
        self._device = device
        self._transport: WSTransport | None = None
        self._receive: Callable[[Notification], bool] | None = None
        self._buffer: list[Notification] = []

    def start(self, receive: Callable[[Notification], bool]) -> None:
        """Pass buffered messages to the receiver, and from now on each one that arrives."""
        self._receive = receive
        buffered, self._buffer = self._buffer, []
        for notification in buffered:
            self._pass_on(notification)

    async def close(self) -> None:
        """Close the connection; acknowledgements sent before still reach the server."""
        if self._transport is None or self._transport.is_disconnected:
            return
        self._receive = None
        self._transport.send_close(WSCloseCode.OK)
        self._transport.disconnect()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait for the end of the connection; raise the receiver's exception, if it ended so."""
        if self._transport is not None:
            await self._transport.wait_disconnected()

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._write(_encode(Hello(self._device.token, self._device.secret)))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self._on_text(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.CLOSE:
            # picows has names for the standard codes only; ours are plain numbers.
            code: Any = frame.get_close_code()
            self.close_code = int(getattr(code, "value", code))
            self.close_reason = frame.get_close_message().decode(errors="replace")
            transport.send_close(code)
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002 - picows' signature
        if not self.ready.done():
            self.ready.set_result(None)

    def _on_text(self, data: bytes) -> None:
        try:
            frame = _decoder.decode(data)
        except msgspec.DecodeError:
            return  # a frame of a newer server, which clients may ignore
        match frame:
            case Ready():
                if not self.ready.done():
                    self.ready.set_result(frame)
            case Notification():
                self._pass_on(frame)
            case _Ping():
                self._write(PONG)

    def _pass_on(self, notification: Notification) -> None:
        if self._receive is None:
            self._buffer.append(notification)
        elif self._receive(notification):
            self._write(_encode(Ack(notification.id)))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.send(WSMsgType.TEXT, data)
