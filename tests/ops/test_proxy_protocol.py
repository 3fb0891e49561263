"""HAProxy in TCP mode names its clients by the PROXY protocol, in front of `--listen`."""

import contextlib
import http.client
import signal
import ssl
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.e2e.installation import Installation
from tests.ops.proxies import PARTS, ask_http1, ask_http2
from tests.processes import Account, Daemon, free_port
from tests.programs import find_program

CONFIGURATION = """
defaults
  mode tcp
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend plain
  bind 127.0.0.1:{plain}
  default_backend clarion
frontend tls
  bind 127.0.0.1:{tls} ssl crt {certificate}
  default_backend clarion
backend clarion
  server clarion 127.0.0.1:{server} send-proxy-v2-ssl
"""
# Anything in 127.0.0.0/8 is this machine; only the first is the proxy.
CLIENT = "127.0.0.9"


class Haproxy(NamedTuple):
    plain: int
    tls: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(
        tmp_path_factory.mktemp("server"),
        trusted_proxies="127.0.0.1/32",
        proxy_protocol="on",
        admin_networks=f"{CLIENT}/32",
    )
    installation.initialise()
    with installation:
        yield installation


@pytest.fixture(scope="module")
def haproxy(server: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haproxy]:
    folder, found = tmp_path_factory.mktemp("haproxy"), Haproxy(free_port(), free_port())
    both = folder / "both.pem"
    both.write_text("".join((server.data / "tls" / f"server.{x}").read_text() for x in PARTS))
    text = CONFIGURATION.format(**found._asdict(), certificate=both, server=server.port)
    (folder / "haproxy.cfg").write_text(text)
    command = [find_program("haproxy", "haproxy"), "-f", str(folder / "haproxy.cfg")]
    daemon = Daemon(command, folder, Account(), lambda _: is_up(found))
    daemon.start()
    yield found
    daemon.stop(signal.SIGTERM)


def is_up(haproxy: Haproxy) -> bool:
    try:
        return ask_http1(haproxy.plain, "/ready").status == 200
    except OSError:
        return False


def ask(port: int, path: str, client: str, *, tls: bool = False) -> int:
    """Return the status of a request from an address of this machine."""
    source = (client, 0)
    if tls:
        context = ssl._create_unverified_context()  # noqa: S323 - its name is not that of this machine
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=20, source_address=source, context=context
        )
    else:
        connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=20, source_address=source
        )
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Host": "localhost"})
        return connection.getresponse().status


def test_nobody_behind_the_proxy_is_local(haproxy: Haproxy) -> None:
    for tls in (False, True):
        port = haproxy.tls if tls else haproxy.plain
        statuses = [ask(port, path, "127.0.0.1", tls=tls) for path in ("/metrics", "/docs")]
        assert statuses == [404, 404]


def test_administrators_are_known_by_their_own_addresses_and_by_tls(haproxy: Haproxy) -> None:
    page = "/admin/sign-in"
    assert ask(haproxy.tls, page, CLIENT, tls=True) == 200
    assert ask(haproxy.tls, page, "127.0.0.8", tls=True) == 403
    assert ask(haproxy.plain, page, CLIENT) == 403


def test_others_than_the_proxy_are_asked_for_no_header(server: Installation) -> None:
    assert ask(server.port, "/ready", "127.0.0.8") == 200
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(server.port, "/ready", "127.0.0.1")


def test_requests_over_http_2_have_the_same_client(haproxy: Haproxy) -> None:
    assert ask_http2(haproxy.plain, "/metrics", (("Host", "localhost"),), tls=False).status == 404
    assert ask_http2(haproxy.plain, "/ready", tls=False).status == 200
    assert ask_http2(haproxy.plain, "/admin/sign-in", tls=False).status == 403
