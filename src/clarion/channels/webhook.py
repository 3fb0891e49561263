"""Webhooks as in the Standard Webhooks specification 1.0.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from clarion.catalog.model import Channel
from clarion.channels.answers import Action, Answer, AnswerTable
from clarion.channels.http_clients import HttpAnswer, ProviderRequest
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import Configuration, Outcome, OutgoingMessage
from clarion.channels.networks import EVERY_NETWORK
from clarion.channels.port import SenderContext
from clarion.channels.provider_requests import HTTP_NETWORK, post
from clarion.channels.targets import check_url
from clarion.clock import to_rfc3339
from clarion.errors import FieldFault
from clarion.telemetry.traces import make_headers

# How long the secret before the present one signs, too.
ROTATION_MS = 24 * 60 * 60 * 1000
_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)  # as the specification says
_MADE_BYTES = 32
_TIME_DIGITS = 15
# The body of a response is not used. Reading a short one keeps the connection.
_REPLY_LIMIT_BYTES = 4096

ANSWERS = AnswerTable(
    Answer("2xx", Action.DELIVERED, "The endpoint took the message."),
    Answer("410", Action.GONE, "The endpoint is gone."),
    Answer("429", Action.RETRY, "Too many messages; after `Retry-After`, if given."),
    Answer("503", Action.RETRY, "Not available; after `Retry-After`, if given."),
    Answer("3xx", Action.RETRY, "Redirects are not followed."),
    Answer("4xx", Action.RETRY, "Refused."),
    Answer("5xx", Action.RETRY, "Failed."),
    *HTTP_NETWORK,
    default=Action.RETRY,
)


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages go; `types` are those of the notifications, all if there are none."""

    url: str
    types: tuple[str, ...] = ()


class WebhookSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret, and the one before it, which signs until `previous_until` (milliseconds)."""

    secret: str
    previous_secret: str = ""
    previous_until: str = "0"


class WebhookSender:
    """The `Sender` port."""

    def __init__(
        self, given: Configuration[WebhookSettings, WebhookSecrets], context: SenderContext
    ) -> None:
        self._url = given.settings.url
        self._timeout_s = given.timeout_s
        self._context = context
        self._key = read_secret(given.secrets.secret)
        previous = given.secrets.previous_secret
        self._previous_key = read_secret(previous) if previous else None
        self._previous_until = int(given.secrets.previous_until)

    async def send(self, message: OutgoingMessage) -> Outcome:
        body = encode(message)
        now = self._context.clock.now()
        request = ProviderRequest(
            self._url,
            self._sign(message.id, now, body),
            body,
            self._timeout_s,
            limit_bytes=_REPLY_LIMIT_BYTES,
        )
        answer = await post(self._context.http, request, ANSWERS)
        if not isinstance(answer, HttpAnswer):
            return answer
        status = f"HTTP {answer.status}"
        after = answer.read_retry_after(now)
        return ANSWERS.judge(answer.codes, status, retry_after=after, response=status)

    async def close(self) -> None:
        """The connections are those of all senders."""

    def _sign(self, id_: str, now: int, body: bytes) -> Mapping[str, str]:
        keys = [self._key]
        if self._previous_key and now < self._previous_until:
            keys.append(self._previous_key)
        return {
            "content-type": "application/json",
            "webhook-id": id_,
            "webhook-timestamp": str(now // 1000),
            "webhook-signature": " ".join(sign(key, id_, now // 1000, body) for key in keys),
            **make_headers(),
        }


def encode(message: OutgoingMessage) -> bytes:
    """Return the body of a message: the same for every attempt."""
    notification = message.notification
    content = notification.content
    data = {
        "notification_id": notification.id,
        "event_id": notification.event_id,
        "user_id": notification.user_id,
        "type": notification.type,
        "category": notification.category,
        "title": message.subject,
        "body": message.body,
        "deeplink": content.deeplink,
        "data": content.data,
    }
    timestamp = to_rfc3339(notification.created_at)
    return msgspec.json.encode({"type": "notification", "timestamp": timestamp, "data": data})


def sign(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    """Return one signature of a message, with its version."""
    signed = f"{id_}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def make_secret() -> str:
    """Return a new random secret."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_MADE_BYTES)).decode()


def read_secret(text: str) -> bytes:
    """Return the key of a secret; `ValueError` with the reason if it is not valid."""
    encoded = text.removeprefix(_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or len(key) not in _SECRET_BYTES:
        raise ValueError("must be whsec_ and 24 to 64 bytes in base64")
    return key


def _find_faults(settings: WebhookSettings, given: WebhookSecrets) -> Iterator[FieldFault]:
    # Only the guard knows the private networks that are allowed: see `list_urls`.
    yield from _find_fault("settings.url", partial(check_url, allowed=EVERY_NETWORK), settings.url)
    yield from _find_fault("secrets.secret", read_secret, given.secret)
    if given.previous_secret:
        yield from _find_fault("secrets.previous_secret", read_secret, given.previous_secret)
    yield from _find_fault("secrets.previous_until", _read_time, given.previous_until)


def _find_fault(field: str, check: Callable[[str], object], value: str) -> Iterator[FieldFault]:
    try:
        check(value)
    except ValueError as error:
        yield FieldFault(field, str(error))


def _read_time(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _TIME_DIGITS):
        raise ValueError("must be a number of milliseconds since 1970")
    return int(text)


def _rotate(old: dict[str, str], given: dict[str, str], now: int) -> dict[str, str]:
    if given.get("secret", old["secret"]) == old["secret"]:
        return old | given
    previous = {"previous_secret": old["secret"], "previous_until": str(now + ROTATION_MS)}
    return old | previous | given


WEBHOOK = ProviderKind(
    name="webhook",
    channels=frozenset({Channel.WEBHOOK}),
    open=WebhookSender,
    answers=ANSWERS,
    settings=WebhookSettings,
    secrets=WebhookSecrets,
    find_faults=_find_faults,
    complete=lambda given: {"secret": make_secret()} | given,
    rotate=_rotate,
    list_urls=lambda settings: {"settings.url": settings.url},
    takes=lambda settings, type_: not settings.types or type_ in settings.types,
    shown_once=frozenset({"secret"}),
)
