"""HTTP clients for providers: pooled, limited, and aware of whether a request was sent.

Redirects are not followed, no proxy is taken from the environment, and a response is read up to
64 kB as it is, without decompressing it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from clarion.channels.answers import read_retry_after
from clarion.channels.authorities import load_authorities
from clarion.channels.connection_words import describe_http, describe_lookup
from clarion.channels.targets import HttpTarget, Targets

if TYPE_CHECKING:
    from pyreqwest.client import Client
    from pyreqwest.exceptions import Cause, PyreqwestError
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import ResponseBodyReader

T = TypeVar("T", bound=msgspec.Struct)
RESPONSE_LIMIT_BYTES = 64 * 1024
# Beyond these the client that was used longest ago is closed. One takes about 0.1 MB.
CLIENTS_LIMIT = 256
# Connections that are kept for the next request: together at most 2,048.
_IDLE_LIMIT = 8
_IDLE_S = 90.0
# Addresses of one name that are tried.
_ADDRESSES_LIMIT = 3
# The time to connect, the longest that is at most half of the time for the request: a request that
# exceeds its own time was sent.
_CONNECT_TIMEOUTS_S = (5.0, 2.0, 1.0, 0.5, 0.25)
# After the head of an answer, at most half of the time that is left for the request: a body that
# never ends must not make the status unknown.
_BODY_TIMEOUT_S = 3.0
_MESSAGE_LIMIT = 300
_NO_CERTIFICATES = "The certificates of ca_path cannot be read."

# The classes of pyreqwest's errors do not show whether a request was sent: a reset connection is a
# `ConnectError`, and a time-out of the response a `ConnectTimeoutError`. These causes do.
_NOT_SENT = frozenset(
    {
        # There was no connection: DNS, TCP or TLS.
        "client error (Connect)",
        # The connection ended before the request was written to it.
        "client error (Canceled)",
        # HTTP/2: the connection ended while the request waited for a stream. At most its head was
        # written, and all our requests have a body.
        "dispatch task is gone",
        # HTTP/2: the server states that it did not process the request.
        "stream error received: refused stream before processing any application logic",
    }
)
# HTTP/2: a GOAWAY, for the requests after the last one that the server processes, and for no other.
# The reason follows, and what the server adds: Apple sends JSON.
_GOAWAY = "connection error received: "


class NotConnected(Exception):
    """The request was not sent, or the server states that it did not process it."""


class NoAnswer(Exception):
    """The request was sent, at least in part; no complete head of an answer came."""


class ProviderRequest(NamedTuple):
    """A request, and how long it may take."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float
    ca_path: str | None = None
    limit_bytes: int = RESPONSE_LIMIT_BYTES  # of the body that is read
    empty_status: int = 0  # of answers without a body: none is waited for


class HttpAnswer(NamedTuple):
    """The answer to a request; the names of `headers` are not case-sensitive.

    The body is empty if it broke off: the status is what counts.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return a header; None if it is missing or not text."""
        try:
            return self.headers.get(name)
        except ValueError:
            return None

    @property
    def codes(self) -> tuple[str, str]:
        """The codes of the status, the most specific first: `503`, `5xx`."""
        return str(self.status), f"{self.status // 100}xx"

    def read_retry_after(self, now: int) -> float | None:
        """Return the seconds of `Retry-After`; None if it is missing or invalid."""
        return read_retry_after(self.header("retry-after"), now)

    def read_json(self, wanted: type[T]) -> T:
        """Return the body; the defaults of a type if the body does not have it."""
        try:
            return msgspec.json.decode(self.body, type=wanted)
        except (ValueError, RecursionError):
            return wanted()


class _Key(NamedTuple):
    target: HttpTarget
    ca_path: str | None
    connect_timeout_s: float


@dataclass(slots=True)
class _Pooled:
    client: Client
    users: int = 0


class HttpClients:
    """Clients by target: each has its own connections, to the address that was checked."""

    def __init__(self, targets: Targets, *, limit: int = CLIENTS_LIMIT) -> None:
        self.targets = targets
        self._limit = limit
        # The one used longest ago is first.
        self._clients: dict[_Key, _Pooled] = {}
        self._building = asyncio.Lock()

    async def post(self, request: ProviderRequest) -> HttpAnswer:
        """Send a request and return the answer.

        `NotConnected` if it was not sent, `NoAnswer` if it may have arrived; `TargetRefused` if
        the URL leads where Clarion must not call.
        """
        from clarion.client.cancellation import (  # noqa: PLC0415 - imports pyreqwest
            end_if_cancelled,
        )

        now = asyncio.get_running_loop().time
        end = now() + request.timeout_s
        failure = NotConnected("The name of the host was resolved too late.")
        for target in (await self._locate(request.url))[:_ADDRESSES_LIMIT]:
            left_s = end - now()
            if left_s <= 0:
                break
            key = _Key(target, request.ca_path, _choose_connect_timeout(left_s))
            try:
                pooled = await self._take(key)
                try:
                    prepared = _prepare(pooled.client, request, left_s)
                    return await end_if_cancelled(_post(prepared, request, end, target.host))
                finally:
                    pooled.users -= 1
            except NotConnected as error:
                failure = error
        raise failure

    async def close(self) -> None:
        """Close all connections; requests in progress fail."""
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(each.client.close() for each in clients.values()))

    async def _locate(self, url: str) -> tuple[HttpTarget, ...]:
        try:
            return await self.targets.resolve(url)
        except OSError as error:
            host = urlsplit(url).hostname or ""
            raise NotConnected(describe_lookup(error, host)) from error

    async def _take(self, key: _Key) -> _Pooled:
        """Return a client that is in use from now on."""
        pooled = self._clients.pop(key, None) or await self._open(key)
        self._clients[key] = pooled
        pooled.users += 1
        if len(self._clients) > self._limit:
            try:
                await self._close_unused()
            except BaseException:
                pooled.users -= 1
                raise
        return pooled

    async def _open(self, key: _Key) -> _Pooled:
        # Reading the certificates of the system takes a few milliseconds. One at a time: requests
        # that come at once share the client that the first of them opens.
        async with self._building:
            if key not in self._clients:
                client = await asyncio.to_thread(partial(_build, key))
                self._clients[key] = _Pooled(client)
            return self._clients[key]

    async def _close_unused(self) -> None:
        excess = len(self._clients) - self._limit
        if excess > 0:
            unused = [key for key, each in self._clients.items() if not each.users][:excess]
            closing = [self._clients.pop(key).client for key in unused]
            await asyncio.gather(*(client.close() for client in closing))


def _choose_connect_timeout(left_s: float) -> float:
    fitting = (each for each in _CONNECT_TIMEOUTS_S if each <= left_s / 2)
    return next(fitting, _CONNECT_TIMEOUTS_S[-1])


def _build(key: _Key) -> Client:
    from pyreqwest.client import ClientBuilder  # noqa: PLC0415 - only where something is sent
    from pyreqwest.exceptions import PyreqwestError  # noqa: PLC0415

    target = key.target
    builder = (
        ClientBuilder()
        .no_proxy()
        .follow_redirects(enable=False)
        .gzip(enable=False)
        .brotli(enable=False)
        .zstd(enable=False)
        .deflate(enable=False)
        .http2(enable=True)
        .http2_keep_alive_interval(timedelta(seconds=30))
        .http2_keep_alive_timeout(timedelta(seconds=10))
        .connect_timeout(timedelta(seconds=key.connect_timeout_s))
        .pool_idle_timeout(timedelta(seconds=_IDLE_S))
        .pool_max_idle_per_host(_IDLE_LIMIT)
        .user_agent("Clarion")
        .resolve(target.host, target.address, target.port)
    )
    if key.ca_path is None:
        return builder.build()
    # One message for every failure: it must not reveal which files exist, or their content.
    try:
        for each in load_authorities(key.ca_path):
            builder = builder.add_root_certificate_der(each)
        return builder.build()
    except (OSError, ValueError, PyreqwestError):
        raise NotConnected(_NO_CERTIFICATES) from None


def _prepare(client: Client, request: ProviderRequest, timeout_s: float) -> StreamRequest:
    return (
        client.post(request.url)
        .headers(dict(request.headers))
        .body_bytes(request.body)
        .timeout(timedelta(seconds=timeout_s))
        # The head is returned when it arrives, not with the first part of the body.
        .streamed_read_buffer_limit(0)
        .build_streamed()
    )


async def _post(
    prepared: StreamRequest, request: ProviderRequest, end: float, host: str
) -> HttpAnswer:
    from pyreqwest.exceptions import PyreqwestError  # noqa: PLC0415 - only where something is sent

    try:
        async with prepared as response:
            status = response.status
            if status == request.empty_status:
                return HttpAnswer(status, response.headers, b"")
            body = await _read(response.body_reader, request.limit_bytes, end)
            return HttpAnswer(status, response.headers, body)
    except PyreqwestError as error:
        # Without the cause: it names the URL, which may be a secret, and would be logged.
        raise _classify(error, host) from None


async def _read(reader: ResponseBodyReader, limit_bytes: int, end: float) -> bytes:
    from pyreqwest.exceptions import PyreqwestError  # noqa: PLC0415 - only where something is sent

    left_s = end - asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(min(_BODY_TIMEOUT_S, left_s / 2)):
            part = await reader.read(limit_bytes)
    except (PyreqwestError, TimeoutError):
        return b""
    return b"" if part is None else bytes(part)


def _classify(error: PyreqwestError, host: str) -> NotConnected | NoAnswer:
    # The first cause names the URL.
    causes = [each["message"] for each in _find_causes(error)[1:]]
    text = describe_http(causes, type(error).__name__, host)
    printable = "".join(each for each in text if each.isprintable())[:_MESSAGE_LIMIT]
    is_sent = _NOT_SENT.isdisjoint(causes) and not any(each.startswith(_GOAWAY) for each in causes)
    return (NoAnswer if is_sent else NotConnected)(printable)


def _find_causes(error: PyreqwestError) -> list[Cause]:
    from pyreqwest.exceptions import DetailedPyreqwestError  # noqa: PLC0415 - only where something is sent

    return (error.details["causes"] or []) if isinstance(error, DetailedPyreqwestError) else []
