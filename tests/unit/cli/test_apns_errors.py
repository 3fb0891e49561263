"""Sentences that say why a push was refused."""

import msgspec
import pytest

from clarion.cli.apns_errors import explain_refusal
from clarion.client import Answer
from clarion.push.apns.reasons import Reason


def explain(reason: str, status: int = 400, **headers: str) -> str:
    return explain_refusal(Answer(status, headers, msgspec.json.encode({"reason": reason})), "")


@pytest.mark.parametrize("reason", Reason)
def test_an_explanation_ends_with_the_status_and_apples_reason(reason: Reason) -> None:
    status = reason.status
    assert explain(reason, status).endswith(f" ({status} {reason.value})")


def test_an_explanation_says_when_to_try_again() -> None:
    headers = {"retry-after": "7"}
    assert "Try again in 7 s." in explain(Reason.TOO_MANY_REQUESTS, 429, **headers)


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    assert explain("BrandNew") == "The server refused the push. (400 BrandNew)"


def test_a_response_of_another_server_is_recognised() -> None:
    text = explain_refusal(Answer(200, {}, b"<html>"), "http://a")
    assert text == "http://a responded 200, but not like an APNs endpoint."
