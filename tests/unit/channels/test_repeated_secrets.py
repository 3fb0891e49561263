"""What a provider repeats of our secrets is not stored."""

import base64

import pytest

from clarion.channels.model import Delivered, Misconfigured, Retry, Verified
from clarion.channels.repeated_secrets import conceal

SECRET = "a5e1d7c0ffee"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"wrong token {SECRET}, twice {SECRET}.", "wrong token …, twice …."),
        (f"cut short {SECRET[:-3]}", "cut short …"),
        ("nothing of it", "nothing of it"),
        ("", ""),
    ],
)
def test_a_secret_is_hidden(text: str, shown: str) -> None:
    failed = Retry(error_code="500", error_message=text, after_s=3.0)
    hidden = conceal(failed, [SECRET])
    assert hidden == Retry(error_code="500", error_message=shown, after_s=3.0)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc:"])
def test_so_is_one_in_base64(before: str) -> None:
    text = base64.b64encode(f"{before}{SECRET}".encode()).decode()
    hidden = conceal(Misconfigured(error_code="401", error_message=f"Basic {text}"), [SECRET])
    assert "…" in hidden.error_message
    left = hidden.error_message.removeprefix("Basic ").partition("…")
    # At most the characters that it shares with its neighbours.
    assert len(left[0]) <= len(before) + 4
    assert len(left[2]) <= 4


def test_answers_of_other_kinds_are_treated_too() -> None:
    assert conceal(Delivered(response=SECRET), [SECRET]) == Delivered(response="…")
    assert conceal(Verified(response=SECRET), [SECRET]) == Verified(response="…")
    assert conceal(Delivered(), [SECRET]) == Delivered()


def test_a_short_secret_would_spoil_ordinary_texts() -> None:
    failed = Misconfigured(error_code="401", error_message="the user is unknown")
    assert conceal(failed, ["user"]) == failed
