"""Administrators, and everything by which they sign in."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from clarion.access.model import Role

USERNAME_LENGTH = 64
NETWORKS_LIMIT = 50
APP_ROLES_LIMIT = 500
ADMINISTRATORS_LIMIT = 1_000
SESSIONS_LIMIT = 20
LIVE_ADMIN_KEYS_LIMIT = 100
_USERNAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
# For the OpenAPI document.
USERNAME = f"^{_USERNAME.pattern}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Administrator:
    """An account for operating Clarion.

    `role` holds for all apps, `app_roles` for single ones. `networks` are the only ones from which
    the account can be used; none means all. Without a password, the set-up link is to be used.
    """

    id: str
    username: str
    password_hash: str | None = field(default=None, repr=False)
    role: Role | None = None
    app_roles: dict[str, Role] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    created_at: int
    disabled_at: int | None = None
    password_changed_at: int | None = None

    @property
    def is_active(self) -> bool:
        return self.disabled_at is None

    @property
    def has_role_admin(self) -> bool:
        """Whether there is an app, or all of them, for which the role is admin."""
        return Role.ADMIN in (self.role, *self.app_roles.values())

    def allows(self, address: str) -> bool:
        """Whether the account can be used from an address."""
        return not self.networks or is_within(address, self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSession:
    """A sign-in. `mfa_at` is when a second factor was given, `confirmed_at` when the password."""

    id: str
    administrator_id: str
    secret_hash: bytes = field(repr=False)
    created_at: int
    last_seen_at: int
    expires_at: int
    mfa_at: int | None
    confirmed_at: int
    address: str
    user_agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminKey:
    """An API key of an administrator. It may do what its owner may, up to its own role."""

    id: str
    administrator_id: str
    label: str
    role: Role
    secret_hash: bytes = field(repr=False)
    created_at: int
    expires_at: int | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None

    def is_live(self, now: int) -> bool:
        """Whether the key is valid at `now`."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupLink:
    """A single-use link to set the first password of an administrator, whose id it has.

    The first administrator of an installation is made with the link that has `FIRST` as its id.
    """

    id: str
    token_hash: bytes = field(repr=False)
    created_at: int
    expires_at: int


FIRST = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedDevice:
    """A browser on which a second factor was given, and which is not asked for it for a while."""

    token_hash: bytes = field(repr=False)
    administrator_id: str
    created_at: int
    expires_at: int


class TotpState(StrEnum):
    """Whether codes of a secret are asked for; it is new until its first code was given."""

    CURRENT = "current"
    NEW = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class TotpSecret:
    """The secret of an authenticator app. `last_step` is the latest step that was accepted."""

    administrator_id: str
    state: TotpState
    secret: bytes = field(repr=False)  # sealed
    last_step: int
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCode:
    """A code that replaces a TOTP code once. All codes of an administrator have one salt."""

    administrator_id: str
    code_hash: bytes = field(repr=False)
    salt: bytes = field(repr=False)


def totp_context(administrator_id: str) -> str:
    """Return what the secret of an authenticator app is sealed for."""
    return f"administrators/{administrator_id}/totp"


def new_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """Return the stored form of a token. A fast hash is safe: a token has 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def check_username(text: str) -> str:
    """Return a username; `ValueError` with the reason if it is not valid."""
    if not _USERNAME.fullmatch(text):
        raise ValueError(
            f"must have 1 to {USERNAME_LENGTH} lower-case letters, digits or . _ @ + -, and start "
            "with a letter or digit"
        )
    return text


def check_networks(texts: list[str]) -> tuple[str, ...]:
    """Return networks in their usual form; `ValueError` with the reason if one is not valid."""
    if len(texts) > NETWORKS_LIMIT:
        raise ValueError(f"must have at most {NETWORKS_LIMIT} networks")
    try:
        return tuple(str(ipaddress.ip_network(text)) for text in texts)
    except ValueError as error:
        raise ValueError("must be networks like 10.0.0.0/8, 192.0.2.7 or fd00::/8") from error


def is_within(address: str, networks: tuple[str, ...]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in networks)
