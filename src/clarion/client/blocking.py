"""The same clients for programs without asyncio: each call blocks until it has its answer.

The asyncio clients do the work, on an event loop in a thread of its own. Several threads may share
a client.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from .apps import AsyncClarion
from .errors import ApiError, NotReached
from .http import HttpClient
from .inboxes import AsyncInbox, Token

C = TypeVar("C", bound=HttpClient)
P = ParamSpec("P")
T = TypeVar("T")


class _Blocking(Generic[C]):
    """Runs an event loop in a thread until `close`."""

    _client: C

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The client cannot be used any more."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                try:
                    yield self._run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_closed():
                self._run(_close(items))


def _block(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[C], P], T]:
    """Return a method that blocks until the asyncio client has done the same."""

    @functools.wraps(method)
    def call(self: _Blocking[C], /, *args: P.args, **options: P.kwargs) -> T:
        try:
            return self._run(method(self._client, *args, **options))
        except (ApiError, NotReached) as error:
            # The reader needs the line that made the request, not the frames of another thread.
            raise error.with_traceback(None) from None

    return call


def _block_each(
    method: Callable[Concatenate[C, P], AsyncIterator[T]],
) -> Callable[Concatenate[_Blocking[C], P], Iterator[T]]:
    """Return a method that yields what the asyncio client yields."""

    @functools.wraps(method)
    def call(self: _Blocking[C], /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return self._iterate(method(self._client, *args, **options))

    return call


class Clarion(_Blocking[AsyncClarion]):
    """Sends events, and calls the rest of the API; see `AsyncClarion`."""

    def __init__(self, url: str, *, api_key: str, **options: Any) -> None:
        super().__init__()
        self._client = AsyncClarion(url, api_key=api_key, **options)

    send = _block(AsyncClarion.send)
    send_batch = _block(AsyncClarion.send_batch)
    publish = _block(AsyncClarion.publish)
    explain = _block(AsyncClarion.explain)
    get_event = _block(AsyncClarion.get_event)
    cancel_event = _block(AsyncClarion.cancel_event)
    put_user = _block(AsyncClarion.put_user)
    get_user = _block(AsyncClarion.get_user)
    get_timeline = _block(AsyncClarion.get_timeline)
    request = _block(AsyncClarion.request)
    call = _block(AsyncClarion.call)
    download = _block_each(AsyncClarion.download)


class Inbox(_Blocking[AsyncInbox]):
    """A user's inbox, preferences and live updates; see `AsyncInbox`."""

    def __init__(self, url: str, *, token: Token, **options: Any) -> None:
        super().__init__()
        self._client = AsyncInbox(url, token=token, **options)

    list = _block(AsyncInbox.list)
    unread_count = _block(AsyncInbox.unread_count)
    read = _block(AsyncInbox.read)
    unread = _block(AsyncInbox.unread)
    dismiss = _block(AsyncInbox.dismiss)
    click = _block(AsyncInbox.click)
    read_all = _block(AsyncInbox.read_all)
    preferences = _block(AsyncInbox.preferences)
    change_preferences = _block(AsyncInbox.change_preferences)
    categories = _block(AsyncInbox.categories)
    updates = _block_each(AsyncInbox.updates)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[T]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()
