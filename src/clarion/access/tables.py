"""The tables of apps, keys and administrators."""

from __future__ import annotations

from functools import partial

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
    HASH,
    OF_USER,
    Ages,
    Expires,
    GoesWith,
    Owner,
    Sealed,
    Stays,
    Table,
    times,
)

_HOUR_MS = 3600 * 1000
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
    columns={"hash": HASH, **OF_USER, **times("token_expires_at created_at expires_at")},
    ends=Expires("tickets_expiring"),
    shard=("hash",),
    note="found by the hash before the app is known",
)
_of_operators = partial(
    Table,
    owner=Owner.INSTALLATION,
    impersonal="of those who operate Clarion, not of users of apps",
    ends=GoesWith("administrators"),
)
ADMINISTRATORS = _of_operators(
    "administrators",
    Administrator,
    key=("id",),
    ends=Stays("Deleted by an administrator or by `clarion admin delete`."),
)
ADMIN_KEYS = _of_operators("admin_keys", AdminKey, key=("id",), columns={"secret_hash": HASH})
ADMIN_LINKS = _of_operators("admin_links", SetupLink, key=("id",), columns={"token_hash": HASH})
ADMIN_SESSIONS = _of_operators(
    "admin_sessions",
    AdminSession,
    key=("id",),
    columns={"secret_hash": HASH},
    ends=Expires("admin_sessions_by_expiry"),
)
TRUSTED_DEVICES = _of_operators(
    "trusted_devices",
    TrustedDevice,
    key=("token_hash",),
    columns={"token_hash": HASH},
    ends=Expires("trusted_devices_by_expiry"),
)
TOTP_SECRETS = _of_operators(
    "totp_secrets",
    TotpSecret,
    key=("administrator_id", "state"),
    columns={"secret": Sealed(totp_context, ("administrator_id",))},
)
RECOVERY_CODES = _of_operators(
    "recovery_codes",
    RecoveryCode,
    key=("administrator_id", "code_hash"),
    columns={"code_hash": HASH, "salt": HASH},
)
# Failed sign-ins count for an hour, and a lock ends before that.
SIGN_IN_ATTEMPTS = _of_operators(
    "sign_in_attempts",
    tuple,
    key=("key",),
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
