"""Encoded words in headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.http.encoded_words import read_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"plain", "plain"),
        (b"  spaces around\t", "spaces around"),
        ("Größe".encode(), "Größe"),
        (b"=?UTF-8?B?R3LDtsOfZQ==?=", "Größe"),
        (b"=?utf-8?Q?Gr=C3=B6=C3=9Fe_x?=", "Größe x"),
        (b"=?iso-8859-1?q?caf=E9?= au lait", "café au lait"),
        (b"=?UTF-8*en?Q?hi?=", "hi"),
        (b"=?utf-8?q?a?= =?utf-8?q?b?=  =?utf-8?q?c?= d", "abc d"),
        (b"a =?utf-8?q?b?= c", "a b c"),
        (b"=?utf-8?x?b?=", "=?utf-8?x?b?="),
        (b"1 =? 2", "1 =? 2"),
        (b"=?utf-8?q??=", ""),
    ],
)
def test_text_is_decoded(value: bytes, text: str) -> None:
    assert read_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        b"=?utf-8?b?***?=",
        b"=?utf-8?b?YQ=?=",
        b"=?utf-8?q?=FF?=",
        b"=?utf-7?q?+AGE-?=",
        b"=?us-ascii?q?=E9?=",
    ],
)
def test_what_is_not_valid_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"must be|not valid"):
        read_text(value)


def test_a_hostile_header_costs_little() -> None:
    """The patterns do not go back over what they have read."""
    for value in (b"=?" * 30_000, b"=?utf-8?q?" + b"a" * 60_000, b"=? ?=" + b" " * 60_000 + b"x"):
        assert len(read_text(value)) >= 60_000


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_refused(value: bytes) -> None:
    try:
        assert isinstance(read_text(value), str)
    except ValueError as error:
        assert not isinstance(error, UnicodeError)  # noqa: PT017
