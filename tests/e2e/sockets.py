"""Connections opened by hand, and HTTP/2 spoken over them."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import h2.connection
import h2.events

LIMIT_S = 100


@contextmanager
def open_plain(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
        yield connection


@contextmanager
def open_tls(port: int, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with (
        open_plain(port) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        yield connection


def ask_by_http_2(connection: socket.socket, path: str) -> tuple[int, bytes]:
    """Speak HTTP/2 at once, without having agreed upon it; return status and body."""
    protocol = h2.connection.H2Connection()
    protocol.initiate_connection()
    fields = {":method": "GET", ":path": path, ":scheme": "https", ":authority": "localhost"}
    protocol.send_headers(1, list(fields.items()), end_stream=True)
    status, body = 0, b""
    while True:
        connection.sendall(protocol.data_to_send())
        for event in protocol.receive_data(connection.recv(65_536)):
            if isinstance(event, h2.events.ResponseReceived):
                status = int(dict(event.headers)[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                body += event.data
            elif isinstance(event, h2.events.StreamEnded):
                return status, body
