"""Web Push: messages to browsers, by the push service that each browser has chosen.

The URL of a subscription is the user's own choice, so one refusal says nothing of the others: no
answer disables the provider.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import jwt
import msgspec

from clarion.catalog.model import Channel, Priority
from clarion.channels.answers import NETWORK, NO_ANSWER, NOT_CONNECTED, Action, Answer, AnswerTable
from clarion.channels.http_clients import HttpAnswer, NoAnswer, NotConnected, ProviderRequest
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import Address, Configuration, Outcome, OutgoingMessage
from clarion.channels.port import SenderContext
from clarion.channels.targets import TargetRefused
from clarion.channels.web_push_encryption import PLAIN_LIMIT_BYTES, encrypt, read_subscription
from clarion.errors import FieldFault
from clarion.push.model.vapid import (
    new_private_key,
    origin_of,
    read_private_key,
    write_base64url,
    write_public_key,
)

# Push services keep messages for four weeks at most.
TTL_LIMIT_S = 28 * 24 * 3600
# RFC 8292 allows 24 hours; the clocks of others may be wrong.
TOKEN_LIFE_S = 12 * 3600
# There are about five push services, and those of UnifiedPush.
ORIGINS_LIMIT = 1_000
TITLE_LIMIT_BYTES = 512
# If less is left for the text, the image is left out.
BODY_LEAST_BYTES = 512
TEXT_LIMIT = 300
_TOPIC_BYTES = 24  # 32 characters
_SUBJECT = re.compile(r"mailto:[!-~]+@[!-~]+|https://[!-~]+")
_URGENCIES = {
    Priority.CRITICAL: "high",
    Priority.HIGH: "high",
    Priority.MEDIUM: "normal",
    Priority.LOW: "low",
}
_encode = msgspec.json.Encoder().encode

ANSWERS = AnswerTable(
    *NETWORK,
    Answer("200", Action.DELIVERED, "Accepted by the push service."),
    Answer("201", Action.DELIVERED, "Accepted by the push service."),
    Answer("202", Action.DELIVERED, "Accepted by the push service."),
    Answer("204", Action.DELIVERED, "Accepted by the push service."),
    Answer("404", Action.GONE, "The subscription does not exist."),
    Answer("410", Action.GONE, "The subscription has ended."),
    Answer("400", Action.REJECT, "The push service does not take the request."),
    Answer("401", Action.REJECT, "The subscription was made with another public key."),
    Answer("403", Action.REJECT, "The subscription was made with another public key."),
    Answer("413", Action.REJECT, "The message is too large for the push service."),
    Answer("408", Action.RETRY, "The push service did not get the request in time."),
    Answer("429", Action.RETRY, "Too many messages; after `Retry-After`."),
    Answer("5xx", Action.RETRY, "The push service has a fault; after `Retry-After`."),
    Answer("bad_subscription", Action.REJECT, "The device has no valid subscription."),
    Answer("target_refused", Action.REJECT, "The endpoint is in a private network."),
    default=Action.REJECT,
)


class WebPushSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contact for push services, should messages cause trouble."""

    subject: str


class WebPushSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The VAPID key. Without one, Clarion makes it; another one ends all subscriptions."""

    private_key: str = ""


class WebPushSender:
    """The `Sender` port."""

    def __init__(
        self, config: Configuration[WebPushSettings, WebPushSecrets], context: SenderContext
    ) -> None:
        self._context = context
        self._timeout_s = config.timeout_s
        self._tokens = VapidTokens(config.secrets.private_key, config.settings.subject)

    async def send(self, message: OutgoingMessage) -> Outcome:
        try:
            to = read_subscription(message.address.value)
        except ValueError as error:
            return ANSWERS.judge(["bad_subscription"], f"The subscription {error}.")
        now = self._context.clock.now()
        headers = make_headers(message, now)
        headers["authorization"] = self._tokens.get(to.endpoint, now)
        body = encrypt(make_payload(message), to)
        try:
            request = ProviderRequest(to.endpoint, headers, body, self._timeout_s)
            answer = await self._context.http.post(request)
        except TargetRefused as error:
            return ANSWERS.judge(["target_refused"], error.detail)
        except NotConnected as error:
            return ANSWERS.judge([NOT_CONNECTED], str(error))
        except NoAnswer as error:
            return ANSWERS.judge([NO_ANSWER], str(error))
        return _judge(answer, to.endpoint, now)

    async def close(self) -> None:
        """Nothing is to be closed: the connections are shared by all senders."""


class VapidTokens:
    """The tokens that identify this provider to push services (RFC 8292), by their origin."""

    def __init__(self, private_key: str, subject: str) -> None:
        self._key = read_private_key(private_key)
        self._public_key = write_public_key(self._key.public_key())
        self._subject = subject
        # By origin: when the token expires, in seconds, and the header.
        self._headers: dict[str, tuple[int, str]] = {}

    def get(self, endpoint: str, now: int) -> str:
        """Return the `Authorization` header for an endpoint; it holds for six hours at least."""
        origin, now_s = origin_of(endpoint), now // 1000
        expires_at, header = self._headers.get(origin, (0, ""))
        # Not too far ahead either: the clock may have been set back.
        if not TOKEN_LIFE_S // 2 <= expires_at - now_s <= TOKEN_LIFE_S:
            if len(self._headers) >= ORIGINS_LIMIT:
                self._headers.clear()
            expires_at = now_s + TOKEN_LIFE_S
            claims = {"aud": origin, "exp": expires_at, "sub": self._subject}
            token = jwt.encode(claims, self._key, algorithm="ES256")
            header = f"vapid t={token}, k={self._public_key}"
            self._headers[origin] = (expires_at, header)
        return header


def make_headers(message: OutgoingMessage, now: int) -> dict[str, str]:
    """Return the headers that say how the push service treats a message."""
    notification = message.notification
    expires_at, key = notification.expires_at, notification.content.collapse_key
    left_s = TTL_LIMIT_S if expires_at is None else max(0, (expires_at - now) // 1000)
    headers = {
        "ttl": str(min(left_s, TTL_LIMIT_S)),
        "urgency": _URGENCIES[notification.priority],
        "content-encoding": "aes128gcm",
        "content-type": "application/octet-stream",
    }
    if key is not None:
        # Hashed: the push service learns nothing of it, and it always fits.
        digest = hashlib.sha256(f"{notification.type}\0{key}".encode()).digest()
        headers["topic"] = write_base64url(digest[:_TOPIC_BYTES])
    return headers


def make_payload(message: OutgoingMessage) -> bytes:
    """Return what the service worker gets, as JSON: shortened if it would be too large."""
    notification = message.notification
    content = notification.content
    fields: dict[str, str] = {
        "id": message.id,
        "notification_id": notification.id,
        "event_id": notification.event_id,
        "type": notification.type,
        "body": "",
    }
    if message.subject is not None:
        fields["title"] = shorten(message.subject, TITLE_LIMIT_BYTES)
    links = {"deeplink": content.deeplink, "image_url": content.image_url}
    fields |= {name: link for name, link in links.items() if link is not None}
    needed = min(_size_of(message.body), BODY_LEAST_BYTES)
    for name in ("image_url", "deeplink"):
        if len(_encode(fields)) + needed > PLAIN_LIMIT_BYTES:
            fields.pop(name, None)
    fields["body"] = shorten(message.body, PLAIN_LIMIT_BYTES - len(_encode(fields)))
    return _encode(fields)


def shorten(text: str, limit: int) -> str:
    """Return a text that takes at most this many bytes in JSON; a shortened one ends with `…`."""
    if _size_of(text) <= limit:
        return text
    kept = text[:limit]
    while kept and (excess := _size_of(kept + "…") - limit) > 0:
        # A character takes six bytes at most, so this never cuts too much.
        kept = kept[: -max(1, excess // 6)]
    return f"{kept}…" if kept else ""


def _size_of(text: str) -> int:
    return len(_encode(text)) - 2


def _judge(answer: HttpAnswer, endpoint: str, now: int) -> Outcome:
    text = clean(answer.body.decode(errors="replace").replace(endpoint, "…"))
    return ANSWERS.judge(
        answer.codes,
        f"The push service answered {answer.status}" + (f": {text}" if text else "."),
        retry_after=answer.read_retry_after(now),
        response=str(answer.status),
    )


def clean(text: str) -> str:
    """Return the beginning of a text of someone else's, without control characters."""
    shown = "".join(each if each.isprintable() else " " for each in text[: 4 * TEXT_LIMIT])
    return " ".join(shown.split())[:TEXT_LIMIT]


def _find_faults(settings: WebPushSettings, secrets: WebPushSecrets) -> Iterator[FieldFault]:
    if not _SUBJECT.fullmatch(settings.subject) or len(settings.subject) > TEXT_LIMIT:
        reason = "must be like mailto:you@example.com or https://example.com/contact"
        yield FieldFault("settings.subject", reason)
    if secrets.private_key:
        try:
            read_private_key(secrets.private_key)
        except ValueError as error:
            yield FieldFault("secrets.private_key", str(error))


def _complete(secrets: dict[str, str]) -> dict[str, str]:
    if secrets.get("private_key"):
        return secrets
    return secrets | {"private_key": new_private_key()}


def _describe(_settings: WebPushSettings, secrets: WebPushSecrets) -> dict[str, str]:
    return {"public_key": write_public_key(read_private_key(secrets.private_key).public_key())}


def _find_origin(address: Address) -> str:
    """Return the push service of a device, since the failure of one says nothing about others."""
    try:
        return origin_of(read_subscription(address.value).endpoint)
    except ValueError:
        return ""


WEB_PUSH = ProviderKind(
    name="webpush",
    channels=frozenset({Channel.PUSH}),
    open=WebPushSender,
    answers=ANSWERS,
    settings=WebPushSettings,
    secrets=WebPushSecrets,
    platforms=frozenset({"web"}),
    find_faults=_find_faults,
    complete=_complete,
    describe=_describe,
    find_circuit=_find_origin,
)
