"""Why a push was refused, in words."""

import msgspec
import pytest

from clarion.cli.calls import Answer
from clarion.cli.refusals import explain_push_refusal
from clarion.push.apns.reasons import Reason, status_of


def explain(reason: str, status: int = 400, **headers: str) -> str:
    return explain_push_refusal(
        Answer(status, headers, msgspec.json.encode({"reason": reason})), ""
    )


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_ends_with_the_status_and_apples_word(reason: Reason) -> None:
    status = status_of(reason)
    assert explain(reason, status).endswith(f" ({status} {reason.value})")


def test_a_refusal_says_when_to_try_again() -> None:
    headers = {"retry-after": "7"}
    assert "Try again in 7 s." in explain(Reason.TOO_MANY_REQUESTS, 429, **headers)


def test_a_word_of_a_newer_server_is_shown_as_it_is() -> None:
    assert explain("BrandNew") == "The server refused it. (400 BrandNew)"


def test_an_answer_of_somebody_else_is_told_apart() -> None:
    told = explain_push_refusal(Answer(200, {}, b"<html>"), "http://a")
    assert told == "http://a answers 200, but not as Clarion's APNs door does."
