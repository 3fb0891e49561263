"""A server with the Messages API of Twilio: checks what it gets, signs reports, and can fail."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import Any, Self
from urllib.parse import parse_qs

ACCOUNT = "AC" + "0" * 32
TOKEN = "twilio-token"


class Fault(Enum):
    """What goes wrong with a connection, after the whole request was read."""

    SILENT = auto()
    RESET = auto()
    HALF = auto()
    RESET_MID_BODY = auto()
    SLOW = auto()


@dataclass(frozen=True)
class Reply:
    """What the server answers instead of accepting a message."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_error(
        cls, status: int, code: int, message: str = "Ünexpected\r\n\x00", **more: str
    ) -> Self:
        body = {"code": code, "message": message, "more_info": "…", "status": status}
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        return cls(status, json.dumps(body).encode(), headers)


class Twilio:
    """The server. Use as a context; `accepted` are the forms of the messages that it took."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.accepted: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.fault: Fault | None = None
        self.reply: Reply | None = None
        self._tls = tls
        self._numbers = count(1)
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            with contextlib.suppress(
                asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError
            ):
                while True:
                    path, headers, body = await read_request(reader)
                    answer = encode(self.judge(path, headers, body))
                    if self.fault:
                        return await self._fail(self.fault, writer, answer)
                    writer.write(answer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _fail(self, fault: Fault, writer: asyncio.StreamWriter, answer: bytes) -> None:
        match fault:
            case Fault.SILENT:
                await asyncio.sleep(60)
            case Fault.RESET:
                reset(writer)
            case Fault.HALF:
                writer.write(answer[: len(answer) - 10])
            case Fault.RESET_MID_BODY:
                writer.write(answer[: len(answer) - 10])
                await writer.drain()
                await asyncio.sleep(0.05)
                reset(writer)
            case Fault.SLOW:
                for each in answer:
                    writer.write(bytes([each]))
                    await asyncio.sleep(1)

    def judge(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Return the answer to a request."""
        if self.reply:
            return self.reply
        if path != f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json":
            return Reply.of_error(404, 20404)
        wanted = base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
        if headers.get("authorization") != f"Basic {wanted}":
            return Reply.of_error(401, 20003)
        return self._accept(headers, body)

    def _accept(self, headers: dict[str, str], body: bytes) -> Reply:
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, keep_blank_values=True)
        form = {name: value for name, (value,) in fields.items()}
        if "To" not in form:
            return Reply.of_error(400, 21604)
        if not form["To"].startswith("+"):
            return Reply.of_error(400, 21211)
        self.headers.append(headers)
        self.accepted.append(form)
        sid = f"SM{next(self._numbers):032x}"
        message = {"sid": sid, "status": "queued", "error_code": None, "num_segments": "1"}
        return Reply(201, json.dumps(message).encode())


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    return head[0].split()[1], headers, await reader.readexactly(int(headers["content-length"]))


def encode(reply: Reply) -> bytes:
    headers = {"content-type": "application/json", "content-length": str(len(reply.body))}
    lines = [f"{name}: {value}\r\n" for name, value in {**headers, **reply.headers}.items()]
    return f"HTTP/1.1 {reply.status} X\r\n{''.join(lines)}\r\n".encode() + reply.body


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def sign(url: str, form: Mapping[str, str], token: str = TOKEN) -> str:
    """Return the signature of a report, as Twilio describes it."""
    text = url
    for name in sorted(form):
        text += name + form[name]
    return sign_text(text, token)


def sign_text(text: str, token: str = TOKEN) -> str:
    return base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()
