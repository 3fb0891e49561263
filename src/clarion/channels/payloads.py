"""The payload of a push: one JSON object for our own gateway and Apple, and what all of them share.

A payload is never larger than its limit. What does not fit is left out, the least important part
first: the data, the image, long links; then the body is shortened, and then the title.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec

from clarion.catalog.model import Priority
from clarion.channels.model import OutgoingMessage
from clarion.events.model import Event

PAYLOAD_LIMIT_BYTES = 4096
# Room for the names and ids of a payload, for a type of 100 characters, and for its links.
SMALLEST_LIMIT_BYTES = 3072
# In a payload that is too large, a longer link or thread would leave little of the text.
LONG_BYTES = 512
_COLLAPSE_ID_LENGTH = 32
_ELLIPSIS = "…"
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_MARKS = frozenset({"Mn", "Me", "Mc"})
_PRIORITIES = {Priority.CRITICAL: 10, Priority.HIGH: 10, Priority.MEDIUM: 5, Priority.LOW: 1}
_encode = msgspec.json.Encoder().encode


class PushContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a push, before it is put into the format of a push service."""

    notification_id: str = ""  # a message to a topic is part of none
    event_id: str
    type: str
    category: str
    priority: Priority
    title: str | None
    body: str
    thread: str | None = None
    deeplink: str | None = None
    image_url: str | None = None
    count: int = 1
    data: dict[str, object] | None = None
    truncated: bool = False


class _Alert(msgspec.Struct, omit_defaults=True):
    body: str
    title: str | None = None


class _Aps(msgspec.Struct, omit_defaults=True, rename="kebab"):
    alert: _Alert
    category: str
    thread_id: str | None = None
    sound: str | None = None
    interruption_level: str | None = None
    mutable_content: int | None = None


class _Payload(msgspec.Struct, omit_defaults=True, kw_only=True):
    aps: _Aps
    notification_id: str = ""
    event_id: str
    type: str
    category: str
    deeplink: str | None = None
    image_url: str | None = None
    count: int = 1
    data: dict[str, object] | None = None
    truncated: bool = False


def build_push_payload(message: OutgoingMessage, limit: int = PAYLOAD_LIMIT_BYTES) -> bytes:
    """Return the payload for a device of our own gateway or of Apple, at most `limit` bytes.

    `limit` is at least 3,072.
    """
    return fit(content_of(message), _encode_payload, limit)


def build_topic_payload(event: Event, category: str) -> bytes:
    """Return the payload of a topic message: the publication, shortened to fit."""
    data = event.content.data
    content = PushContent(
        event_id=event.id,
        type=event.type,
        category=category,
        priority=event.priority,
        title=str(data["title"]),
        body=str(data["message"]),
        thread=event.audience.topic,
        deeplink=event.content.deeplink,
        data={name: data[name] for name in ("topic", "tags") if name in data},
    )
    return fit(content, _encode_payload, PAYLOAD_LIMIT_BYTES)


def apns_priority(priority: Priority) -> int:
    """Return the priority as APNs has it: 10 at once, 5 with regard to power, 1 no wake-up."""
    return _PRIORITIES[priority]


def collapse_id(message: OutgoingMessage) -> str | None:
    """Return an id for pushes that replace each other; None if this one replaces none.

    A hash: an app's key may be longer than the 64 bytes of APNs, and should not be disclosed.
    """
    notification = message.notification
    key = notification.content.collapse_key
    return None if key is None else _hash(f"{notification.type}\0{key}")


# An event has one key for all its recipients.
@lru_cache(256)
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_COLLAPSE_ID_LENGTH]


def content_of(message: OutgoingMessage) -> PushContent:
    """Return all that a push can say."""
    notification, content = message.notification, message.notification.content
    return PushContent(
        notification_id=notification.id,
        event_id=notification.event_id,
        type=notification.type,
        category=notification.category,
        priority=notification.priority,
        title=message.subject or None,
        body=message.body,
        thread=content.target.id if content.target else None,
        deeplink=content.deeplink,
        image_url=content.image_url,
        count=message.count,
        data=content.data or None,
    )


def fit(content: PushContent, encode: Callable[[PushContent], bytes], limit: int) -> bytes:
    """Encode a content, or as much of it as fits into the limit."""
    encoded = encode(content)
    if len(encoded) <= limit:
        return encoded
    for smaller in _shrink(content):
        content = smaller
        encoded = encode(content)
        if len(encoded) <= limit:
            return encoded
    for field in ("body", "title"):
        text = getattr(content, field)
        if text and len(encoded) > limit:
            content = _shorten(content, field, text, len(encoded) - limit)
            encoded = encode(content)
    return encoded


def _encode_payload(content: PushContent) -> bytes:
    is_quiet = content.priority is Priority.LOW
    aps = _Aps(
        alert=_Alert(content.body, content.title),
        category=content.type,
        thread_id=content.thread,
        sound=None if is_quiet else "default",
        interruption_level="passive" if is_quiet else None,
        # Lets an extension of the app load the image before the push is shown.
        mutable_content=1 if content.image_url else None,
    )
    payload = _Payload(
        aps=aps,
        notification_id=content.notification_id,
        event_id=content.event_id,
        type=content.type,
        category=content.category,
        deeplink=content.deeplink,
        image_url=content.image_url,
        count=content.count,
        data=content.data,
        truncated=content.truncated,
    )
    return _encode(payload)


def _shrink(content: PushContent) -> Iterator[PushContent]:
    """Yield the content with fewer and fewer fields around its text."""
    replace = msgspec.structs.replace
    content = replace(content, data=None, truncated=True)
    yield content
    content = replace(content, image_url=None)
    yield content
    for field in ("deeplink", "thread"):
        if _size(getattr(content, field) or "") > LONG_BYTES:
            content = replace(content, **{field: None})
            yield content


def _shorten(content: PushContent, field: str, text: str, excess: int) -> PushContent:
    """Shorten a text by at least a number of bytes of JSON, if it has that many."""
    room = max(_size(text) - excess, _size(_ELLIPSIS))
    return msgspec.structs.replace(content, **{field: _cut(text, room)})


def _cut(text: str, room: int) -> str:
    """Return the beginning of a text with an ellipsis, at most `room` bytes of JSON in all."""
    fits, too_long = 0, min(len(text), room)  # a character has at least one byte
    while fits < too_long:
        middle = (fits + too_long + 1) // 2
        if _size(text[:middle] + _ELLIPSIS) <= room:
            fits = middle
        else:
            too_long = middle - 1
    while 0 < fits < len(text) and _belongs_together(text[fits - 1], text[fits]):
        fits -= 1
    return text[:fits] + _ELLIPSIS


def _belongs_together(before: str, after: str) -> bool:
    """Whether two characters are shown as one: an accent, or parts of an emoji."""
    return (
        _JOINER in (before, after)
        or ord(after) in _SKIN_TONES
        or unicodedata.category(after) in _MARKS
    )


def _size(text: str) -> int:
    return len(_encode(text))
