"""Passwords of administrators: Argon2id with the parameters that OWASP recommends."""

from __future__ import annotations

import argon2

# 19 MiB, two passes, one lane: about 25 ms. Call it in a thread, few at a time.
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)


def hash_password(password: str) -> str:
    """Return the hash to store."""
    return _hasher.hash(password)


def matches(password: str, password_hash: str) -> bool:
    """Whether the password is the one that was hashed."""
    try:
        return _hasher.verify(password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
