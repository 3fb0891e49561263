"""Requests to a server, with credentials, and with retries where these are safe and can help."""

from __future__ import annotations

import asyncio
import atexit
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import DetailedPyreqwestError, PyreqwestError
from pyreqwest.request import RequestBuilder
from pyreqwest.response import ResponseBodyReader

from .cancellation import end_if_cancelled
from .errors import ApiError, NotReached, read_error

T = TypeVar("T")
# Returns the credential for the next request: an API key, or a user token that may be renewed.
Credential = Callable[[], Awaitable[str]]

ATTEMPTS = 5
TIMEOUT_S = 30.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
# The server sends something every 20 s: a stream that is silent for this long is broken.
_SILENCE_S = 50.0
# Clarion sends no longer event.
_EVENT_LIMIT_BYTES = 1024 * 1024
_CALLBACK_S = 1.0
_SUCCESS_FROM = 200
# Redirects are not followed.
_ERRORS_FROM = 300
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


class Answer(NamedTuple):
    """An answer with any status. The names of `headers` are the same in upper and lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return _SUCCESS_FROM <= self.status < _ERRORS_FROM


class Http:
    """One server, and one caller of it."""

    def __init__(
        self, url: str, credential: Credential, client: Client, *, attempts: int, timeout_s: float
    ) -> None:
        self._url = url.rstrip("/")
        self._credential = credential
        self._client = client
        self._attempts = attempts
        self._timeout_s = timeout_s

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
        content, headers = b"", {}
        if body is not None:
            content, headers["content-type"] = msgspec.json.encode(body), "application/json"
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        for attempt in range(1, attempts + 1):
            try:
                sent = self.call(method, path, content, headers=headers, query=query)
                return _decode(await end_if_cancelled(sent), returns)
            except (ApiError, NotReached) as error:
                if attempt == attempts or not is_temporary(error):
                    raise
                await asyncio.sleep(wait_s(error, attempt - 1))
        raise AssertionError  # the last attempt returns or raises

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Answer:
        """Send a request once; `NotReached` if there is no answer."""
        request = await self._prepare(method, path, headers or {}, query or {})
        request = request.body_bytes(body) if body else request
        try:
            response = await request.timeout(timedelta(seconds=self._timeout_s)).build().send()
            return Answer(response.status, response.headers, bytes(await response.bytes()))
        except PyreqwestError as error:
            raise NotReached(f"{self._url} did not answer: {_explain(error)}") from None

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """Yield the parts of an answer of any size."""
        async with self._open(path, {}) as reader:
            async for part in _read_parts(reader):
                yield part

    async def stream(self, path: str, after: int | None) -> AsyncIterator[bytes]:
        """Yield the data of the events of a stream, until it ends."""
        async with self._open(
            path, {} if after is None else {"last-event-id": str(after)}
        ) as reader:
            async for data in _read_events(reader):
                yield data

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    @asynccontextmanager
    async def _open(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[ResponseBodyReader]:
        request = await self._prepare("GET", path, headers, {})
        streamed = request.streamed_read_buffer_limit(0).build_streamed()
        try:
            async with AsyncExitStack() as stack:
                response = await end_if_cancelled(stack.enter_async_context(streamed))
                if response.status >= _ERRORS_FROM:
                    body = bytes(await response.body_reader.bytes())
                    raise read_error(response.status, response.get_header("retry-after"), body)
                yield response.body_reader
        except (PyreqwestError, TimeoutError) as error:
            raise NotReached(f"The stream broke off: {_explain(error)}") from None

    async def _prepare(
        self, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, object]
    ) -> RequestBuilder:
        request = self._client.request(method, self._url + path)
        given = {name: _text(each) for name, each in query.items() if each is not None}
        request = request.query(given) if given else request
        # One by one: the error of `headers` would show a key that no header can have.
        for name, text in {
            "authorization": f"Bearer {await self._credential()}",
            **headers,
        }.items():
            request = request.header(name, text)
        return request


class HttpClient:
    """What the asyncio clients have in common: a server, a caller, and `close`."""

    def __init__(
        self,
        url: str,
        credential: Credential,
        *,
        attempts: int = ATTEMPTS,
        timeout_s: float = TIMEOUT_S,
        ca: bytes | None = None,
        use_proxy: bool = True,
    ) -> None:
        client = _build(ca, use_proxy=use_proxy)
        self._http = Http(url, credential, client, attempts=attempts, timeout_s=timeout_s)

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


def _decode(answer: Answer, returns: type[T]) -> T:
    if not answer.is_success:
        raise read_error(answer.status, answer.headers.get("retry-after"), answer.body)
    try:
        return msgspec.json.decode(answer.body or b"null", type=returns)
    except msgspec.DecodeError:
        raise read_error(answer.status, None, b"") from None


async def _read_parts(reader: ResponseBodyReader) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(_SILENCE_S):
            part = await end_if_cancelled(reader.read_chunk())
        if part is None:
            return
        yield bytes(part)


async def _read_events(reader: ResponseBodyReader) -> AsyncIterator[bytes]:
    text = b""
    async for part in _read_parts(reader):
        *events, text = (text + part).split(b"\n\n")
        if len(text) > _EVENT_LIMIT_BYTES:
            raise NotReached("The stream is not one of Clarion.")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    yield line.removeprefix(b"data: ")


def _build(ca: bytes | None, *, use_proxy: bool) -> Client:
    builder = ClientBuilder().follow_redirects(enable=False).user_agent("clarion-client")
    if ca is not None:
        builder = builder.add_root_certificate_pem(ca)
    return (builder if use_proxy else builder.no_proxy()).build()


@atexit.register
def wait_for_callbacks(longest_s: float = _CALLBACK_S) -> None:
    """Wait until threads of pyreqwest run no Python code: one that does would abort the process.

    Such a thread has just reported a result to an event loop. Where the interpreter ends before it
    returns, CPython before 3.14 unwinds it, and its Rust code does not survive that.
    """
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        if not set(sys._current_frames()) - {each.ident for each in threading.enumerate()}:  # noqa: SLF001 - the only list of threads that Python did not start
            return
        time.sleep(0.001)


def _text(value: object) -> Any:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _explain(error: Exception) -> str:
    """Return what failed, on one line."""
    if isinstance(error, DetailedPyreqwestError):
        # The first cause repeats the URL.
        causes = [each["message"] for each in (error.details["causes"] or [])[1:]]
        return " ".join(": ".join(causes or [str(error.args[0])]).split())
    silence = f"nothing arrived for {_SILENCE_S:.0f} s"
    return silence if isinstance(error, TimeoutError) else str(error) or type(error).__name__
