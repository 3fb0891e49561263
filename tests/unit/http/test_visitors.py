"""Where requests of administrators come from, their cookies, and which site sent them."""

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.errors import CrossSiteRequest
from clarion.http.strangers import Peers, normalise
from clarion.http.visitors import (
    DEVICE_COOKIE,
    SESSION_COOKIE,
    check_csrf,
    csrf_token_of,
    read_cookie,
    read_credential,
    read_visitor,
)

PEERS = Peers((ip_network("10.0.0.0/8"),), are_on_this_machine=True)


def make_scope(
    *headers: tuple[str, str], peer: str = "192.0.2.7", scheme: str = "http", method: str = "GET"
) -> dict[str, Any]:
    return {
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "client": (peer, 50000),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }


def forwarded(*addresses: str, proto: str = "https") -> list[tuple[str, str]]:
    return [
        *(("X-Forwarded-For", each) for each in addresses),
        ("X-Forwarded-Proto", proto),
    ]


@pytest.mark.parametrize(
    ("scope", "address", "is_secure"),
    [
        (make_scope(), "192.0.2.7", False),
        (make_scope(scheme="https"), "192.0.2.7", True),
        (make_scope(peer="::ffff:192.0.2.7"), "192.0.2.7", False),
        (make_scope(("Host", "127.0.0.1:8080"), peer="127.0.0.1"), "127.0.0.1", True),
        (make_scope(("Host", "localhost"), peer="::1"), "::1", True),
        # Something in front of it may have been reached over plain HTTP.
        (make_scope(("Host", "clarion.example"), peer="127.0.0.1"), "127.0.0.1", False),
        # Who is not a trusted proxy can say what they like.
        (make_scope(*forwarded("203.0.113.9")), "192.0.2.7", False),
        (make_scope(*forwarded("203.0.113.9"), peer="10.0.0.1"), "203.0.113.9", True),
        (make_scope(*forwarded("8.8.8.8", proto="http"), peer="10.0.0.1"), "8.8.8.8", False),
        (make_scope(*forwarded("8.8.8.8, 203.0.113.9"), peer="10.0.0.1"), "203.0.113.9", True),
        (make_scope(*forwarded("8.8.8.8", "8.8.4.4, 10.0.0.2"), peer="10.0.0.1"), "8.8.4.4", True),
        (make_scope(*forwarded("nonsense"), peer="10.0.0.1"), "10.0.0.1", True),
        (make_scope(*forwarded("8.8.8.8, nonsense"), peer="10.0.0.1"), "10.0.0.1", True),
        (make_scope(*forwarded("10.0.0.3"), peer="10.0.0.1"), "10.0.0.3", True),
        (make_scope(peer="10.0.0.1"), "10.0.0.1", False),
        # A TCP proxy passes on what the client says.
        (make_scope(*forwarded("8.8.8.8"), peer="10.0.0.1", scheme="https"), "", True),
        (make_scope(*forwarded("8.8.8.8"), scheme="https"), "192.0.2.7", True),
    ],
)
def test_only_trusted_proxies_are_believed(
    scope: dict[str, Any], address: str, *, is_secure: bool
) -> None:
    visitor = read_visitor(scope, PEERS)
    assert (visitor.address, visitor.is_secure) == (address, is_secure)


LOCALHOST = ("Host", "localhost")


@pytest.mark.parametrize(
    ("peers", "scope"),
    [
        (Peers(are_on_this_machine=False), make_scope(LOCALHOST, peer="127.0.0.1")),
        (PEERS, make_scope(LOCALHOST, peer="127.0.0.1", scheme="https")),
        (PEERS, make_scope(LOCALHOST, peer="192.0.2.7")),
        (PEERS, make_scope(LOCALHOST, ("Via", "1.1 x"), peer="127.0.0.1")),
        (PEERS, make_scope(("Host", "localhost.example"), peer="127.0.0.1")),
    ],
    ids=["open listener", "TLS", "elsewhere", "via", "host"],
)
def test_nobody_is_local_by_what_they_send(peers: Peers, scope: dict[str, Any]) -> None:
    assert not peers.is_local(scope)
    assert PEERS.is_local(make_scope(LOCALHOST, peer="127.0.0.1"))


@given(st.text())
def test_an_address_is_normalised_or_none(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ([("Cookie", f"{SESSION_COOKIE}=abc")], "abc"),
        ([("Cookie", f"a=1; {SESSION_COOKIE}=abc; b=2")], "abc"),
        ([("Cookie", "a=1"), ("Cookie", f"{SESSION_COOKIE}=abc")], "abc"),
        ([("Cookie", f"x{SESSION_COOKIE}=abc")], None),
        ([("Cookie", f"{SESSION_COOKIE}=")], None),
        ([("Cookie", f"{SESSION_COOKIE}=a; {SESSION_COOKIE}=b")], None),
        ([("Cookie", f"{SESSION_COOKIE}=" + "a" * 20_000)], None),
        ([], None),
    ],
)
def test_a_cookie_is_read_if_there_is_one_of_it(
    headers: list[tuple[str, str]], value: str | None
) -> None:
    assert read_cookie(make_scope(*headers), SESSION_COOKIE) == value


def test_the_token_of_a_session_says_nothing_about_its_secret() -> None:
    assert csrf_token_of("a") != csrf_token_of("b")
    assert len(csrf_token_of("secret")) == 43
    assert "secret" not in csrf_token_of("secret")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"])
def test_every_method_that_is_not_safe_needs_the_token(method: str) -> None:
    with pytest.raises(CrossSiteRequest):
        check_csrf(make_scope(method=method), "secret")
    token = ("Clarion-CSRF-Token", csrf_token_of("secret"))
    check_csrf(make_scope(token, method=method), "secret")
    with pytest.raises(CrossSiteRequest):
        check_csrf(make_scope(token, ("Sec-Fetch-Site", "cross-site"), method=method), "secret")


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_safe_methods_need_none(method: str) -> None:
    check_csrf(make_scope(("Sec-Fetch-Site", "cross-site"), method=method), "secret")


def test_a_credential_is_a_key_or_else_a_session() -> None:
    cookies = ("Cookie", f"{SESSION_COOKIE}=abc; {DEVICE_COOKIE}=device")
    scope = make_scope(cookies, ("Clarion-App", "shop"))
    session = read_credential(scope, None, Peers())
    assert session is not None
    assert (session.secret, session.is_key, session.app_id) == ("abc", False, "shop")
    assert session.visitor.device == "device"
    key = read_credential(scope, "Bearer cak_x", Peers())
    assert key is not None
    assert (key.secret, key.is_key) == ("cak_x", True)
    assert read_credential(make_scope(), None, Peers()) is None
    assert read_credential(scope, "Basic__cak_x", Peers()) is None


def test_no_secret_is_in_the_repr() -> None:
    cookies = ("Cookie", f"{SESSION_COOKIE}=s3cret; {DEVICE_COOKIE}=d3vice")
    shown = repr(read_credential(make_scope(cookies), None, Peers()))
    assert "s3cret" not in shown
    assert "d3vice" not in shown
