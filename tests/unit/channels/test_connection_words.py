"""What went wrong between Clarion and a provider, in words."""

import socket

import pytest

from clarion.channels.answers import Action, Answer, AnswerTable
from clarion.channels.connection_words import (
    describe_http,
    describe_lookup,
    explain_refusal,
    name_cause,
)
from clarion.channels.model import Misconfigured, Rejected, Retry

HOST = "push.example.com"
TABLE = AnswerTable(
    Answer("535", Action.DISABLE, "The username or the password is wrong."), default=Action.RETRY
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "The host push.example.com was not found (EAI_NONAME)",
        ),
        (TimeoutError(), "The name push.example.com was not resolved in time (TimeoutError)"),
        (
            OSError("it has no address"),
            "The name push.example.com cannot be resolved: it has no address",
        ),
    ],
)
def test_a_name_that_is_not_resolved(error: Exception, text: str) -> None:
    assert describe_lookup(error, HOST) == text


@pytest.mark.parametrize(
    ("causes", "text"),
    [
        (
            ["client error (Connect)", "tcp connect error", "Connection refused (os error 111)"],
            "The host push.example.com refused the connection (ECONNREFUSED)",
        ),
        (
            ["client error (Connect)", "operation timed out"],
            "The host push.example.com did not answer in time (ConnectError)",
        ),
        (
            ["client error (Connect)", "invalid peer certificate: UnknownIssuer"],
            "The certificate of push.example.com is not valid (UnknownIssuer)",
        ),
        (
            ["received corrupt message of type InvalidContentType"],
            (
                "The TLS handshake with push.example.com failed "
                "(received corrupt message of type InvalidContentType)"
            ),
        ),
        (
            ["connection closed before message completed"],
            (
                "The connection to push.example.com failed "
                "(connection closed before message completed)"
            ),
        ),
        ([], "The connection to push.example.com failed (ConnectError)"),
    ],
)
def test_a_request_that_got_no_answer(causes: list[str], text: str) -> None:
    assert describe_http(causes, "ConnectError", HOST) == text


@pytest.mark.parametrize(
    ("code", "said", "text"),
    [
        ("535", "535 5.7.8 no", "The username or the password is wrong (535 5.7.8 no)"),
        ("535", "", "The username or the password is wrong (535)"),
        ("535", "It is a sentence already.", "It is a sentence already."),
        ("unknown", "what", "what"),
    ],
)
def test_a_refusal_of_everything_is_explained(code: str, said: str, text: str) -> None:
    refused = Misconfigured(error_code=code, error_message=said)
    explained = Misconfigured(error_code=code, error_message=text)
    assert explain_refusal(refused, TABLE) == explained


@pytest.mark.parametrize(
    ("code", "said", "cause"),
    [
        ("not_connected", "The host h refused the connection (ECONNREFUSED)", None),
        ("token not_connected", "The host h was not found (EAI_NONAME)", None),
        ("not_connected", "The connection to h failed (secret)", "Attempts fail."),
        ("535", "535 secret", "The username or the password is wrong."),
        ("500", "The host secret", "Attempts fail."),
    ],
)
def test_what_a_provider_sent_is_not_logged(code: str, said: str, cause: str | None) -> None:
    assert name_cause(Retry(error_code=code, error_message=said), TABLE) == (cause or said)


def test_what_is_wrong_with_one_message_stays_as_it_was_said() -> None:
    rejected = Rejected(error_code="535", error_message="535 no")
    assert explain_refusal(rejected, TABLE) == rejected
