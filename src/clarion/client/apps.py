"""The API of one app, with an API key."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from .cancellation import end_if_cancelled
from .http import Answer, HttpClient
from .model import AcceptedEvent, BatchResult, Published

T = TypeVar("T")


class _Results(msgspec.Struct):
    results: tuple[BatchResult, ...]


class AsyncClarion(HttpClient):
    """Sends events, and calls the rest of the API.

    Options: `attempts` (5), `timeout_s` of each (30), `ca`, the certificate of the authority (PEM)
    of a server with a certificate of its own, and `use_proxy`: False ignores HTTP_PROXY and
    HTTPS_PROXY.
    """

    def __init__(self, url: str, *, api_key: str, **options: Any) -> None:
        async def credential() -> str:
            return api_key

        super().__init__(url, credential, **options)

    async def send(
        self,
        /,
        type_name: str,
        *,
        to: str | Sequence[str] | Mapping[str, Any],
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> AcceptedEvent:
        """Send an event. It is accepted once, also if the request has to be repeated.

        `to` is a user id, several, or a recipient as in the API: `{"topic": "news"}`. `fields` are
        those of an event: `data`, `actor`, `target`, `priority`, `channels`, `scheduled_at`, …
        """
        event = make_event(type_name, to, fields)
        key = idempotency_key or _new_key()
        return await self._http.request(
            "POST", "/v1/events", event, returns=AcceptedEvent, idempotency_key=key
        )

    async def send_batch(
        self, events: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> tuple[BatchResult, ...]:
        """Send up to 1,000 events (see `make_event`); return what became of each, in order."""
        key = idempotency_key or _new_key()
        answer = await self._http.request(
            "POST", "/v1/events/batch", list(events), returns=_Results, idempotency_key=key
        )
        return answer.results

    async def publish(
        self, /, topic: str, message: str = "", *, idempotency_key: str | None = None, **fields: Any
    ) -> Published:
        """Send a text to the devices and users of a topic, only once.

        `fields` are `title`, `priority` (1 to 5, or a name), `tags` (a list) and `click` (a link).
        """
        return await self._http.request(
            "POST",
            f"/v1/publish/{_quote(topic)}",
            {"message": message, **fields},
            returns=Published,
            idempotency_key=idempotency_key or _new_key(),
        )

    async def explain(
        self, /, type_name: str, *, to: str | Sequence[str] | Mapping[str, Any], **fields: Any
    ) -> dict[str, Any]:
        """Return what would become of an event: the verdict for each channel, with its reason."""
        return await self._http.request(
            "POST",
            "/v1/explain",
            make_event(type_name, to, fields),
            returns=dict[str, Any],
            is_repeatable=True,
        )

    async def get_event(self, event_id: str) -> dict[str, Any]:
        """Return an event with its current status."""
        return await self._get(f"/v1/events/{_quote(event_id)}")

    async def cancel_event(self, event_id: str) -> dict[str, Any]:
        """Cancel an event that is scheduled or not decided on yet."""
        return await self._http.request(
            "DELETE", f"/v1/events/{_quote(event_id)}", returns=dict[str, Any]
        )

    async def put_user(self, user_id: str, user: Mapping[str, Any]) -> dict[str, Any]:
        """Create or replace a user."""
        return await self._http.request(
            "PUT", f"/v1/users/{_quote(user_id)}", user, returns=dict[str, Any]
        )

    async def get_user(self, user_id: str) -> dict[str, Any]:
        """Return a user."""
        return await self._get(f"/v1/users/{_quote(user_id)}")

    async def get_timeline(self, notification_id: str) -> dict[str, Any]:
        """Return what happened to a notification, step by step, with the reasons."""
        return await self._get(f"/v1/notifications/{_quote(notification_id)}/timeline")

    async def request(
        self, /, method: str, path: str, body: object = None, *, returns: type[T], **options: Any
    ) -> T:
        """Call any operation, such as `request("GET", "/v1/types", returns=dict)`.

        Options: `query`, `idempotency_key`, and `is_repeatable` for a POST or PATCH that may be
        sent twice without harm. The others are repeated anyway when there is no answer.
        """
        return await self._http.request(method, path, body, returns=returns, **options)

    async def call(self, /, method: str, path: str, body: bytes = b"", **options: Any) -> Answer:
        """Send a request once, as it is, and return its answer, with any status.

        Options: `query`, and `headers`, with names in lower case.
        """
        return await end_if_cancelled(self._http.call(method, path, body, **options))

    def download(self, path: str) -> AsyncIterator[bytes]:
        """Yield the parts of an answer of any size, such as the export of a user."""
        return self._http.download(path)

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._http.request("GET", path, returns=dict[str, Any])


def make_event(
    type_name: str, to: str | Sequence[str] | Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an event as the API takes it."""
    recipient: Mapping[str, Any]
    if isinstance(to, str):
        recipient = {"user_id": to}
    elif isinstance(to, Mapping):
        recipient = to
    else:
        recipient = {"user_ids": list(to)}
    return {"type": type_name, "recipient": recipient, **fields}


def _quote(text: str) -> str:
    return quote(text, safe="")


def _new_key() -> str:
    return uuid.uuid4().hex
