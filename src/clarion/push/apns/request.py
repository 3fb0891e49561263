"""Parses a provider's request into a valid push, or raises `Rejected`. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from functools import lru_cache

import msgspec

from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.model import MessageContent, PushPriority, hash_token

PAYLOAD_LIMIT_BYTES = 4096
LARGE_PAYLOAD_LIMIT_BYTES = 5120
COLLAPSE_ID_LIMIT_BYTES = 64
DEPTH_LIMIT = 100
MAX_TTL_MS = 30 * 24 * 3600 * 1000
# For a message that is not stored: how long the device may take to acknowledge it.
ATTEMPT_MS = 60_000

_UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TOKEN = re.compile(r"[0-9a-fA-F]{32,256}")
_TOPIC = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_EXPIRATION = re.compile(rb"\d{1,12}")
# The strings of a JSON text, and the brackets between them.
_STRUCTURE = re.compile(rb'"(?:[^"\\]+|\\.)*"|[\[\]{}]')
# What follows the bundle id in the topic, by push type.
SUFFIXES = {
    "alert": "",
    "background": "",
    "complication": ".complication",
    "controls": ".push-type.controls",
    "fileprovider": ".pushkit.fileprovider",
    "liveactivity": ".push-type.liveactivity",
    "location": ".location-query",
    "mdm": "",
    "pushtotalk": ".voip-ptt",
    "voip": ".voip",
    "widgets": ".push-type.widgets",
}
_PRIORITIES = {b"%d" % priority: priority for priority in PushPriority}
# Headers that a proxy or client may repeat.
_REPEATABLE = {b"cookie"}
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Push(MessageContent, frozen=True, kw_only=True):
    """A valid push to one device."""

    id: str | None
    token_hash: bytes
    bundle_id: str


def check_repeated(raw: Sequence[tuple[bytes, bytes]], headers: Sized) -> None:
    """Reject a request with a header that is given twice; `headers` has each name once."""
    if len(headers) != len(raw):
        names = [name for name, _ in raw if name not in _REPEATABLE]
        if len(names) != len(set(names)):
            raise Rejected(Reason.DUPLICATE_HEADERS)


def read_id(headers: Mapping[bytes, bytes], name: bytes = b"apns-id") -> str | None:
    """Return the id that the provider gave; it is echoed unchanged."""
    given = headers.get(name)
    if given is None:
        return None
    if not _UUID.fullmatch(given):
        raise Rejected(Reason.BAD_MESSAGE_ID)
    return given.decode()


def parse_push(headers: Mapping[bytes, bytes], token: str, body: bytes, now: int) -> Push:
    """Check a push in the order that docs/reference/apns.md gives."""
    push_id = read_id(headers)
    token_hash = _read_token(token)
    push_type = read_push_type(headers)
    bundle_id, payload_limit = _read_topic(headers.get(b"apns-topic", b""), push_type)
    is_stored, expires_at = read_expiration(headers, now)
    return Push(
        id=push_id,
        token_hash=token_hash,
        bundle_id=bundle_id,
        priority=read_priority(headers, push_type),
        collapse_id=_read_collapse_id(headers),
        is_stored=is_stored,
        expires_at=expires_at,
        payload=check_payload(body, payload_limit),
    )


def _read_token(token: str) -> bytes:
    if not token:
        raise Rejected(Reason.MISSING_DEVICE_TOKEN)
    if not _TOKEN.fullmatch(token) or len(token) % 2:
        raise Rejected(Reason.BAD_DEVICE_TOKEN)
    return hash_token(token)


def read_push_type(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the push type, or None if it is not given."""
    given = headers.get(b"apns-push-type")
    if given is None:
        return None
    push_type = given.decode("latin-1").lower()
    if push_type not in SUFFIXES:
        raise Rejected(Reason.INVALID_PUSH_TYPE)
    return push_type


@lru_cache(maxsize=1024)  # a provider sends the same few topics repeatedly
def _read_topic(topic: bytes, push_type: str | None) -> tuple[str, int]:
    """Return the bundle id in a topic, and the size limit of the payload."""
    given = topic.decode("latin-1")
    if not given:
        raise Rejected(Reason.MISSING_TOPIC)
    if not _TOPIC.fullmatch(given):
        raise Rejected(Reason.BAD_TOPIC)
    if push_type is not None:
        suffix = SUFFIXES[push_type]
        if not given.endswith(suffix):
            raise Rejected(Reason.BAD_TOPIC)
    else:
        # The suffix implies the push type.
        known = (suffix for suffix in SUFFIXES.values() if suffix and given.endswith(suffix))
        suffix = next(known, "")
    is_large = suffix == SUFFIXES["voip"]
    limit = LARGE_PAYLOAD_LIMIT_BYTES if is_large else PAYLOAD_LIMIT_BYTES
    return given.removesuffix(suffix), limit


def read_priority(headers: Mapping[bytes, bytes], push_type: str | None = None) -> PushPriority:
    """Return the priority: 10 by default; background pushes have 5 by default and never 10."""
    given = headers.get(b"apns-priority")
    if given is None:
        return PushPriority.CONSIDERATE if push_type == "background" else PushPriority.IMMEDIATE
    priority = _PRIORITIES.get(given)
    if priority is None or (push_type == "background" and priority is PushPriority.IMMEDIATE):
        raise Rejected(Reason.BAD_PRIORITY)
    return priority


def read_expiration(headers: Mapping[bytes, bytes], now: int) -> tuple[bool, int]:
    """Return whether to store the message, and when it expires.

    Without the header it expires after 30 days, which is also the maximum. Zero, or a time in the
    past, means one attempt without storing.
    """
    given = headers.get(b"apns-expiration")
    if given is None:
        return True, now + MAX_TTL_MS
    if not _EXPIRATION.fullmatch(given):
        raise Rejected(Reason.BAD_EXPIRATION_DATE)
    expires_at = int(given) * 1000
    if expires_at <= now:
        return False, now + ATTEMPT_MS
    return True, min(expires_at, now + MAX_TTL_MS)


def _read_collapse_id(headers: Mapping[bytes, bytes]) -> str | None:
    given = headers.get(b"apns-collapse-id")
    if given is None:
        return None
    if not 0 < len(given) <= COLLAPSE_ID_LIMIT_BYTES:
        raise Rejected(Reason.BAD_COLLAPSE_ID)
    return given.decode("utf-8", "replace")


def check_payload(body: bytes, limit: int) -> bytes:
    """Return the payload if it is a JSON object that is neither empty nor too large."""
    if not body:
        raise Rejected(Reason.PAYLOAD_EMPTY)
    if len(body) > limit:
        raise Rejected(Reason.PAYLOAD_TOO_LARGE)
    try:
        # Devices get it unchanged in a text frame: invalid UTF-8 would close the connection,
        # every time they connect. The decoder does not check raw values for that.
        body.decode()
        payload = _decode_object(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Rejected(Reason.PAYLOAD_EMPTY) from error
    if not payload or _is_deep(body):
        raise Rejected(Reason.PAYLOAD_EMPTY)
    return body


def _is_deep(body: bytes) -> bool:
    """Return whether it is nested so deeply that the parser of a device might fail."""
    if body.count(b"{") + body.count(b"[") <= DEPTH_LIMIT:
        return False
    depth = deepest = 0
    for part in _STRUCTURE.findall(body):
        depth += 1 if part in (b"{", b"[") else -1 if part in (b"}", b"]") else 0
        deepest = max(depth, deepest)
    return deepest > DEPTH_LIMIT
