"""Apps, their keys, administrators, and authenticated callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from clarion.clock import to_rfc3339
from clarion.errors import FieldFault, Forbidden, InvalidFields, MfaRequired, NotFound


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
_ORIGIN_SHOWN = 60
# Changes a limit of an app to that of the installation.
OF_INSTALLATION = -1
PER_HOUR_LIMIT = 1_000_000
# Keys of each kind that an app may have valid at the same time.
LIVE_KEYS_LIMIT = 10
# API keys: an app may have one for each of its servers.
LIVE_API_KEYS_LIMIT = 1_000


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
    # What a user gets in an hour, in all and of a category; 0: no limit, None: the installation's.
    user_per_hour: int | None = None
    category_per_hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """A key that is valid until it expires or is revoked."""

    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None

    def is_live(self, now: int) -> bool:
        """Whether the key is valid at `now`."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def describe_state(self, now: int) -> str:
        """Return the state of the key in a few words."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is None:
            return "live"
        return (
            f"{'live until' if now < self.expires_at else 'expired'} {to_rfc3339(self.expires_at)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey(Expiring):
    """A key that verifies user tokens of an app; `kid` is its name in the app."""

    app_id: str
    kid: str
    algorithm: UserTokenAlgorithm
    key: bytes  # sealed: the shared secret (HS256) or the public key in PEM

    @property
    def name(self) -> str:
        """The name under which the API finds the key."""
        return self.kid


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKey(Expiring):
    """The public key that verifies tokens of an app's APNs provider."""

    app_id: str
    key_id: str
    team_id: str
    public_key: str  # PEM

    @property
    def name(self) -> str:
        """The name under which the API finds the key."""
        return self.key_id


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


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A single-use stand-in for a user token, where a header cannot be sent."""

    hash: bytes
    app_id: str
    user_id: str
    token_expires_at: int | None
    created_at: int
    expires_at: int


class Role(StrEnum):
    """What an administrator may do. Each role includes the permissions of the one before it."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def covers(self, other: Role) -> bool:
        """Whether this role may do all that the other one may."""
        return self.rank >= other.rank


_RANKS = {role: rank for rank, role in enumerate(Role)}
_READ = frozenset(scope for scope in Scope if scope.value.endswith(":read"))
# A new scope that writes is for the role admin alone until it is named here.
SCOPES_OF = {
    Role.VIEWER: _READ,
    Role.EDITOR: _READ
    | {
        Scope.EVENTS_WRITE,
        Scope.NOTIFICATIONS_WRITE,
        Scope.USERS_WRITE,
        Scope.DEVICES_WRITE,
        Scope.TOPICS_WRITE,
        Scope.TYPES_WRITE,
    },
    Role.ADMIN: ALL_SCOPES,
}


class SignInStage(StrEnum):
    """How far the sign-in of an administrator is. Only `signed_in` may do more than finish it."""

    SIGNED_IN = "signed_in"
    NEEDS_TOTP = "needs_totp"
    NEEDS_ENROLMENT = "needs_enrolment"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCaller:
    """An application server, authenticated by an API key.

    Or an administrator who acts for the app: then `administrator_id` says who it is.
    """

    app_id: str
    key_id: str
    scopes: frozenset[Scope]
    expires_at: int | None = field(default=None, compare=False)
    administrator_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCaller:
    """An end user's client, authenticated by a token that the app signed."""

    app_id: str
    user_id: str
    expires_at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCaller:
    """An administrator, authenticated by a session or by an admin API key.

    `role` holds for all apps, `app_roles` for single ones; the higher one counts. `app_id` is the
    app that the request names in the header `Clarion-App`: it exists, and there is a role for it.
    """

    administrator_id: str
    username: str
    role: Role | None = None
    app_roles: Mapping[str, Role] = field(default_factory=dict, hash=False)
    session_id: str | None = None
    key_id: str | None = None
    stage: SignInStage = SignInStage.SIGNED_IN
    has_mfa: bool = False
    confirmed_at: int = field(default=0, compare=False)  # when the password was last given
    app_id: str | None = None
    expires_at: int | None = field(default=None, compare=False)

    def role_for(self, app_id: str) -> Role | None:
        """Return the role for an app, or None."""
        roles = [role for role in (self.role, self.app_roles.get(app_id)) if role]
        return max(roles, key=lambda role: role.rank, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Where a request of an administrator comes from.

    `is_secure` means that nobody could read it on the way: it came over TLS, or from this machine.
    """

    address: str
    user_agent: str = ""
    is_secure: bool = True
    device: str | None = field(default=None, repr=False)  # the token of a trusted device
    session: str | None = field(default=None, repr=False)  # the secret of a session


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCredential:
    """What an administrator sends: the secret of a session, or an admin API key."""

    secret: str
    is_key: bool
    app_id: str | None  # of the header `Clarion-App`
    visitor: Visitor

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"AdminCredential(is_key={self.is_key}, {self.visitor})"


Caller = AppCaller | UserCaller | AdminCaller
APP_HEADER = "Clarion-App"


def require_app(caller: Caller, scope: Scope) -> AppCaller:
    """Return the calling app if it has the scope; `Forbidden` otherwise.

    An administrator acts for the app of the header `Clarion-App`, within the role for it.
    """
    match caller:
        case AdminCaller():
            return _act_for_app(caller, scope)
        case AppCaller() if scope in caller.scopes:
            return caller
        case AppCaller():
            raise Forbidden(f"This API key does not have the scope `{scope.value}`.")
        case UserCaller():
            msg = "Only application servers may call this: use an API key, not a user token."
            raise Forbidden(msg)


def _act_for_app(caller: AdminCaller, scope: Scope) -> AppCaller:
    _check_stage(caller)
    if caller.app_id is None:
        raise InvalidFields(FieldFault(APP_HEADER, "is required: send the id of an app"))
    role = _require_role_for(caller, caller.app_id)
    if scope not in SCOPES_OF[role]:
        raise Forbidden(f"The role {role.value} for this app does not include `{scope.value}`.")
    return AppCaller(
        app_id=caller.app_id,
        key_id=f"administrator:{caller.administrator_id}",
        scopes=SCOPES_OF[role],
        expires_at=ends_of_children(caller),
        administrator_id=caller.administrator_id,
    )


def ends_of_children(caller: AdminCaller) -> int | None:
    """Return when the keys expire that an administrator creates: with the admin API key, if any.

    Keys outlive the session that creates them; a session needs the password instead.
    """
    return caller.expires_at if caller.key_id else None


def require_admin(caller: Caller | None, role: Role, app_id: str | None = None) -> AdminCaller:
    """Return the calling administrator if it has the role; `Forbidden` otherwise.

    The role must hold for all apps, or for the given one. An app for which there is no role at all
    is `NotFound`.
    """
    found = require_any_admin(caller)
    actual = found.role if app_id is None else _require_role_for(found, app_id)
    if actual is None or not actual.covers(role):
        whose = "all apps" if app_id is None else "this app"
        raise Forbidden(f"This needs the role {role.value} for {whose}.")
    return found


def require_any_admin(caller: Caller | None) -> AdminCaller:
    """Return the calling administrator, with any role or none, if signed in; else `Forbidden`."""
    if not isinstance(caller, AdminCaller):
        raise Forbidden("Only administrators may call this: sign in, or use an admin API key.")
    _check_stage(caller)
    return caller


def _check_stage(caller: AdminCaller) -> None:
    if caller.stage is SignInStage.NEEDS_TOTP:
        raise MfaRequired("Finish signing in first: send a code to POST /v1/admin/session/totp.")
    if caller.stage is SignInStage.NEEDS_ENROLMENT:
        raise MfaRequired("Set up a second factor first: POST /v1/admin/totp.")


def _require_role_for(caller: AdminCaller, app_id: str) -> Role:
    role = caller.role_for(app_id)
    if role is None:
        raise NotFound(f"There is no app {app_id!r}.")
    return role


def require_user(caller: Caller | None) -> UserCaller:
    """Return the caller if it is a user's client; `Forbidden` otherwise."""
    if not isinstance(caller, UserCaller):
        raise Forbidden("Only users may call this: use a user token, not an API key.")
    return caller


def explain_origin(origin: str) -> str:
    """Return why a page may not open a stream or socket; short enough for a close frame."""
    shown = origin if len(origin) <= _ORIGIN_SHOWN else f"{origin[:_ORIGIN_SHOWN]}…"
    return f"The origin {shown!r} is not one of the app's allowed origins."
