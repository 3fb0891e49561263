"""API keys as their holders see them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.access.secrets import ApiSecret, new_api_secret, parse_api_secret, random_text

SECRET = ApiSecret("0123456789abcdef", "s" * 43)


def test_a_new_key_has_the_shape_that_scanners_look_for() -> None:
    assert re.fullmatch(r"ck_[0-9A-Za-z]{16}_[0-9A-Za-z]{43}", new_api_secret().text)


def test_no_two_keys_are_the_same() -> None:
    made = [new_api_secret() for _ in range(200)]
    assert len({key.id for key in made}) == len({key.secret for key in made}) == 200


def test_a_key_is_read_as_it_was_written() -> None:
    assert parse_api_secret(SECRET.text) == SECRET


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ck_",
        SECRET.text[:-1],
        SECRET.text + "x",
        SECRET.text + "\n",
        " " + SECRET.text,
        SECRET.text.upper(),
        SECRET.text.replace("ck_", "pk_"),
        SECRET.text.replace("0", "ö"),
    ],
)
def test_what_has_another_shape_is_no_key(text: str) -> None:
    assert parse_api_secret(text) is None


@given(st.text())
def test_any_text_is_a_key_or_none(text: str) -> None:
    parsed = parse_api_secret(text)
    assert parsed is None or parsed.text == text


def test_only_the_secret_that_was_hashed_matches() -> None:
    assert SECRET.matches(SECRET.hash)
    assert not ApiSecret(SECRET.id, "t" * 43).matches(SECRET.hash)
    assert not SECRET.matches(b"")


def test_the_hash_has_256_bits_and_not_the_secret() -> None:
    assert len(SECRET.hash) == 32
    assert SECRET.secret.encode() not in SECRET.hash


def test_the_repr_does_not_show_the_secret() -> None:
    assert repr(SECRET) == "ApiSecret('0123456789abcdef', '***')"
    assert SECRET.secret not in f"{SECRET} {SECRET!r} {[SECRET]}"


def test_random_text_has_the_length_asked_for() -> None:
    assert [len(random_text(length)) for length in (0, 1, 43)] == [0, 1, 43]
