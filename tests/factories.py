"""Makes what tests need: apps, keys, users, devices, and a clock that stands still."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from clarion.access.administrators.model import Administrator, AdminSession, SetupLink
from clarion.access.keys import IssuedKey, issue_key
from clarion.access.model import (
    ApiKey,
    App,
    ProviderKey,
    Role,
    Scope,
    Ticket,
    UserKey,
    UserTokenAlgorithm,
)
from clarion.catalog.model import Category, Channel, NotificationType, Template
from clarion.idempotency.model import IdempotencyClaim
from clarion.people.model import User
from clarion.push.model import (
    Device,
    DeviceDetails,
    Message,
    Platform,
    PushPriority,
    StoragePolicy,
    Topic,
)
from clarion.push.webpush.model import PushEndpoint

# 2026-01-01T00:00:00Z, the beginning of a minute.
NOW = 1_767_225_600_000
MINUTE = 60_000
DAY = 24 * 60 * MINUTE

_numbers = count(1)


@dataclass
class FixedClock:
    """The `Clock` port: stands still until it is moved.

    Both readings are the same until the clock is set, so that most tests need to know only one.
    """

    milliseconds: int = NOW
    stepped: int = 0
    _ids: Iterator[int] = field(default_factory=lambda: count(1), repr=False)

    def now(self) -> int:
        return self.milliseconds

    def new_id(self) -> str:
        return f"0190f000-0000-7000-8000-{next(self._ids):012x}"

    def monotonic(self) -> int:
        return self.milliseconds - self.stepped

    def advance(self, milliseconds: int) -> None:
        self.milliseconds += milliseconds

    def step(self, milliseconds: int) -> None:
        """Set the clock, as an operator or NTP does: no time passes."""
        self.milliseconds += milliseconds
        self.stepped += milliseconds


def new_app_id() -> str:
    """Return an id that sorts behind all before it, as UUIDv7 do."""
    return f"0190f000-0000-7000-9000-{next(_numbers):012x}"


def make_app(**changes: Any) -> App:
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": new_app_id(),
        "name": "Ünïcode Äpp 🚀",
        "bundle_id": f"com.example.app{number}",
        "team_id": "TEAM000001",
        "created_at": NOW,
    }
    return App(**values | changes)


def make_provider_key(app: App, **changes: Any) -> ProviderKey:
    values: dict[str, Any] = {
        "app_id": app.id,
        "key_id": f"KEY{next(_numbers):07}",
        "team_id": app.team_id,
        "public_key": "-----BEGIN PUBLIC KEY-----",
        "created_at": app.created_at,
    }
    return ProviderKey(**values | changes)


def make_user_key(app_id: str, **changes: Any) -> UserKey:
    values: dict[str, Any] = {
        "app_id": app_id,
        "kid": f"kid-{next(_numbers)}",
        "algorithm": UserTokenAlgorithm.HS256,
        "key": b"\x00\xffsealed",
        "created_at": NOW,
    }
    return UserKey(**values | changes)


def make_ticket(app_id: str = "app", **changes: Any) -> Ticket:
    values: dict[str, Any] = {
        "hash": next(_numbers).to_bytes(32, "big"),
        "app_id": app_id,
        "user_id": "ana",
        "token_expires_at": NOW + DAY,
        "created_at": NOW,
        "expires_at": NOW + MINUTE // 2,
    }
    return Ticket(**values | changes)


def make_key(app_id: str, **changes: Any) -> ApiKey:
    values: dict[str, Any] = {
        "id": f"key{next(_numbers):013}",
        "app_id": app_id,
        "label": "läbel",
        "scopes": frozenset({Scope.EVENTS_WRITE, Scope.KEYS_READ}),
        "secret_hash": b"\x00\x01hash\xff",
        "created_at": NOW,
    }
    return ApiKey(**values | changes)


def make_administrator(username: str, **changes: Any) -> Administrator:
    values: dict[str, Any] = {
        "id": new_app_id(),
        "username": username,
        "password_hash": "$argon2id$…",
        "role": Role.VIEWER,
        "created_at": NOW,
    }
    return Administrator(**values | changes)


def make_link(administrator_id: str, **changes: Any) -> SetupLink:
    values: dict[str, Any] = {
        "id": administrator_id,
        "token_hash": f"token of {next(_numbers)}".encode(),
        "created_at": NOW,
        "expires_at": NOW + DAY,
    }
    return SetupLink(**values | changes)


def make_session(administrator_id: str, **changes: Any) -> AdminSession:
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": f"session-{number:08}",
        "administrator_id": administrator_id,
        "secret_hash": b"secret %d" % number,
        "created_at": NOW,
        "last_seen_at": NOW,
        "expires_at": NOW + DAY,
        "mfa_at": None,
        "confirmed_at": NOW,
        "address": "192.0.2.7",
        "user_agent": "Firefox",
    }
    return AdminSession(**values | changes)


def make_once(app_id: str, *, now: int = NOW, **changes: Any) -> IdempotencyClaim:
    values: dict[str, Any] = {
        "app_id": app_id,
        "key": "once",
        "fingerprint": b"the request",
        "answer": b"the answer",
        "created_at": now,
        "expires_at": NOW + DAY,
    }
    return IdempotencyClaim(**values | changes)


def make_device(app_id: str = "app", **changes: Any) -> Device:
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": f"0190f000-0000-7000-a000-{number:012x}",
        "app_id": app_id,
        "token_hash": number.to_bytes(32, "big"),
        "secret_hash": b"\x00secret\xff",
        "platform": Platform.CLARION,
        "details": DeviceDetails(),
        "created_at": NOW,
        "last_seen_at": NOW,
    }
    return Device(**values | changes)


def make_push_endpoint(device: Device, **changes: Any) -> PushEndpoint:
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": f"0190f000-0000-7000-e000-{number:012x}",
        "app_id": device.app_id,
        "device_id": device.id,
        "user_id": device.details.user_id or "",
        "capability_hash": number.to_bytes(32, "big"),
        "created_at": NOW,
    }
    return PushEndpoint(**values | changes)


def make_message(device_id: str = "device", **changes: Any) -> Message:
    """Return a message that was accepted behind all that were made before it."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "id": f"0190f000-0000-7000-b000-{number:012x}",
        "device_id": device_id,
        "app_id": "app",
        "sequence": NOW * 1000 + number,
        "payload": b'{"aps":{"alert":"\xc3\xa4"}}',
        "priority": PushPriority.IMMEDIATE,
        "collapse_id": None,
        "is_stored": True,
        "created_at": NOW,
        "expires_at": NOW + DAY,
    }
    return Message(**values | changes)


def make_broadcast(topic: str = "news", **changes: Any) -> Message:
    """Return a message to a topic; publishing it gives it its sequence."""
    return make_message("", **{"topic": topic, "sequence": 0} | changes)


def make_topic(topic: str = "news", **changes: Any) -> Topic:
    values: dict[str, Any] = {
        "app_id": "app",
        "topic": topic,
        "is_broadcast_channel": False,
        "storage_policy": StoragePolicy.ALL,
        "created_at": NOW,
    }
    return Topic(**values | changes)


def make_user(user_id: str = "", **changes: Any) -> User:
    values: dict[str, Any] = {
        "app_id": "app",
        "id": user_id or f"user-{next(_numbers):09}",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return User(**values | changes)


def make_type(name: str = "ORDER_SHIPPED", **changes: Any) -> NotificationType:
    values: dict[str, Any] = {
        "type": name,
        "display_name": "Bestellung verschickt 📦",
        "category": Category.TRANSACTIONAL,
        "default_channels": (Channel.IN_APP, Channel.EMAIL),
    }
    return NotificationType(**values | changes)


def make_template(name: str = "ORDER_SHIPPED", **changes: Any) -> Template:
    values: dict[str, Any] = {
        "type": name,
        "channel": Channel.EMAIL,
        "language": "en",
        "version": 1,
        "subject": "Order {{ order }} 📦",
        "body": "<p>{{ order }} is on its way.</p>",
        "variables": ("order",),
        "created_at": NOW,
    }
    return Template(**values | changes)


def issue(app_id: str = "app-1", *, now: int = NOW, expires_at: int | None = None) -> IssuedKey:
    """Return a key with its secret, to call with."""
    return issue_key(app_id=app_id, label="test", scopes=["*"], now=now, expires_at=expires_at)
