"""A small HTTP/1.1 client, one request at a time, that knows an answer from a lost one."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

ANSWER_LIMIT_S = 60.0
NO_CONTENT = 204
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server said, read whole."""

    status: int
    body: bytes
    is_last: bool  # the server closes the connection behind it
    retry_after_s: int | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A connection to a server on this machine.

    `ask` raises OSError or EOFError if no whole answer came: what became of the request is then
    unknown, and the connection is of no further use.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host = host
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        reader, writer = await self._open()
        writer.write(_encode(method, path, headers or {}, body))
        answer = await asyncio.wait_for(_read(reader), ANSWER_LIMIT_S)
        if answer.is_last:
            self.close()
        return answer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        return self._streams


def _encode(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    given = {"host": "127.0.0.1", "content-length": str(len(body)), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    status, length = int(head[9:12]), _LENGTH.search(head)
    assert length or status == NO_CONTENT, head
    body = await reader.readexactly(int(length[1])) if length else b""
    retry = _RETRY_AFTER.search(head)
    return Answer(
        status=status,
        body=body,
        is_last=bool(_CLOSE.search(head)),
        retry_after_s=int(retry[1]) if retry else None,
    )
