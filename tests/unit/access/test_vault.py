"""The vault: a secret opens where it was sealed for, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.access.vault import AesVault
from clarion.errors import InternalError

VAULT = AesVault(b"k" * 32)


@given(secret=st.binary(), context=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_was_sealed_opens(secret: bytes, context: str) -> None:
    assert VAULT.open(VAULT.seal(secret, context), context) == secret


def test_the_same_secret_is_never_sealed_the_same_way_twice() -> None:
    assert len({VAULT.seal(b"secret", "place") for _ in range(100)}) == 100


def test_the_secret_cannot_be_seen_in_what_was_sealed() -> None:
    assert b"secret" not in VAULT.seal(b"secret", "place")


def test_a_secret_moved_to_another_place_does_not_open() -> None:
    with pytest.raises(InternalError, match=r"master\.key"):
        VAULT.open(VAULT.seal(b"secret", "apps/1"), "apps/2")


def test_another_key_does_not_open_it() -> None:
    with pytest.raises(InternalError):
        AesVault(b"x" * 32).open(VAULT.seal(b"secret", "place"), "place")


@given(data=st.data())
def test_any_change_to_it_is_noticed(data: st.DataObject) -> None:
    sealed = bytearray(VAULT.seal(b"secret", "place"))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InternalError):
        VAULT.open(bytes(sealed), "place")


@given(st.binary(max_size=64))
def test_what_was_never_sealed_does_not_open(sealed: bytes) -> None:
    with pytest.raises(InternalError):
        VAULT.open(sealed, "place")


def test_the_error_does_not_show_the_secret() -> None:
    with pytest.raises(InternalError) as raised:
        VAULT.open(VAULT.seal(b"hunter2", "place"), "other")
    assert "hunter2" not in str(raised.value)
