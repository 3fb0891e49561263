"""Recovery codes: each replaces a TOTP code once.

A code has 50 random bits, so that people can type it. That is too little for a fast hash, so they
are hashed like passwords, with one salt for all codes of an administrator: one hash is enough to
compare a code with all of them.
"""

from __future__ import annotations

import secrets
from hmac import compare_digest

import argon2

from clarion.access.administrators.model import RecoveryCode

COUNT = 10
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32, without those that look alike
_LENGTH = 10
_SALT_BYTES = 16
_HASH_BYTES = 32


def new_codes() -> list[str]:
    codes = ("".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH)) for _ in range(COUNT))
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def hash_codes(administrator_id: str, codes: list[str]) -> tuple[RecoveryCode, ...]:
    """Return the stored form of new codes. It takes a quarter of a second."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return tuple(
        RecoveryCode(administrator_id=administrator_id, code_hash=hash_code(code, salt), salt=salt)
        for code in codes
    )


def hash_code(code: str, salt: bytes) -> bytes:
    """Return the hash of a code, however it is typed."""
    plain = "".join(code.lower().split()).replace("-", "")
    return argon2.low_level.hash_secret_raw(
        plain.encode("utf-8", "replace"),
        salt,
        time_cost=2,
        memory_cost=19456,
        parallelism=1,
        hash_len=_HASH_BYTES,
        type=argon2.low_level.Type.ID,
    )


def find_code(code: str, stored: tuple[RecoveryCode, ...]) -> RecoveryCode | None:
    """Return the stored code that this is, or None."""
    if not stored:
        return None
    code_hash = hash_code(code, stored[0].salt)
    return next((each for each in stored if compare_digest(each.code_hash, code_hash)), None)
