"""Who may call: apps, their keys, administrators, and callers as the doors know them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from clarion.errors import Forbidden


class Scope(StrEnum):
    """What an API key may do. A key holds one or more; `*` at creation means all of them."""

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
    STATS_READ = "stats:read"
    AUDIT_READ = "audit:read"
    KEYS_WRITE = "keys:write"
    KEYS_READ = "keys:read"


ALL_SCOPES = frozenset(Scope)


class UserTokenAlgorithm(StrEnum):
    """How an app signs the tokens of its users. One app, one algorithm: no confusion of keys."""

    HS256 = "HS256"
    ES256 = "ES256"
    EDDSA = "EdDSA"


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An application that sends through Clarion; everything but administrators belongs to one."""

    id: str
    name: str
    bundle_id: str
    team_id: str
    user_token_algorithm: UserTokenAlgorithm
    user_token_key: bytes  # sealed: the shared secret (HS256) or the public key as PEM
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKey:
    """The public half of a key with which an APNs provider of an app signs its tokens."""

    app_id: str
    key_id: str
    team_id: str
    public_key: str  # PEM
    created_at: int
    revoked_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A secret key of an app. Only the hash of its secret is ever stored."""

    id: str
    app_id: str
    label: str
    scopes: frozenset[Scope]
    secret_hash: bytes
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def is_live(self, now: int) -> bool:
        """Whether the key opens the door at `now`."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Role(StrEnum):
    """What an administrator may do."""

    ADMIN = "admin"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Administrator:
    """A person who runs Clarion."""

    id: str
    username: str
    password_hash: str
    role: Role
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCaller:
    """An application server, known by one of its app's API keys."""

    app_id: str
    key_id: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCaller:
    """An end user's client, known by a token that the app signed and that is good until then."""

    app_id: str
    user_id: str
    expires_at: int | None = field(default=None, compare=False)


Caller = AppCaller | UserCaller


def require_app(caller: Caller, scope: Scope) -> AppCaller:
    """Return the caller if it is an application whose key holds the scope."""
    match caller:
        case AppCaller() if scope in caller.scopes:
            return caller
        case AppCaller():
            msg = f"This API key lacks the scope `{scope.value}`."
            raise Forbidden(msg)
        case UserCaller():
            msg = "This is for application servers: call it with an API key."
            raise Forbidden(msg)


def require_user(caller: Caller | None) -> UserCaller:
    """Return the caller if it is a user's own client."""
    if not isinstance(caller, UserCaller):
        msg = "This is for users: call it with a user token."
        raise Forbidden(msg)
    return caller
