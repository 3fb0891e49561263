"""API keys as their holders see them: `ck_<id>_<secret>`. Only the secret's hash is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from hmac import compare_digest

# The prefix lets secret scanners find a leaked key; the id finds its row without a search.
PREFIX = "ck_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 16  # 95 bits: never guessed by chance, not secret
_SECRET_LENGTH = 43  # 256 bits
_SHAPE = re.compile(rf"ck_([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}})")


@dataclass(frozen=True, slots=True)
class ApiSecret:
    """A key's id and its secret, which is shown once."""

    id: str
    secret: str

    def __repr__(self) -> str:
        """Show the id alone."""
        return f"ApiSecret({self.id!r}, '***')"

    @property
    def text(self) -> str:
        """The whole key, for its holder."""
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def hash(self) -> bytes:
        """What is stored. The secret has 256 random bits, so a fast hash is safe."""
        return hashlib.sha256(self.secret.encode()).digest()

    def matches(self, secret_hash: bytes) -> bool:
        """Whether the secret is the one that was hashed."""
        return compare_digest(self.hash, secret_hash)


def random_text(length: int) -> str:
    """Return random letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_api_secret() -> ApiSecret:
    """Make a key."""
    return ApiSecret(random_text(_ID_LENGTH), random_text(_SECRET_LENGTH))


def parse_api_secret(text: str) -> ApiSecret | None:
    """Read a key; None if the text cannot be one."""
    match = _SHAPE.fullmatch(text)
    return ApiSecret(match[1], match[2]) if match else None
