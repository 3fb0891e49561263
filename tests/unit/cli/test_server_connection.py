"""Why a server was not reached, in one sentence."""

import pytest

from clarion.cli.server_connection import connect, explain_failure, find_cause
from clarion.client import NotReached
from clarion.errors import CommandFailed, StartError

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("client error (Connect): Connection refused (os error 111)", "No server is listening at"),
        ("client error (Connect): Network is unreachable (os error 101)", "Cannot reach"),
        ("client error (Connect): dns error", "The host name in"),
        ("invalid peer certificate: UnknownIssuer", "is not trusted: UnknownIssuer."),
        ("invalid peer certificate: Other(OtherError(CaUsed))", "is not trusted: CaUsed."),
        ("client error (Connect): received corrupt message", "The TLS handshake with"),
        ("Connection reset by peer (os error 104)", "does not respond like Clarion."),
        ("invalid HTTP version parsed", "does not respond like Clarion."),
    ],
)
def test_a_failure_is_explained(text: str, sentence: str) -> None:
    assert sentence in explain_failure(find_cause(NotReached(text)), URL, "--url")


def test_a_time_out_is_explained() -> None:
    late = NotReached("client error (Connect): operation timed out")
    explained = explain_failure(find_cause(late), URL, "--url")
    assert explained == f"{URL} did not respond in time."


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://host", "http://", "http://[::1", "http://a:b"]
)
def test_what_is_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(StartError, match="--url: must be like"):
        connect(url)


def test_a_key_that_no_header_can_have_is_explained_without_it() -> None:
    with pytest.raises(CommandFailed) as caught, connect(URL, "secret\nkey") as api:
        api.request("GET", "/v1/stats", returns=dict)
    assert caught.value.detail == f"Cannot send a request to {URL}: failed to parse header value."
