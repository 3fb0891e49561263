"""Requests to a server: with credentials, and repeated while that can help and do no harm."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import RequestBuilder
from pyreqwest.response import ResponseBodyReader

from clarion.client.cancellation import end_if_cancelled
from clarion.client.errors import ApiError, NotReached, read_error

T = TypeVar("T")
# Returns the credential for the next request: an API key, or a user token that may be renewed.
Credential = Callable[[], Awaitable[str]]

ATTEMPTS = 5
TIMEOUT_S = 30.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
# The server sends something every 20 s: a stream that is silent for longer is dead.
_SILENCE_S = 50.0
# A longer event is not one of ours.
_EVENT_LIMIT_BYTES = 1024 * 1024
_PART_BYTES = 65_536
_ERRORS_FROM = 400
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


class Http:
    """One server, and one caller of it."""

    def __init__(
        self, url: str, credential: Credential, *, attempts: int, timeout_s: float, ca: bytes | None
    ) -> None:
        self._url = url.rstrip("/")
        self._credential = credential
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._client = _build(ca)

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        returns: type[T],
        query: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        is_repeatable: bool = False,
    ) -> T:
        """Send a request and return its answer; `ApiError` or `NotReached` otherwise."""
        may_repeat = is_repeatable or idempotency_key is not None or method in _REPEATABLE
        attempts = self._attempts if may_repeat else 1
        for attempt in range(1, attempts + 1):
            request = await self._prepare(method, path, query)
            if body is not None:
                request = request.header("content-type", "application/json")
                request = request.body_bytes(msgspec.json.encode(body))
            if idempotency_key is not None:
                request = request.header("idempotency-key", idempotency_key)
            try:
                return await end_if_cancelled(self._ask(request, returns))
            except (ApiError, NotReached) as error:
                if attempt == attempts or not is_temporary(error):
                    raise
                await asyncio.sleep(wait_s(error, attempt - 1))
        raise AssertionError  # the last attempt returns or raises

    async def stream(self, path: str, after: int | None) -> AsyncIterator[bytes]:
        """Yield the data of the events of a stream, until it ends."""
        request = await self._prepare("GET", path, None)
        if after is not None:
            request = request.header("last-event-id", str(after))
        streamed = request.streamed_read_buffer_limit(0).build_streamed()
        try:
            async with AsyncExitStack() as stack:
                response = await end_if_cancelled(stack.enter_async_context(streamed))
                if response.status >= _ERRORS_FROM:
                    body = bytes(await response.body_reader.bytes())
                    raise read_error(response.status, response.get_header("retry-after"), body)
                async for data in _read_events(response.body_reader):
                    yield data
        except (PyreqwestError, TimeoutError) as error:
            raise NotReached(f"The stream broke off: {_explain(error)}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _prepare(
        self, method: str, path: str, query: Mapping[str, object] | None
    ) -> RequestBuilder:
        request = self._client.request(method, self._url + path)
        given = {name: _text(each) for name, each in (query or {}).items() if each is not None}
        request = request.query(given) if given else request
        return request.header("authorization", f"Bearer {await self._credential()}")

    async def _ask(self, request: RequestBuilder, returns: type[T]) -> T:
        try:
            response = await request.timeout(timedelta(seconds=self._timeout_s)).build().send()
            body = bytes(await response.bytes())
        except PyreqwestError as error:
            raise NotReached(f"{self._url} did not answer: {_explain(error)}") from error
        if response.status >= _ERRORS_FROM:
            raise read_error(response.status, response.get_header("retry-after"), body)
        return msgspec.json.decode(body or b"null", type=returns)


class HttpClient:
    """What clients with asyncio have in common: a server, a caller, and an end."""

    def __init__(
        self,
        url: str,
        credential: Credential,
        *,
        attempts: int = ATTEMPTS,
        timeout_s: float = TIMEOUT_S,
        ca: bytes | None = None,
    ) -> None:
        self._http = Http(url, credential, attempts=attempts, timeout_s=timeout_s, ca=ca)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def is_temporary(error: ApiError | NotReached) -> bool:
    """Whether a repeat may succeed."""
    return error.is_temporary if isinstance(error, ApiError) else True


def wait_s(error: ApiError | NotReached, failures: int) -> float:
    """Return how long to wait: twice as long each time, with jitter, or as the server says."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**failures)
    asked = error.retry_after_s if isinstance(error, ApiError) else None
    return max(asked or 0.0, random.uniform(longest / 2, longest))  # noqa: S311 - no secret


async def _read_events(reader: ResponseBodyReader) -> AsyncIterator[bytes]:
    text = b""
    while True:
        async with asyncio.timeout(_SILENCE_S):
            part = await end_if_cancelled(reader.read_chunk())
        if part is None:
            return
        *events, text = (text + bytes(part)).split(b"\n\n")
        if len(text) > _EVENT_LIMIT_BYTES:
            raise NotReached("The stream is not one of Clarion.")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    yield line.removeprefix(b"data: ")


def _build(ca: bytes | None) -> Client:
    builder = ClientBuilder().follow_redirects(enable=False).user_agent("clarion-client")
    if ca is not None:
        builder = builder.add_root_certificate_pem(ca)
    return builder.build()


def _text(value: object) -> Any:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _explain(error: Exception) -> str:
    return str(error) or type(error).__name__
