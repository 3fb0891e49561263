"""Parses what a connection receives into requests, with llhttp, the parser of Node."""

from __future__ import annotations

from typing import Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
    parse_url,
)

from clarion.errors import ClarionError, HeadTooLarge, MalformedRequest
from clarion.http.asgi import Headers

# Read at a time, into one buffer for all connections.
READ_BYTES = 65_536
_HEADERS = 100
_UNKNOWN_METHOD = "Unknown method. Use GET, POST, PUT, PATCH, DELETE, HEAD or OPTIONS."
_VERSIONS = {"1.1": "1.1", "1.0": "1"}  # as ASGI writes them


class Receiver(Protocol):
    """Takes what was parsed."""

    def begin_request(self, head: RequestParser) -> None:
        """Take a request whose head is complete."""

    def take_body(self, part: bytes) -> None:
        """Take a part of its body."""

    def end_body(self) -> None:
        """Note that its body is complete."""


class RequestParser:
    """The parser of one connection. Its attributes are those of the last head."""

    __slots__ = (
        "_fed",
        "_llhttp",
        "_most",
        "_receiver",
        "_size",
        "awaits_continue",
        "headers",
        "is_in_head",
        "target",
    )

    def __init__(self, receiver: Receiver, max_header_bytes: int) -> None:
        self._receiver = receiver
        self._most = max_header_bytes
        self._llhttp = HttpRequestParser(self)
        self.headers: Headers = []
        self._begin_head(is_in_head=False)

    def parse(self, data: memoryview) -> None:
        """Parse some bytes; an error of ours for what is not valid, and nothing after that."""
        try:
            self._llhttp.feed_data(data)
        except HttpParserUpgrade:
            return  # no other protocol is spoken here: `keeps_alive` is false
        except HttpParserCallbackError as failed:
            refused = failed.__context__
            raise refused if isinstance(refused, ClarionError) else failed from None
        except HttpParserInvalidMethodError:
            raise MalformedRequest(_UNKNOWN_METHOD) from None
        except HttpParserError as error:
            raise MalformedRequest(f"This is not valid HTTP: {error}.") from None
        if self.is_in_head:
            # Also of a head whose parts the parser has not shown yet.
            self._fed += len(data)
            if self._fed > self._most + READ_BYTES:
                raise HeadTooLarge

    # Of the head that was parsed.

    @property
    def method(self) -> str:
        method: bytes = self._llhttp.get_method()
        return method.decode()

    @property
    def version(self) -> str:
        version = _VERSIONS.get(self._llhttp.get_http_version())
        if version is None:
            raise MalformedRequest("The version must be 1.0, 1.1 or 2.")
        return version

    @property
    def keeps_alive(self) -> bool:
        """Whether a request may follow."""
        return self._llhttp.should_keep_alive() and not self._llhttp.should_upgrade()

    def split_target(self) -> tuple[bytes, bytes]:
        """Return the path and the query. The host of a whole URL replaces the header."""
        target = self.target
        if not target.startswith(b"/") and b"://" in target:
            url = parse_url(target)
            authority = b"%b:%d" % (url.host, url.port) if url.port else url.host
            self.headers = [
                (name, authority if name == b"host" else value) for name, value in self.headers
            ]
            return url.path or b"/", url.query or b""
        path, _, query = target.partition(b"#")[0].partition(b"?")
        return path, query

    # Called by llhttp.

    def on_message_begin(self) -> None:
        self._begin_head(is_in_head=True)

    def on_url(self, part: bytes) -> None:
        self.target += part
        self._count(len(part))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_in_head:
            return  # a trailer
        self._count(len(name) + len(value))
        name = name.lower()
        self.headers.append((name, value.rstrip(b" \t")))
        if name == b"expect":
            self.awaits_continue = value.lower() == b"100-continue"
        if len(self.headers) > _HEADERS:
            raise HeadTooLarge(f"A request has at most {_HEADERS} headers.")

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        self._receiver.begin_request(self)

    def on_body(self, part: bytes) -> None:
        self._receiver.take_body(part)

    def on_message_complete(self) -> None:
        self._receiver.end_body()

    def _begin_head(self, *, is_in_head: bool) -> None:
        self.is_in_head = is_in_head
        self.target = b""
        self.headers = []
        self.awaits_continue = False
        self._size = 0  # of what the parser has shown
        self._fed = 0

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._most:
            raise HeadTooLarge
