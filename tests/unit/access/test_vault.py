"""The vault: a secret opens where it was sealed for, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.access.vault import Vault, find_key_id, key_id_of
from clarion.errors import InternalError, StartError

KEY = b"k" * 32
OTHER = b"x" * 32
VAULT = Vault(KEY)


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
    wanted = rf"master\.key does not have its key {VAULT.key_id.hex()}"
    with pytest.raises(InternalError, match=wanted):
        Vault(OTHER).open(VAULT.seal(b"secret", "place"), "place")


def test_a_sealed_value_names_its_key() -> None:
    sealed = VAULT.seal(b"secret", "place")
    assert find_key_id(sealed) == VAULT.key_id == key_id_of(KEY)
    assert key_id_of(OTHER) != VAULT.key_id
    assert VAULT.key_id not in KEY


def test_the_first_key_seals_and_all_of_them_open() -> None:
    both = Vault(OTHER, KEY)
    assert both.open(VAULT.seal(b"secret", "place"), "place") == b"secret"
    assert find_key_id(both.seal(b"secret", "place")) == key_id_of(OTHER)


def test_a_key_that_is_added_later_is_found() -> None:
    stored = [KEY]
    running = Vault(KEY, reread=lambda: stored)
    sealed = Vault(OTHER).seal(b"secret", "place")
    with pytest.raises(InternalError):
        running.open(sealed, "place")
    stored[:] = [OTHER, KEY]
    assert running.open(sealed, "place") == b"secret"
    # It seals with the key that it holds, until it is started again.
    assert find_key_id(running.seal(b"secret", "place")) == key_id_of(KEY)
    stored[:] = [OTHER]
    assert running.open(VAULT.seal(b"secret", "place"), "place") == b"secret"


def test_a_file_of_keys_that_cannot_be_read_again_is_no_new_key() -> None:
    def fail() -> tuple[bytes, ...]:
        raise StartError

    running = Vault(KEY, reread=fail)
    with pytest.raises(InternalError, match=r"master\.key does not have"):
        running.open(Vault(OTHER).seal(b"secret", "place"), "place")


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
