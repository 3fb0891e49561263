"""Passwords of administrators."""

import argon2
import pytest

from clarion.access.passwords import hash_password, matches

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
