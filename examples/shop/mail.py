"""A mail server for development: it keeps what it gets, and sends nothing on."""

from __future__ import annotations

import socket
from collections import deque
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Self

from aiosmtpd.controller import Controller


class Mailbox:
    """The newest messages first."""

    def __init__(self) -> None:
        self.messages: deque[EmailMessage] = deque(maxlen=50)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._controller.stop()

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        self.messages.appendleft(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"
