"""Parses a Web Push request (RFC 8030) into a push, or raises `MalformedPush`. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from clarion.errors import MalformedPush
from clarion.push.apns.request import ATTEMPT_MS, MAX_TTL_MS, Push
from clarion.push.model import PushPriority
from clarion.push.model.vapid import write_base64url
from clarion.push.webpush.model import EndpointOfDevice
from clarion.push.webpush.signatures import read_parameter

BODY_LIMIT_BYTES = 4096
_TTL = re.compile(r"[0-9]{1,100}")
_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,32}")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]{1,128}={0,2}")
# A normal one is sent at once, like a high one: only the lower ones wait for a better moment.
PRIORITIES = {
    "high": PushPriority.IMMEDIATE,
    "normal": PushPriority.IMMEDIATE,
    "low": PushPriority.CONSIDERATE,
    "very-low": PushPriority.LOW,
}
_NAMES = (
    b"ttl",
    b"urgency",
    b"topic",
    b"content-encoding",
    b"encryption",
    b"crypto-key",
    b"authorization",
)
_encode = msgspec.json.Encoder().encode


class _Received(msgspec.Struct, omit_defaults=True):
    """The payload for a device: the unchanged body in base64url, and the values to decrypt it.

    The names are those of Mozilla's push service.
    """

    endpoint_id: str
    body: str
    encoding: str | None = None
    encryption: str | None = None
    crypto_key: str | None = None


class _Payload(msgspec.Struct):
    webpush: _Received


def read_endpoint_id(payload: bytes) -> str | None:
    """Return the endpoint of a stored message; None if it did not arrive through one."""
    try:
        return msgspec.json.decode(payload, type=_Payload).webpush.endpoint_id
    except (msgspec.DecodeError, RecursionError):
        return None


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that matter by name; each may be given once."""
    headers: dict[str, str] = {}
    for name, value in raw:
        if name in _NAMES:
            key = name.decode()
            if key in headers:
                raise MalformedPush(f"The header {key} must be given once.")
            headers[key] = value.decode("latin-1").strip()
    return headers


def parse_push(
    to: EndpointOfDevice, headers: Mapping[str, str], body: bytes, now: int
) -> tuple[Push, int]:
    """Return the push, and the seconds for which it is stored."""
    ttl_s = _read_ttl(headers.get("ttl"))
    topic = headers.get("topic")
    if topic is not None and not _TOPIC.fullmatch(topic):
        raise MalformedPush("Topic must have 1 to 32 characters of A-Z, a-z, 0-9, - and _.")
    priority = PRIORITIES.get(headers.get("urgency", "normal").lower())
    if priority is None:
        raise MalformedPush(f"Urgency must be one of {', '.join(PRIORITIES)}.")
    received = _Received(to.endpoint.id, write_base64url(body), **_read_encoding(headers))
    push = Push(
        id=None,
        token_hash=to.device.token_hash,
        bundle_id="",
        priority=priority,
        # A topic is of its endpoint alone.
        collapse_id=f"{to.endpoint.id}.{topic}" if topic else None,
        is_stored=ttl_s > 0,
        expires_at=now + (ttl_s * 1000 if ttl_s else ATTEMPT_MS),
        payload=_encode(_Payload(received)),
    )
    return push, ttl_s


def _read_ttl(given: str | None) -> int:
    if given is None or not _TTL.fullmatch(given):
        raise MalformedPush("The header TTL must be given: a number of seconds.")
    return min(int(given), MAX_TTL_MS // 1000)


def _read_encoding(headers: Mapping[str, str]) -> dict[str, str]:
    encoding = headers.get("content-encoding", "").lower()
    match encoding:
        case "" | "identity":
            return {}
        case "aes128gcm":
            return {"encoding": encoding}
        case "aesgcm":
            salt = _read_key(headers, "encryption", "salt")
            # The device needs one of the keys; the other is that of the sender.
            key = _read_key(headers, "crypto-key", "dh")
            return {"encoding": encoding, "encryption": f"salt={salt}", "crypto_key": f"dh={key}"}
        case _:
            raise MalformedPush("Content-Encoding must be aes128gcm, aesgcm, or not given.")


def _read_key(headers: Mapping[str, str], header: str, name: str) -> str:
    value = read_parameter(headers.get(header, ""), name)
    if value is None or not _BASE64URL.fullmatch(value):
        raise MalformedPush(f"With aesgcm, the header {header} must have {name}= in base64url.")
    return value
