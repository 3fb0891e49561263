"""The tables of apps, keys and administrators."""

from __future__ import annotations

from clarion.access.administrators.model import (
    Administrator,
    AdminKey,
    AdminSession,
    RecoveryCode,
    SetupLink,
    TotpSecret,
    TrustedDevice,
    totp_context,
)
from clarion.access.app_keys import user_key_context
from clarion.access.model import ApiKey, App, ProviderKey, Scope, Ticket, UserKey
from clarion.store.table import (
    APP_ID,
    HASH,
    TIME,
    USER_ID,
    Ages,
    Expires,
    GoesWith,
    Owner,
    Sealed,
    Stays,
    Table,
)

_HOUR_MS = 3600 * 1000
_OF_OPERATORS = "of those who operate Clarion, not of users of apps"
_EVERYWHERE = "small, on every shard"


def _join_scopes(scopes: frozenset[Scope]) -> str:
    return " ".join(sorted(scopes))


def _split_scopes(text: str) -> frozenset[Scope]:
    return frozenset(map(Scope, text.split()))


APPS = Table(
    "apps",
    App,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="apps",
    ends=Stays("Deleted last, when nothing else of a deleted app is left."),
    shard=("id",),
    note=_EVERYWHERE,
)
API_KEYS = Table(
    "api_keys",
    ApiKey,
    codecs={"scopes": (_join_scopes, _split_scopes)},
    key=("id",),
    owner=Owner.APP,
    impersonal="of apps",
    columns={"secret_hash": HASH},
    ends=Stays("Keys that ended are deleted when their app gets a new one."),
    shard=("app_id",),
    note=f"{_EVERYWHERE}: found by `id` before the app is known",
)
USER_KEYS = Table(
    "user_keys",
    UserKey,
    key=("app_id", "kid"),
    owner=Owner.APP,
    impersonal="keys of apps, for the tokens of their users",
    columns={"key": Sealed(user_key_context)},
    ends=Stays("Keys that ended are deleted when their app gets a new one."),
    shard=("app_id",),
    note=_EVERYWHERE,
)
PROVIDER_KEYS = Table(
    "provider_keys",
    ProviderKey,
    key=("key_id",),
    owner=Owner.APP,
    impersonal="of apps",
    ends=Stays("Keys that ended are deleted when their app gets a new one."),
    shard=("app_id",),
    note=f"{_EVERYWHERE}: found by `key_id` before the app is known",
)
TICKETS = Table(
    "tickets",
    Ticket,
    key=("hash",),
    owner=Owner.USER,
    section="tickets",
    columns={
        "hash": HASH,
        "app_id": APP_ID,
        "user_id": USER_ID,
        "token_expires_at": TIME,
        "created_at": TIME,
        "expires_at": TIME,
    },
    ends=Expires("tickets_expiring"),
    shard=("hash",),
    note="found by the hash before the app is known",
)
ADMINISTRATORS = Table(
    "administrators",
    Administrator,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    ends=Stays("Deleted by an administrator or by `clarion admin delete`."),
)
ADMIN_KEYS = Table(
    "admin_keys",
    AdminKey,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    columns={"secret_hash": HASH},
    ends=GoesWith("administrators"),
)
ADMIN_LINKS = Table(
    "admin_links",
    SetupLink,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    columns={"token_hash": HASH},
    ends=GoesWith("administrators"),
)
ADMIN_SESSIONS = Table(
    "admin_sessions",
    AdminSession,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    columns={"secret_hash": HASH},
    ends=Expires("admin_sessions_by_expiry"),
)
TRUSTED_DEVICES = Table(
    "trusted_devices",
    TrustedDevice,
    key=("token_hash",),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    columns={"token_hash": HASH},
    ends=Expires("trusted_devices_by_expiry"),
)
TOTP_SECRETS = Table(
    "totp_secrets",
    TotpSecret,
    key=("administrator_id", "state"),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    columns={"secret": Sealed(totp_context, ("administrator_id",))},
    ends=GoesWith("administrators"),
)
RECOVERY_CODES = Table(
    "recovery_codes",
    RecoveryCode,
    key=("administrator_id", "code_hash"),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    columns={"code_hash": HASH, "salt": HASH},
    ends=GoesWith("administrators"),
)
SIGN_IN_ATTEMPTS = Table(
    "sign_in_attempts",
    tuple,
    key=("key",),
    owner=Owner.INSTALLATION,
    impersonal=_OF_OPERATORS,
    # Failed sign-ins count for an hour, and a lock ends before that.
    ends=Ages("sign_in_attempts_by_time", "last_at", _HOUR_MS),
)
TABLES = (
    API_KEYS,
    USER_KEYS,
    PROVIDER_KEYS,
    TICKETS,
    APPS,
    ADMINISTRATORS,
    ADMIN_KEYS,
    ADMIN_LINKS,
    ADMIN_SESSIONS,
    TRUSTED_DEVICES,
    TOTP_SECRETS,
    RECOVERY_CODES,
    SIGN_IN_ATTEMPTS,
)
