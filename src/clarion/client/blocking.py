"""The same clients for programs without asyncio: each call blocks until its answer is here.

The asyncio clients do the work, on an event loop in a thread of its own. Several threads may share
a client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from clarion.client.apps import AsyncClarion
from clarion.client.http import Answer, HttpClient
from clarion.client.inboxes import AsyncInbox, Token
from clarion.client.model import (
    AcceptedEvent,
    BatchResult,
    Notification,
    NotificationPage,
    Published,
    UnreadCount,
    Update,
)

T = TypeVar("T")


class _Blocking:
    """Runs an event loop in a thread until `close`."""

    _client: HttpClient

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


class Clarion(_Blocking):
    """Sends events, and calls the rest of the API; see `AsyncClarion`."""

    def __init__(self, url: str, *, api_key: str, **options: Any) -> None:
        super().__init__()
        self._client: AsyncClarion = AsyncClarion(url, api_key=api_key, **options)

    def send(
        self, type_name: str, *, to: str | Sequence[str] | Mapping[str, Any], **fields: Any
    ) -> AcceptedEvent:
        """Send an event. It is accepted once, also if the request has to be repeated."""
        return self._run(self._client.send(type_name, to=to, **fields))

    def send_batch(
        self, events: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> tuple[BatchResult, ...]:
        """Send up to 1,000 events; return what became of each, in order."""
        return self._run(self._client.send_batch(events, idempotency_key=idempotency_key))

    def publish(self, topic: str, message: str = "", **fields: Any) -> Published:
        """Send a text to the devices and the people that follow a topic, once."""
        return self._run(self._client.publish(topic, message, **fields))

    def request(
        self, method: str, path: str, body: object = None, *, returns: type[T], **options: Any
    ) -> T:
        """Call any operation: `clarion.request("GET", "/v1/types", returns=dict)`."""
        return self._run(self._client.request(method, path, body, returns=returns, **options))

    def call(self, method: str, path: str, body: bytes = b"", **options: Any) -> Answer:
        """Send a request once, as it is, and return its answer, with any status."""
        return self._run(self._client.call(method, path, body, **options))

    def download(self, path: str) -> Iterator[bytes]:
        """Yield the parts of an answer of any size, such as the export of a user."""
        return self._iterate(self._client.download(path))


class Inbox(_Blocking):
    """A user's inbox, preferences and live updates; see `AsyncInbox`."""

    def __init__(self, url: str, *, token: Token, **options: Any) -> None:
        super().__init__()
        self._client: AsyncInbox = AsyncInbox(url, token=token, **options)

    def list(self, **filters: Any) -> NotificationPage:
        """Return a page of the inbox, newest first."""
        return self._run(self._client.list(**filters))

    def unread_count(self) -> UnreadCount:
        """Return how many notifications are unread."""
        return self._run(self._client.unread_count())

    def read(self, notification_id: str) -> Notification:
        """Mark a notification as read."""
        return self._run(self._client.read(notification_id))

    def unread(self, notification_id: str) -> Notification:
        """Mark a notification as unread."""
        return self._run(self._client.unread(notification_id))

    def dismiss(self, notification_id: str) -> Notification:
        """Remove a notification from the list, permanently."""
        return self._run(self._client.dismiss(notification_id))

    def click(self, notification_id: str) -> Notification:
        """Record that the user clicked a notification; it counts once."""
        return self._run(self._client.click(notification_id))

    def read_all(self) -> UnreadCount:
        """Mark all notifications as read."""
        return self._run(self._client.read_all())

    def preferences(self) -> dict[str, Any]:
        """Return what the user has set, with defaults for the rest."""
        return self._run(self._client.preferences())

    def change_preferences(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change some of the preferences."""
        return self._run(self._client.change_preferences(changes))

    def categories(self) -> tuple[dict[str, Any], ...]:
        """Return the categories that the preferences have, each with its name and title."""
        return self._run(self._client.categories())

    def updates(self, *, after: int | None = None) -> Iterator[Update]:
        """Yield every change of the inbox, until the token is refused; it reconnects by itself."""
        return self._iterate(self._client.updates(after=after))


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[T]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()
