"""Passwords of administrators."""

import asyncio
import threading

import argon2
import bcrypt
import pytest

from clarion.access.administrators.passwords import (
    _DUMMY,
    HashingThreads,
    check_password,
    hash_password,
    matches,
    needs_rehash,
)
from clarion.errors import Overloaded

HASH = hash_password("correct horse")


def test_a_hash_is_argon2id_with_the_parameters_of_owasp() -> None:
    assert HASH.startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_the_right_password_matches_and_no_other() -> None:
    assert matches("correct horse", HASH)
    assert not matches("correct horse ", HASH)
    assert not matches("", HASH)


def test_the_same_password_is_hashed_with_another_salt() -> None:
    assert hash_password("correct horse") != HASH


@pytest.mark.parametrize("password", ["", "pässwörd 🔑", "a\0b", "x" * 10_000])
def test_any_text_may_be_a_password(password: str) -> None:
    assert matches(password, hash_password(password))


@pytest.mark.parametrize(
    "broken",
    ["", "plain", "$argon2id$", HASH[:-3] + "!!!", HASH[:40]],
    ids=["empty", "plain", "only its kind", "no base64", "cut off"],
)
def test_a_broken_hash_matches_nothing(broken: str) -> None:
    assert not matches("correct horse", broken)


def test_a_hash_with_older_parameters_still_matches() -> None:
    older = argon2.PasswordHasher(time_cost=1, memory_cost=8192, parallelism=2).hash("old")
    assert matches("old", older)
    assert needs_rehash(older)
    assert not needs_rehash(HASH)


@pytest.mark.parametrize("kind", [b"2a", b"2b"])
def test_a_hash_of_bcrypt_matches_and_is_to_be_replaced(kind: bytes) -> None:
    old = bcrypt.hashpw(b"old password", bcrypt.gensalt(4, prefix=kind)).decode()
    assert matches("old password", old)
    assert not matches("another password", old)
    assert needs_rehash(old)


def test_a_long_password_matches_its_hash_of_bcrypt() -> None:
    """Older libraries used its first 72 bytes."""
    long = "x" * 100
    old = bcrypt.hashpw(long[:72].encode(), bcrypt.gensalt(4)).decode()
    assert matches(long, old)


def test_a_broken_hash_of_bcrypt_matches_nothing() -> None:
    assert not matches("correct horse", "$2b$12$short")


def test_without_a_hash_nothing_matches_and_the_same_work_is_done() -> None:
    assert not matches("correct horse", None)
    assert not needs_rehash(_DUMMY)


@pytest.mark.parametrize(
    "password", ["correct horse battery staple", "pässwörd 🔑", " " * 7 + "x", "xy" * 128]
)
def test_no_characters_are_required_and_none_forbidden(password: str) -> None:
    assert check_password(password, "ana") == password


def test_all_of_a_long_password_counts() -> None:
    stored = hash_password("x" * 255 + "y")
    assert matches("x" * 255 + "y", stored)
    assert not matches("x" * 255 + "z", stored)


@pytest.mark.parametrize("password", ["", "short", "x" * 7, "ab" * 129])
def test_the_length_is_limited(password: str) -> None:
    with pytest.raises(ValueError, match="must have 8 to 256 characters"):
        check_password(password, "ana")


@pytest.mark.parametrize("password", ["password", "Password", "qwertyuiop", "TRUSTNO1"])
def test_common_passwords_are_refused_however_they_are_written(password: str) -> None:
    with pytest.raises(ValueError, match="3,000 most common"):
        check_password(password, "ana")


def test_one_character_repeated_is_no_password() -> None:
    with pytest.raises(ValueError, match="one character repeated"):
        check_password("ä" * 20, "ana")


def test_the_username_is_no_password() -> None:
    with pytest.raises(ValueError, match="must not be the username"):
        check_password("Ana.Kovacs", "ana.kovacs")


async def test_more_hashes_than_may_wait_are_refused() -> None:
    hashing, going_on = HashingThreads(threads=1, waiting=1), threading.Event()
    try:
        waiting = [asyncio.ensure_future(hashing.run(going_on.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await hashing.hash("correct horse")
        going_on.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await hashing.matches("correct horse", await hashing.hash("correct horse"))
    finally:
        going_on.set()
        hashing.close()


async def test_places_are_kept_for_those_who_are_known() -> None:
    """A flood of strangers left no place for a trusted device or a session."""
    hashing, going_on = HashingThreads(threads=1, waiting=4), threading.Event()
    try:
        waiting = [asyncio.ensure_future(hashing.run(going_on.wait)) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await hashing.matches("correct horse", HASH, is_known=False)
        known = asyncio.ensure_future(hashing.matches("correct horse", HASH))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await hashing.matches("correct horse", HASH)
        going_on.set()
        assert await known
        await asyncio.gather(*waiting)
        assert await hashing.matches("correct horse", HASH, is_known=False)
    finally:
        going_on.set()
        hashing.close()
