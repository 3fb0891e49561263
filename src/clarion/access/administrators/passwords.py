"""Passwords of administrators: which are refused, and how they are hashed and verified.

Argon2id with the parameters that OWASP recommends: 19 MiB, two passes, one lane, about 25 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from typing import ParamSpec, TypeVar

import argon2
import bcrypt

from clarion.errors import Overloaded

LEAST, MOST = 8, 256
# bcrypt reads no more than this.
_BCRYPT_BYTES = 72
_BCRYPT = ("$2a$", "$2b$", "$2y$")
# Each hash takes 19 MiB and a core for a moment.
_THREADS = 2
_WAITING = 32
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
# The hash of no password: verifying it takes as long as verifying that of an account.
_DUMMY = (
    "$argon2id$v=19$m=19456,t=2,p=1$dVZQqNn+fFTwlZ3+oUd5Bw"
    "$mqCC8EmTyhW/wR4+yymPmLWY4BOXY68t09hOaFVQON4"
)

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _read_common() -> frozenset[str]:
    text = (resources.files(__package__) / "common_passwords.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("# "))


def check_password(password: str, username: str) -> str:
    """Return a new password; `ValueError` with the reason if it is refused.

    Any characters are allowed and none are required: length and surprise make a password strong.
    """
    if not LEAST <= len(password) <= MOST:
        raise ValueError(f"must have {LEAST} to {MOST} characters")
    lower = password.lower()
    if lower in _read_common():
        raise ValueError("is among the 3,000 most common passwords: choose another one")
    if username and (lower == username.lower() or len(set(lower)) == 1):
        raise ValueError("must not be the username, or one character repeated")
    return password


def hash_password(password: str) -> str:
    """Return the hash to store."""
    return _hasher.hash(_encode(password))


def matches(password: str, password_hash: str | None) -> bool:
    """Whether the password matches the hash. Without a hash it is False, after the same time."""
    if password_hash and password_hash.startswith(_BCRYPT):
        return _matches_bcrypt(password, password_hash)
    try:
        _hasher.verify(password_hash or _DUMMY, _encode(password))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
    return password_hash is not None


def _matches_bcrypt(password: str, password_hash: str) -> bool:
    try:
        # What was hashed by bcrypt elsewhere was cut off there, too.
        return bcrypt.checkpw(_encode(password)[:_BCRYPT_BYTES], password_hash.encode())
    except ValueError:  # the hash is damaged
        return False


def needs_rehash(password_hash: str) -> bool:
    """Whether a hash was made in another way, or with other parameters, than new ones are."""
    if password_hash.startswith(_BCRYPT):
        return True
    return _hasher.check_needs_rehash(password_hash)


def _encode(password: str) -> bytes:
    # A lone surrogate, which JSON can hold, has no encoding; such a password is not refused late.
    return password.encode("utf-8", "surrogatepass")


class HashingThreads:
    """Runs slow hashes in a few threads; `Overloaded` if too many wait.

    A quarter of the places is kept for callers who are known by a session, a link or a device.
    """

    def __init__(self, threads: int = _THREADS, waiting: int = _WAITING) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._limit = threads + waiting
        self._limit_of_strangers = threads + waiting - waiting // 4
        self._count = 0

    async def hash(self, password: str) -> str:
        return await self.run(hash_password, password)

    async def matches(
        self, password: str, password_hash: str | None, *, is_known: bool = True
    ) -> bool:
        if not is_known:
            self._check(self._limit_of_strangers)
        return await self.run(matches, password, password_hash)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check(self._limit)
        self._count += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))
        finally:
            self._count -= 1

    def _check(self, limit: int) -> None:
        if self._count >= limit:
            raise Overloaded("Too many sign-ins at once. Try again in a moment.")

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
