"""The text of an API key: `ck_<id>_<secret>`. Only the hash of the secret is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from hmac import compare_digest

# The prefix lets secret scanners find a leaked key; the id finds its row without a search.
PREFIX = "ck_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 16  # 95 bits: unique, not secret
_SECRET_LENGTH = 43  # 256 bits
_SHAPE = re.compile(rf"ck_([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}})")


@dataclass(frozen=True, slots=True)
class ApiSecret:
    """The id of a key and its secret, which cannot be shown again."""

    id: str
    secret: str

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"ApiSecret({self.id!r}, '***')"

    @property
    def text(self) -> str:
        """The key as clients send it."""
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def hash(self) -> bytes:
        """What is stored. A fast hash is safe, because the secret has 256 random bits."""
        return hashlib.sha256(self.secret.encode()).digest()

    def matches(self, secret_hash: bytes) -> bool:
        """Whether the secret is the one that was hashed."""
        return compare_digest(self.hash, secret_hash)


def random_text(length: int) -> str:
    """Return random letters and digits, from a secure source."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_api_secret() -> ApiSecret:
    return ApiSecret(random_text(_ID_LENGTH), random_text(_SECRET_LENGTH))


def parse_api_secret(text: str) -> ApiSecret | None:
    """Return the parts of a key; None if the text does not have its form."""
    match = _SHAPE.fullmatch(text)
    return ApiSecret(match[1], match[2]) if match else None
