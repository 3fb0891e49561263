"""Issues API keys, for the API and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.access.model import ALL_SCOPES, ApiKey, Scope
from clarion.access.secrets import new_api_secret
from clarion.errors import FieldFault, InvalidFields
from clarion.fields import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.access.secrets import ApiSecret

LABEL_LENGTH = 100


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key and its secret, which cannot be shown again."""

    key: ApiKey
    secret: ApiSecret


def issue_key(
    *, app_id: str, label: str, scopes: Iterable[str], now: int, expires_at: int | None = None
) -> IssuedKey:
    """Create a key without storing it."""
    if not 0 < len(label) <= LABEL_LENGTH:
        raise InvalidFields(FieldFault("label", f"must have 1 to {LABEL_LENGTH} characters"))
    if not is_plain(label):
        raise InvalidFields(FieldFault("label", "must not contain control characters"))
    if expires_at is not None and expires_at <= now:
        raise InvalidFields(FieldFault("expires_at", "must be in the future"))
    secret = new_api_secret()
    key = ApiKey(
        id=secret.id,
        app_id=app_id,
        label=label,
        scopes=parse_scopes(scopes),
        secret_hash=secret.hash,
        created_at=now,
        expires_at=expires_at,
    )
    return IssuedKey(key, secret)


def parse_scopes(texts: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes; `*` alone means all of them."""
    wanted = set(texts)
    if wanted == {"*"}:
        return ALL_SCOPES
    unknown = wanted - {scope.value for scope in Scope}
    if unknown or not wanted:
        known = ", ".join(scope.value for scope in Scope)
        raise InvalidFields(FieldFault("scopes", f"must be `*` or some of {known}"))
    return frozenset(Scope(text) for text in wanted)
