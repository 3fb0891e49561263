"""The proxies of `ops/proxies` in front of a server, and requests through them byte by byte."""

import re
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

from tests.e2e.asking import read_all
from tests.e2e.installation import Installation
from tests.ops.operations import OPS
from tests.processes import Account, Daemon, free_port
from tests.programs import find_program

NAME = "notify.example.com"
LIMIT_S = 60.0
Headers = tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """An answer; one without an id came from the proxy itself."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_from_clarion(self) -> bool:
        return "x-request-id" in self.headers


class Proxy(NamedTuple):
    """Where a proxy listens: plain, with TLS, and as a TCP proxy of the listener with TLS."""

    plain: int
    tls: int
    tcp: int | None = None


def _write_haproxy(folder: Path, server: Installation) -> tuple[Proxy, list[str]]:
    proxy = Proxy(free_port(), free_port(), free_port())
    text = (OPS / "proxies" / "haproxy.cfg").read_text()
    text = re.sub(r"^  server node-[23] .*\n", "", text, flags=re.MULTILINE)
    both = folder / "both.pem"
    both.write_text("".join((server.data / "tls" / f"server.{x}").read_text() for x in PARTS))
    tls = f"bind 127.0.0.1:{proxy.tls} ssl crt {both} alpn h2,http/1.1"
    text = _replace(
        text,
        {
            "node-1:8080": f"127.0.0.1:{server.port}",
            "node-1:8081": f"127.0.0.1:{server.gateway_port}",
            "node-1:8443": f"127.0.0.1:{server.tls_port}",
            "port 8080": f"port {server.port}",
            "bind :8080": f"bind 127.0.0.1:{proxy.plain}\n  {tls}",
            "bind :8443": f"bind 127.0.0.1:{proxy.tcp}",
        },
    )
    (folder / "haproxy.cfg").write_text(text)
    return proxy, [find_program("haproxy", "haproxy"), "-f", str(folder / "haproxy.cfg")]


def _write_nginx(folder: Path, server: Installation) -> tuple[Proxy, list[str]]:
    proxy = Proxy(free_port(), free_port())
    live = f"/etc/letsencrypt/live/{NAME}"
    text = _replace(
        (OPS / "proxies" / "nginx.conf").read_text(),
        {
            "127.0.0.1:8080": f"127.0.0.1:{server.port}",
            "127.0.0.1:8081": f"127.0.0.1:{server.gateway_port}",
            "listen 80;": f"listen 127.0.0.1:{proxy.plain};",
            "listen 443 ssl": f"listen 127.0.0.1:{proxy.tls} ssl",
            f"{live}/fullchain.pem": str(server.data / "tls" / "server.pem"),
            f"{live}/privkey.pem": str(server.data / "tls" / "server.key"),
        },
    )
    paths = "".join(
        f"{name}_temp_path {folder / name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder / 'pid'}; worker_processes 1; events {{}}\n"
        f"http {{ access_log off;\n{paths}{text}}}\n"
    )
    program = find_program("nginx", "nginx-light")
    command = [program, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "errors"]
    return proxy, [str(each) for each in command]


def _write_caddy(folder: Path, server: Installation) -> tuple[Proxy, list[str]]:
    proxy = Proxy(free_port(), free_port())
    keys = " ".join(str(server.data / "tls" / f"server.{part}") for part in PARTS)
    text = _replace(
        (OPS / "proxies" / "Caddyfile").read_text(),
        {
            "127.0.0.1:8080": f"127.0.0.1:{server.port}",
            "127.0.0.1:8081": f"127.0.0.1:{server.gateway_port}",
            f"\n{NAME} {{": f"\n{NAME} {{\n\ttls {keys}",
        },
    )
    ports = f"\thttp_port {proxy.plain}\n\thttps_port {proxy.tls}\n"
    everywhere = f"{{\n\tadmin off\n\tdefault_bind 127.0.0.1\n{ports}}}\n"
    (folder / "Caddyfile").write_text(everywhere + text)
    command = [find_program("caddy", "caddy"), "run", "--adapter=caddyfile"]
    return proxy, [*command, f"--config={folder / 'Caddyfile'}"]


def _replace(text: str, values: dict[str, str]) -> str:
    for old, new in values.items():
        assert old in text
        text = text.replace(old, new)
    return text


PARTS = ("pem", "key")
Write = Callable[[Path, Installation], tuple[Proxy, list[str]]]
PROXIES: dict[str, Write] = {
    "haproxy": _write_haproxy,
    "nginx": _write_nginx,
    "caddy": _write_caddy,
}


@contextmanager
def run_proxy(name: str, folder: Path, server: Installation) -> Iterator[Proxy]:
    """Run a proxy as it is shipped; only addresses and certificates are those of the test."""
    proxy, command = PROXIES[name](folder, server)
    daemon = Daemon(command, folder, Account(), lambda _: _is_up(proxy))
    daemon.start()
    try:
        yield proxy
    finally:
        daemon.stop(signal.SIGTERM)


def _is_up(proxy: Proxy) -> bool:
    """Whether the proxy listens, and knows that the server is ready."""
    try:
        return ask_http1(proxy.tls, "/ready", tls=True).status == 200
    except OSError:
        return False


def _connect(port: int, *, tls: bool, protocol: str = "http/1.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
    if not tls:
        return connection
    return _make_context(protocol).wrap_socket(connection, server_hostname=NAME)


@cache
def _make_context(protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def ask_http1(
    port: int, target: str, headers: Headers = (), *, tls: bool = False, version: str = "1.1"
) -> Answer:
    """Send a request with exactly this target, and these headers beside `Host`."""
    given = headers if any(name == "Host" for name, _ in headers) else (("Host", NAME), *headers)
    lines = [f"GET {target} HTTP/{version}", *(f"{name}: {value}" for name, value in given)]
    with _connect(port, tls=tls) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":")[::2] for line in rest)
    return Answer(int(first.split()[1]), {k.lower(): v.strip() for k, v in pairs}, body)


def ask_http2(port: int, target: str, headers: Headers = (), *, tls: bool = True) -> Answer:
    """Send a request over HTTP/2, without TLS by prior knowledge."""
    named = dict(headers)
    host = named.pop("Host", NAME)
    fields = {":method": "GET", ":scheme": "https" if tls else "http", ":authority": host}
    given = [*fields.items(), (":path", target)]
    given += [(name.lower(), value) for name, value in named.items() if name != "Connection"]
    machine = H2Connection(
        H2Configuration(
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    with _connect(port, tls=tls, protocol="h2") as connection:
        machine.initiate_connection()
        machine.send_headers(1, given, end_stream=True)
        return _receive(connection, machine)


def _receive(connection: socket.socket, machine: H2Connection) -> Answer:
    headers: dict[str, str] = {}
    body = b""
    while True:
        connection.sendall(machine.data_to_send())
        received = connection.recv(65_536)
        assert received, "closed without an answer"
        for event in machine.receive_data(received):
            match event:
                case ResponseReceived():
                    pairs = [(bytes(name), bytes(value)) for name, value in event.headers]
                    headers = {name.decode(): value.decode("latin-1") for name, value in pairs}
                case DataReceived():
                    body += event.data
                    machine.acknowledge_received_data(event.flow_controlled_length, 1)
                case StreamEnded():
                    return Answer(int(headers.pop(":status")), headers, body)
                case StreamReset():
                    # Refused before it was read as a request.
                    return Answer(400, {}, b"")
                case _:
                    pass


Ask = Callable[[str, Headers], Answer]


def list_ways(proxy: Proxy) -> dict[str, Ask]:
    """Return the ways over plain HTTP to ask through a proxy, and those over TLS."""
    ways: dict[str, Ask] = {
        "HTTP/1.1": partial(ask_http1, proxy.plain),
        "HTTP/1.0": partial(ask_http1, proxy.plain, version="1.0"),
        "HTTP/1.1 over TLS": partial(ask_http1, proxy.tls, tls=True),
        "HTTP/2 over TLS": partial(ask_http2, proxy.tls),
    }
    if proxy.tcp:
        ways["HTTP/2 through TCP"] = partial(ask_http2, proxy.tcp)
        ways["HTTP/1.1 through TCP"] = partial(ask_http1, proxy.tcp, tls=True)
    return ways
