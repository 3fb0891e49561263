"""Every refusal that a request can provoke: good requests with exactly one fault each."""

import time
from collections.abc import Callable
from typing import NamedTuple

from clarion.push.apns.reasons import Reason
from tests.conformance.clients.http2 import Request
from tests.conformance.wire.prepared import UNKNOWN_CHANNEL, UNKNOWN_TOKEN, PreparedServer, bearer
from tests.replacing import replace

Alter = Callable[[PreparedServer, Request], Request]


class Fault(NamedTuple):
    """What is refused, how, and what makes a good request into it."""

    status: int
    reason: Reason
    name: str
    alter: Alter

    def __str__(self) -> str:
        return f"{self.reason}: {self.name}"


def header(name: str, value: str) -> Alter:
    return lambda _, good: good.but(name, value)


def twice(name: str, value: str) -> Alter:
    """Repeat a header, or send it twice if the good request does not have it."""

    def alter(_: PreparedServer, good: Request) -> Request:
        has_it = any(name == given for given, _ in good.headers)
        return good.also(name, value) if has_it else good.also(name, value).also(name, value)

    return alter


def without(name: str) -> Alter:
    return lambda _, good: good.without(name)


def body(data: bytes) -> Alter:
    return lambda _, good: replace(good, body=data)


def method(name: str) -> Alter:
    return lambda _, good: replace(good, method=name)


def path(text: str) -> Alter:
    return lambda _, good: replace(good, path=text)


def app(bundle_id: str) -> Alter:
    """Address another app's channels."""
    return lambda prepared, good: replace(
        good, path=good.path.replace(prepared.provider.bundle_id, bundle_id)
    )


def to(token: str) -> Alter:
    return path(f"/3/device/{token}")


def issued(seconds_ago: int) -> Alter:
    """Sign with a token of another time."""

    def alter(prepared: PreparedServer, good: Request) -> Request:
        iat = int(time.time()) - seconds_ago
        return good.but(*bearer(prepared.provider.token(claims={"iat": iat})))

    return alter


AUTHORISATION = [
    Fault(403, Reason.EXPIRED_PROVIDER_TOKEN, "an hour old", issued(3605)),
    Fault(403, Reason.INVALID_PROVIDER_TOKEN, "of the future", issued(-3700)),
    Fault(403, Reason.INVALID_PROVIDER_TOKEN, "no token", header(*bearer("x.y.z"))),
    Fault(403, Reason.INVALID_PROVIDER_TOKEN, "scheme", header("authorization", "basic YTpi")),
    Fault(403, Reason.MISSING_PROVIDER_TOKEN, "absent", without("authorization")),
    Fault(403, Reason.MISSING_PROVIDER_TOKEN, "empty", header("authorization", "")),
    Fault(403, Reason.MISSING_PROVIDER_TOKEN, "only the scheme", header("authorization", "bearer")),
]

DEVICE = [
    *AUTHORISATION,
    Fault(400, Reason.BAD_COLLAPSE_ID, "65 bytes", header("apns-collapse-id", "x" * 65)),
    Fault(400, Reason.BAD_COLLAPSE_ID, "33 × 2 bytes", header("apns-collapse-id", "ü" * 33)),
    Fault(400, Reason.BAD_COLLAPSE_ID, "empty", header("apns-collapse-id", "")),
    Fault(400, Reason.BAD_DEVICE_TOKEN, "unknown", to(UNKNOWN_TOKEN)),
    Fault(400, Reason.BAD_DEVICE_TOKEN, "odd length", to("0" * 63)),
    Fault(400, Reason.BAD_DEVICE_TOKEN, "not hexadecimal", to("xyz" * 20)),
    Fault(400, Reason.BAD_DEVICE_TOKEN, "short", to("00")),
    Fault(400, Reason.BAD_DEVICE_TOKEN, "long", to("00" * 129)),
    Fault(400, Reason.BAD_EXPIRATION_DATE, "word", header("apns-expiration", "soon")),
    Fault(400, Reason.BAD_EXPIRATION_DATE, "negative", header("apns-expiration", "-1")),
    Fault(400, Reason.BAD_EXPIRATION_DATE, "fraction", header("apns-expiration", "1.5")),
    Fault(400, Reason.BAD_EXPIRATION_DATE, "empty", header("apns-expiration", "")),
    Fault(400, Reason.BAD_MESSAGE_ID, "number", header("apns-id", "1")),
    Fault(400, Reason.BAD_MESSAGE_ID, "no dashes", header("apns-id", "0" * 32)),
    Fault(400, Reason.BAD_PRIORITY, "7", header("apns-priority", "7")),
    Fault(400, Reason.BAD_PRIORITY, "05", header("apns-priority", "05")),
    Fault(400, Reason.BAD_PRIORITY, "word", header("apns-priority", "high")),
    Fault(
        400,
        Reason.BAD_PRIORITY,
        "background",
        lambda _, good: good.but("apns-push-type", "background").but("apns-priority", "10"),
    ),
    Fault(400, Reason.BAD_TOPIC, "no dot", header("apns-topic", "demo")),
    Fault(400, Reason.BAD_TOPIC, "space", header("apns-topic", "com.example demo")),
    Fault(400, Reason.BAD_TOPIC, "no suffix", header("apns-push-type", "voip")),
    Fault(
        400,
        Reason.BAD_DEVICE_TOKEN,
        "of another app",
        lambda prepared, good: to(prepared.theirs)(prepared, good),
    ),
    Fault(400, Reason.DUPLICATE_HEADERS, "topic", twice("apns-topic", "com.example.demo")),
    Fault(400, Reason.DUPLICATE_HEADERS, "priority", twice("apns-priority", "10")),
    Fault(400, Reason.DUPLICATE_HEADERS, "unknown to us", twice("x-anything", "1")),
    Fault(400, Reason.INVALID_PUSH_TYPE, "unknown", header("apns-push-type", "push")),
    Fault(400, Reason.INVALID_PUSH_TYPE, "empty", header("apns-push-type", "")),
    Fault(400, Reason.MISSING_DEVICE_TOKEN, "empty", to("")),
    Fault(400, Reason.MISSING_DEVICE_TOKEN, "no slash", path("/3/device")),
    Fault(400, Reason.MISSING_TOPIC, "absent", without("apns-topic")),
    Fault(400, Reason.MISSING_TOPIC, "empty", header("apns-topic", "")),
    Fault(400, Reason.PAYLOAD_EMPTY, "no bytes", body(b"")),
    Fault(400, Reason.PAYLOAD_EMPTY, "no keys", body(b"{}")),
    Fault(400, Reason.TOPIC_DISALLOWED, "unknown", header("apns-topic", "com.example.unknown")),
    Fault(400, Reason.TOPIC_DISALLOWED, "other app", header("apns-topic", "com.example.other")),
    Fault(
        400,
        Reason.TOPIC_DISALLOWED,
        "suffix of another type",
        lambda prepared, good: good.but("apns-push-type", "alert").but(
            "apns-topic", f"{prepared.provider.bundle_id}.voip"
        ),
    ),
    Fault(404, Reason.BAD_PATH, "more", lambda s, good: path(f"/3/device/{s.valid}/x")(s, good)),
    Fault(404, Reason.BAD_PATH, "devices", path(f"/3/devices/{UNKNOWN_TOKEN}")),
    Fault(404, Reason.BAD_PATH, "nothing", path("/3/")),
    Fault(405, Reason.METHOD_NOT_ALLOWED, "GET", method("GET")),
    Fault(405, Reason.METHOD_NOT_ALLOWED, "PUT", method("PUT")),
    Fault(410, Reason.UNREGISTERED, "revoked", lambda s, good: to(s.revoked)(s, good)),
    Fault(410, Reason.EXPIRED_TOKEN, "expired", lambda s, good: to(s.expired)(s, good)),
    Fault(413, Reason.PAYLOAD_TOO_LARGE, "4097 bytes", body(b'{"a":"%s"}' % (b"x" * 4089))),
]

BROADCAST = [
    *AUTHORISATION,
    Fault(400, Reason.BAD_CHANNEL_ID, "no base64", header("apns-channel-id", "?")),
    Fault(400, Reason.BAD_CHANNEL_ID, "short", header("apns-channel-id", "AAAA")),
    Fault(400, Reason.BAD_EXPIRATION_DATE, "word", header("apns-expiration", "soon")),
    Fault(400, Reason.BAD_EXPIRATION_DATE, "kept by none", header("apns-expiration", "2000000000")),
    Fault(400, Reason.BAD_MESSAGE_ID, "request id", header("apns-request-id", "1")),
    Fault(400, Reason.BAD_MESSAGE_ID, "id", header("apns-id", "1")),
    Fault(400, Reason.BAD_PRIORITY, "7", header("apns-priority", "7")),
    Fault(
        400, Reason.CHANNEL_NOT_REGISTERED, "unknown", header("apns-channel-id", UNKNOWN_CHANNEL)
    ),
    Fault(
        400,
        Reason.CHANNEL_NOT_REGISTERED,
        "deleted",
        lambda prepared, good: good.but("apns-channel-id", prepared.deleted),
    ),
    Fault(400, Reason.DUPLICATE_HEADERS, "priority", twice("apns-priority", "10")),
    Fault(400, Reason.INVALID_PUSH_TYPE, "alert", header("apns-push-type", "alert")),
    Fault(400, Reason.MISSING_CHANNEL_ID, "absent", without("apns-channel-id")),
    Fault(400, Reason.MISSING_PUSH_TYPE, "absent", without("apns-push-type")),
    Fault(400, Reason.PAYLOAD_EMPTY, "no bytes", body(b"")),
    Fault(400, Reason.TOPIC_DISALLOWED, "suffix", app("com.example.demo.push-type.liveactivity")),
    Fault(403, Reason.TOPIC_MISMATCH, "other app", app("com.example.other")),
    Fault(404, Reason.BAD_PATH, "no app", path("/4/broadcasts/apps/")),
    Fault(404, Reason.BAD_PATH, "more", path("/4/broadcasts/apps/com.example.demo/x")),
    Fault(404, Reason.BAD_PATH, "nothing", path("/4/")),
    Fault(405, Reason.METHOD_NOT_ALLOWED, "GET", method("GET")),
    Fault(413, Reason.PAYLOAD_TOO_LARGE, "5121 bytes", body(b'{"a":"%s"}' % (b"x" * 5113))),
]

# Faults of the address, the caller and the id: the same whatever is to be done to channels.
_CHANNELS = [
    *AUTHORISATION,
    Fault(400, Reason.BAD_MESSAGE_ID, "request id", header("apns-request-id", "1")),
    Fault(400, Reason.DUPLICATE_HEADERS, "request id", twice("apns-request-id", UNKNOWN_TOKEN)),
    Fault(400, Reason.TOPIC_DISALLOWED, "suffix", app("com.example.demo.push-type.liveactivity")),
    Fault(403, Reason.TOPIC_MISMATCH, "other app", app("com.example.other")),
    Fault(404, Reason.BAD_PATH, "no app", path("/1/apps/channels")),
    Fault(404, Reason.BAD_PATH, "other noun", path("/1/apps/com.example.demo/channel")),
    Fault(404, Reason.BAD_PATH, "nothing", path("/1/")),
    Fault(405, Reason.METHOD_NOT_ALLOWED, "PUT", method("PUT")),
]

CREATE = [
    *_CHANNELS,
    Fault(400, Reason.BAD_REQUEST_PARAMS, "policy 2", body(b'{"message-storage-policy":2}')),
    Fault(400, Reason.BAD_REQUEST_PARAMS, "nothing known", body(b'{"colour":"red"}')),
    Fault(400, Reason.BAD_REQUEST_PARAMS, "a list", body(b"[]")),
    Fault(400, Reason.BAD_REQUEST_PAYLOAD, "no JSON", body(b'{"message-storage-policy":')),
    Fault(400, Reason.BAD_REQUEST_PAYLOAD, "no UTF-8", body(b'{"push-type":"\xff"}')),
    Fault(
        400,
        Reason.INVALID_PUSH_TYPE,
        "alert",
        body(b'{"message-storage-policy":1,"push-type":"alert"}'),
    ),
    Fault(400, Reason.PAYLOAD_EMPTY, "no bytes", body(b"")),
    Fault(413, Reason.PAYLOAD_TOO_LARGE, "5121 bytes", body(b"[%s]" % (b" " * 5119))),
]

READ = [
    *_CHANNELS,
    *(fault for fault in BROADCAST if "Channel" in fault.reason),
]

LIST = [
    *_CHANNELS,
    Fault(405, Reason.METHOD_NOT_ALLOWED, "POST", method("POST")),
    Fault(405, Reason.METHOD_NOT_ALLOWED, "DELETE", method("DELETE")),
]
