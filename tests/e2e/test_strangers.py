"""Whoever comes through a proxy on this machine is a stranger, whatever they send.

A TCP proxy in front of the listener with TLS adds nothing: its clients look as those here do. In
front of the plain one is an HTTP proxy, which says who asks.
"""

import http.client
import itertools
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.e2e.administrators import PASSWORD, make_administrator
from tests.e2e.installation import Installation

HIDDEN = ("/metrics", "/docs", "/openapi.json", "/demo")
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda path: path,
    "slash": lambda path: path + "/",
    "double": lambda path: "/" + path,
    "query": lambda path: path + "?x=1",
    "encoded": lambda path: path[0] + f"%{ord(path[1]):02x}" + path[2:],
    "upper": lambda path: path.upper(),
    "dots": lambda path: "/v1/.." + path,
    "semicolon": lambda path: path + ";x",
}
HEADERS = [
    {},
    {"Host": "localhost"},
    {"Host": "127.0.0.1"},
    {"Host": "[::1]:8080"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"},
    {"X-Forwarded-Host": "localhost", "Host": "localhost"},
    {"Forwarded": "for=127.0.0.1;host=localhost;proto=https"},
    {"X-Real-IP": "127.0.0.1", "Host": "localhost"},
]
SAID_BY_PROXY = {"X-Forwarded-For": "198.51.100.9", "X-Forwarded-Proto": "http"}
REFUSED = {400, 401, 403, 404}
ALLOWED = "203.0.113.0/24"
# By account alone; by the pair of account and address they would be five.
FAILURES = 100


class Stranger:
    """A client of one listener, on one connection."""

    def __init__(self, installation: Installation, *, over_tls: bool) -> None:
        host, limit_s = "127.0.0.1", 60
        self._added = {} if over_tls else SAID_BY_PROXY
        if over_tls:
            context = ssl.create_default_context(cafile=str(installation.data / "tls/ca.pem"))
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, installation.tls_port, timeout=limit_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, installation.port, timeout=limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def ask(self, path: str, headers: dict[str, str], body: object = None) -> tuple[int, bytes]:
        """Send a request with these headers, a POST if it has a body."""
        sent = b"" if body is None else json.dumps(body).encode()
        self._connection.putrequest("POST" if sent else "GET", path, skip_host="Host" in headers)
        more = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        for name, value in {**headers, **self._added, **(more if sent else {})}.items():
            self._connection.putheader(name, value)
        self._connection.endheaders(sent or None)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def sign_in(self, username: str, password: str, address: str = "203.0.113.7") -> int:
        given = {"username": username, "password": password}
        return self.ask("/v1/admin/session", {"X-Forwarded-For": address}, given)[0]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A server that knows that there are proxies on this machine."""
    flags = {"trusted_proxies": "127.0.0.0/8", "admin_networks": ALLOWED, "demo": "on"}
    installation = Installation(tmp_path_factory.mktemp("server"), **flags)
    installation.initialise()
    with installation:
        yield installation


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
def test_what_is_for_this_machine_is_hidden(proxied: Installation, *, over_tls: bool) -> None:
    tries = list(itertools.product(HIDDEN, SPELLINGS.items(), HEADERS))
    with Stranger(proxied, over_tls=over_tls) as stranger:
        asked = {
            (path, name, str(headers)): stranger.ask(spell(path), headers)[0]
            for path, (name, spell), headers in tries
        }
        for headers in HEADERS:
            signed = stranger.ask("/demo/token", headers, {"user_id": "demo-ana"})
            asked["/demo/token", "POST", str(headers)] = signed[0]
    assert {each: status for each, status in asked.items() if status not in REFUSED} == {}
    assert len(asked) == 297


def test_health_says_no_more_than_a_stranger_may_know(proxied: Installation) -> None:
    with Stranger(proxied, over_tls=True) as stranger:
        answers = [stranger.ask("/health", headers) for headers in HEADERS]
    assert {tuple(json.loads(body)) for _, body in answers} == {("status", "timestamp")}


def test_nobody_is_within_the_networks_of_administrators_by_a_header(
    proxied: Installation,
) -> None:
    given = {"username": "x", "password": "x"}
    with Stranger(proxied, over_tls=True) as stranger:
        pages = [stranger.ask("/admin/sign-in", headers)[0] for headers in HEADERS]
        sign_ins = [stranger.ask("/v1/admin/session", headers, given)[0] for headers in HEADERS]
    assert set(pages + sign_ins) == {403}


def test_without_tls_nobody_signs_in(proxied: Installation) -> None:
    with Stranger(proxied, over_tls=False) as stranger:
        assert {stranger.ask("/admin/sign-in", headers)[0] for headers in HEADERS} == {403}


def test_behind_a_tcp_proxy_failures_are_counted_by_account(tmp_path: Path) -> None:
    installation = Installation(tmp_path, trusted_proxies="127.0.0.0/8")
    installation.initialise()
    with installation, Stranger(installation, over_tls=True) as stranger:
        guessed, other = (make_administrator(installation) for _ in range(2))
        statuses = [
            stranger.sign_in(guessed.username, "wrong", f"203.0.113.{number}")
            for number in range(FAILURES + 1)
        ]
        assert statuses == [401] * FAILURES + [429]
        assert stranger.sign_in(other.username, PASSWORD) == 201
