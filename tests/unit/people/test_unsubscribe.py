"""The token of a link: nobody else can make one, and nothing can be read from it."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.catalog.model import Channel
from clarion.people.unsubscribe import OptOut, UnsubscribeLinks

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
START = "https://notify.example.com/unsubscribe/"
LINKS = UnsubscribeLinks([KEY], "https://notify.example.com")


def make_token(links: UnsubscribeLinks = LINKS, user_id: str = "ana@example.com") -> str:
    url = links.make("app-1", user_id, "ORDER_SHIPPED", Channel.EMAIL)
    assert url.startswith(START)
    return url.removeprefix(START)


def test_it_says_what_is_turned_off() -> None:
    expected = OptOut("app-1", "ana@example.com", "ORDER_SHIPPED", Channel.EMAIL)
    assert LINKS.read(make_token()) == expected
    assert make_token() == make_token()


def test_nothing_can_be_read_from_it() -> None:
    sealed = base64.urlsafe_b64decode(make_token() + "==")
    assert not any(text in sealed for text in (b"ana", b"app-1", b"ORDER", b"email"))


def test_the_longest_names_fit() -> None:
    url = LINKS.make("a" * 36, "u" * 128, "T" * 100, Channel.EMAIL)
    assert len(url) < 990
    assert LINKS.read(url.removeprefix(START)) is not None


def test_a_link_outlives_its_key() -> None:
    old = make_token(UnsubscribeLinks([OTHER_KEY], "https://notify.example.com"))
    assert LINKS.read(old) is None
    assert UnsubscribeLinks([KEY, OTHER_KEY], "").read(old) == LINKS.read(make_token())


def test_no_changed_token_is_taken() -> None:
    token = make_token()
    for index in range(len(token) - 1):  # the last character has bits that do not count
        other = "A" if token[index] != "A" else "B"
        assert LINKS.read(token[:index] + other + token[index + 1 :]) is None
    assert LINKS.read(token[:-8]) is None
    assert LINKS.read(f"{token}AAAA") is None


@given(st.text() | st.binary(max_size=200).map(lambda x: base64.urlsafe_b64encode(x).decode()))
def test_anything_else_is_none(token: str) -> None:
    assert LINKS.read(token) is None


@pytest.mark.parametrize("token", ["", "a", "..", "a" * 100_000, "\0", "ä" * 40, "a b" * 20])
def test_these_are_none(token: str) -> None:
    assert LINKS.read(token) is None
