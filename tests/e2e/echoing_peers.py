"""Providers that fail, and repeat in their answer what they were sent: credentials and text."""

import base64
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class EchoingHandler(BaseHTTPRequestHandler):
    """Refuses every request, with an answer that repeats it whole."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.headers.get("Authorization", "")
        repeated = f"{given} {decode(given)} {self.path} {self.headers} {body.decode('latin-1')}"
        self.server.repeated.append(repeated)  # type: ignore[attr-defined]
        told = json.dumps({"code": 20003, "message": repeated, "error": repeated}).encode()
        self.send_response(500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_POST = do_GET = do_PUT = answer  # noqa: N815 - names of the base class

    def log_message(self, *_: Any) -> None: ...


def decode(header: str) -> str:
    """Return the user and password of a header, as a server would know them."""
    with suppress(ValueError):
        return base64.b64decode(header.removeprefix("Basic ")).decode("latin-1")
    return ""


class EchoingMailHandler(socketserver.StreamRequestHandler):
    """Speaks SMTP until it refuses the password, which its answer repeats."""

    def handle(self) -> None:
        with suppress(OSError):
            self.converse()

    def converse(self) -> None:
        self.wfile.write(b"220 mail.example.com\r\n")
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            if verb == "EHLO":
                self.wfile.write(b"250-mail.example.com\r\n250 AUTH PLAIN LOGIN\r\n")
            elif verb == "AUTH":
                given = decode(rest.partition(" ")[2]).replace("\x00", " ")
                self.server.repeated.append(given)  # type: ignore[attr-defined]
                self.wfile.write(f"535 5.7.8 {rest} means {given}\r\n".encode())
            else:
                self.wfile.write(b"221 bye\r\n")
                return


class Peers:
    """Both of them, each on a port of its own, and what they have repeated."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.repeated: list[str] = []
        self._web = ThreadingHTTPServer(("127.0.0.1", 0), EchoingHandler)
        self._mail = socketserver.ThreadingTCPServer(("127.0.0.1", 0), EchoingMailHandler)
        self._mail.socket = tls.wrap_socket(self._mail.socket, server_side=True)
        for each in (self._web, self._mail):
            each.daemon_threads = True
            each.repeated = self.repeated  # type: ignore[union-attr]
        self.web_port: int = self._web.server_address[1]
        self.mail_port: int = self._mail.server_address[1]

    @contextmanager
    def serving(self) -> Iterator["Peers"]:
        servers = (self._web, self._mail)
        threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in servers]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            for each in servers:
                each.shutdown()
                each.server_close()
