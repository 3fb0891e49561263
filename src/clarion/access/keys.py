"""API keys: their text is `ck_<id>_<secret>`, and only the hash of the secret is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hmac import compare_digest

import msgspec

from clarion.access.model import ALL_SCOPES, ApiKey, Scope
from clarion.errors import FieldFault, InvalidFields
from clarion.fields import check_value, is_plain

LABEL_LENGTH = 100
# The prefix lets secret scanners find a leaked key; the id finds its row without a search.
PREFIX = "ck_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 16  # 95 bits: unique, not secret
_SECRET_LENGTH = 43  # 256 bits
_SHAPE = re.compile(rf"([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}})")


@dataclass(frozen=True, slots=True)
class ApiSecret:
    """The id of a key and its secret, which cannot be shown again."""

    id: str
    secret: str
    prefix: str = PREFIX

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"ApiSecret({self.id!r}, '***')"

    @property
    def text(self) -> str:
        """The key as clients send it."""
        return f"{self.prefix}{self.id}_{self.secret}"

    @property
    def hash(self) -> bytes:
        """The stored form. A fast hash is safe, because the secret has 256 random bits."""
        return hashlib.sha256(self.secret.encode()).digest()

    def matches(self, secret_hash: bytes) -> bool:
        """Whether the secret matches the hash."""
        return compare_digest(self.hash, secret_hash)


def random_text(length: int) -> str:
    """Return random letters and digits, from a secure source."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_api_secret(prefix: str = PREFIX) -> ApiSecret:
    return ApiSecret(random_text(_ID_LENGTH), random_text(_SECRET_LENGTH), prefix)


def parse_api_secret(text: str, prefix: str = PREFIX) -> ApiSecret | None:
    """Return the parts of a key; None if the text does not have its form."""
    match = _SHAPE.fullmatch(text, len(prefix)) if text.startswith(prefix) else None
    return ApiSecret(match[1], match[2], prefix) if match else None


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key and its secret, which cannot be shown again."""

    key: ApiKey
    secret: ApiSecret


def issue_key(
    *, app_id: str, label: str, scopes: Iterable[str], now: int, expires_at: int | None = None
) -> IssuedKey:
    """Create a key without storing it."""
    check_new_key(label, expires_at, now)
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


def check_new_key(label: str, expires_at: int | None, now: int) -> None:
    """Raise `InvalidFields` if a new key must not be called this, or would have expired."""
    check_value("label", check_label, label)
    if expires_at is not None and expires_at <= now:
        raise InvalidFields(FieldFault("expires_at", "must be in the future"))


def check_label(label: str) -> str:
    if not 0 < len(label) <= LABEL_LENGTH:
        raise ValueError(f"must have 1 to {LABEL_LENGTH} characters")
    if not is_plain(label):
        raise ValueError("must not contain control characters")
    return label


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
