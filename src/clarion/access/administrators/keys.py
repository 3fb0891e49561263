"""Admin API keys: their text is `cak_<id>_<secret>`, and only the hash of the secret is stored."""

from __future__ import annotations

import msgspec

from clarion.access.administrators.model import AdminKey
from clarion.access.keys import ApiSecret, check_new_key, new_api_secret
from clarion.access.model import Role

PREFIX = "cak_"


class IssuedAdminKey(msgspec.Struct, frozen=True):
    """A new key and its secret, which cannot be shown again."""

    key: AdminKey
    secret: ApiSecret


def issue_admin_key(
    *, administrator_id: str, label: str, role: Role, now: int, expires_at: int | None
) -> IssuedAdminKey:
    """Create a key without storing it."""
    check_new_key(label, expires_at, now)
    secret = new_api_secret(PREFIX)
    key = AdminKey(
        id=secret.id,
        administrator_id=administrator_id,
        label=label,
        role=role,
        secret_hash=secret.hash,
        created_at=now,
        expires_at=expires_at,
    )
    return IssuedAdminKey(key, secret)
