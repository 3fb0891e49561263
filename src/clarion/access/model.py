"""Apps, their keys, administrators, and authenticated callers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from clarion.errors import Forbidden


class Scope(StrEnum):
    """What an API key may do. A key has one or more; `*` at creation means all of them."""

    EVENTS_WRITE = "events:write"
    EVENTS_READ = "events:read"
    NOTIFICATIONS_WRITE = "notifications:write"
    NOTIFICATIONS_READ = "notifications:read"
    USERS_WRITE = "users:write"
    USERS_READ = "users:read"
    DEVICES_WRITE = "devices:write"
    DEVICES_READ = "devices:read"
    TOPICS_WRITE = "topics:write"
    TOPICS_READ = "topics:read"
    TYPES_WRITE = "types:write"
    TYPES_READ = "types:read"
    PROVIDERS_WRITE = "providers:write"
    PROVIDERS_READ = "providers:read"
    STATS_READ = "stats:read"
    AUDIT_READ = "audit:read"
    KEYS_WRITE = "keys:write"
    KEYS_READ = "keys:read"


ALL_SCOPES = frozenset(Scope)
ANY_ORIGIN = "*"


class UserTokenAlgorithm(StrEnum):
    """How an app signs its user tokens. Each of its keys fits one algorithm only."""

    HS256 = "HS256"
    ES256 = "ES256"
    EDDSA = "EdDSA"


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An application that uses Clarion; everything but administrators belongs to an app."""

    id: str
    name: str
    bundle_id: str
    team_id: str
    created_at: int
    # The origins of pages whose streams and sockets are accepted; `ANY_ORIGIN` means all.
    allowed_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """A key that is valid until it expires or is revoked."""

    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def is_live(self, now: int) -> bool:
        """Whether the key is valid at `now`."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey(Expiring):
    """A key by which user tokens of an app are verified; `kid` is its name in the app."""

    app_id: str
    kid: str
    algorithm: UserTokenAlgorithm
    key: bytes  # sealed: the shared secret (HS256) or the public key in PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKey(Expiring):
    """The public key by which tokens of an app's APNs provider are verified."""

    app_id: str
    key_id: str
    team_id: str
    public_key: str  # PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Expiring):
    """An API key of an app. Only the hash of its secret is stored."""

    id: str
    app_id: str
    label: str
    scopes: frozenset[Scope]
    secret_hash: bytes
    last_used_at: int | None = None  # to the minute
    replaced_by: str | None = None  # the id of the key that a rotation made


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A single-use stand-in for a user token, where a header cannot be sent."""

    hash: bytes
    app_id: str
    user_id: str
    token_expires_at: int | None
    created_at: int
    expires_at: int


class Role(StrEnum):
    """What an administrator may do."""

    ADMIN = "admin"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Administrator:
    """An account for operating Clarion."""

    id: str
    username: str
    password_hash: str
    role: Role
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCaller:
    """An application server, authenticated by an API key."""

    app_id: str
    key_id: str
    scopes: frozenset[Scope]
    expires_at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCaller:
    """An end user's client, authenticated by a token that the app signed."""

    app_id: str
    user_id: str
    expires_at: int | None = field(default=None, compare=False)


Caller = AppCaller | UserCaller


def require_app(caller: Caller, scope: Scope) -> AppCaller:
    """Return the caller if it is an application with the scope; `Forbidden` otherwise."""
    match caller:
        case AppCaller() if scope in caller.scopes:
            return caller
        case AppCaller():
            raise Forbidden(f"This API key does not have the scope `{scope.value}`.")
        case UserCaller():
            msg = "Only application servers may call this: use an API key, not a user token."
            raise Forbidden(msg)


def require_user(caller: Caller | None) -> UserCaller:
    """Return the caller if it is a user's client; `Forbidden` otherwise."""
    if not isinstance(caller, UserCaller):
        raise Forbidden("Only users may call this: use a user token, not an API key.")
    return caller
