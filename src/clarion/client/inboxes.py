"""One user's inbox, with their token."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from .errors import ApiError, NotReached
from .http import HttpClient, is_temporary, wait_s
from .model import Notification, NotificationPage, UnreadCount, Update

Token = str | Callable[[], str | Awaitable[str]]


class _Categories(msgspec.Struct):
    items: tuple[dict[str, Any], ...]


_decode = msgspec.json.Decoder(Update).decode


class AsyncInbox(HttpClient):
    """A user's inbox, preferences and live updates.

    `token` is a user token, or a function that returns one, called for each request: so an expired
    one is replaced. Options as for `AsyncClarion`.
    """

    def __init__(self, url: str, *, token: Token, **options: Any) -> None:
        async def credential() -> str:
            found = token() if callable(token) else token
            return await found if inspect.isawaitable(found) else found

        super().__init__(url, credential, **options)

    async def list(
        self,
        *,
        unread: bool | None = None,
        category: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> NotificationPage:
        """Return a page of the inbox, newest first; `after` is the `next` of the page before."""
        query = {"unread": unread, "category": category, "limit": limit, "after": after}
        return await self._http.request(
            "GET", "/v1/me/notifications", returns=NotificationPage, query=query
        )

    async def unread_count(self) -> UnreadCount:
        """Return how many notifications are unread."""
        return await self._http.request("GET", "/v1/me/unread-count", returns=UnreadCount)

    async def read(self, notification_id: str) -> Notification:
        """Mark a notification as read."""
        return await self._act(notification_id, "read")

    async def unread(self, notification_id: str) -> Notification:
        """Mark a notification as unread."""
        return await self._act(notification_id, "unread")

    async def dismiss(self, notification_id: str) -> Notification:
        """Remove a notification from the list, permanently."""
        return await self._act(notification_id, "dismiss")

    async def click(self, notification_id: str) -> Notification:
        """Record that the user clicked a notification; it counts once."""
        return await self._act(notification_id, "click")

    async def read_all(self) -> UnreadCount:
        """Mark all notifications as read."""
        path = "/v1/me/notifications/read-all"
        return await self._http.request("POST", path, returns=UnreadCount, is_repeatable=True)

    async def preferences(self, *, explain: bool | None = None) -> dict[str, Any]:
        """Return what the user has set, with defaults for the rest.

        With `explain`, each value comes with its source.
        """
        return await self._http.request(
            "GET", "/v1/me/preferences", returns=dict[str, Any], query={"explain": explain}
        )

    async def change_preferences(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change some of the preferences."""
        path = "/v1/me/preferences"
        return await self._http.request(
            "PATCH", path, changes, returns=dict[str, Any], is_repeatable=True
        )

    async def categories(self) -> tuple[dict[str, Any], ...]:
        """Return the categories that the preferences have, each with its name and title."""
        path, query = "/v1/categories", {"limit": 100}
        page = await self._http.request("GET", path, returns=_Categories, query=query)
        return page.items

    async def updates(self, *, after: int | None = None) -> AsyncIterator[Update]:
        """Yield every change of the inbox, until the token is refused.

        The stream reconnects automatically and resumes after the last change, so that none is
        missed. `after` is the `sequence` of a list that was loaded before.
        """
        last, failures = after, 0
        while True:
            error: ApiError | NotReached = NotReached("The stream ended.")
            try:
                async for data in self._http.stream("/v1/me/stream", last):
                    update = _decode(data)
                    failures = 0
                    last = last if update.sequence is None else update.sequence
                    yield update
            except (ApiError, NotReached) as broken:
                if not is_temporary(broken):
                    raise
                error = broken
            await asyncio.sleep(wait_s(error, failures))
            failures += 1

    async def _act(self, notification_id: str, action: str) -> Notification:
        path = f"/v1/me/notifications/{quote(notification_id, safe='')}/{action}"
        return await self._http.request("POST", path, returns=Notification, is_repeatable=True)
