"""A client that sends requests over plain HTTP/1.1, one connection per request."""

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

ANSWER_LIMIT_S = 100
SILENCE_S = 20


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    set_cookies: tuple[str, ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> dict[str, Any]:
        """The answer as the problem that it must be."""
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = self.json
        assert set(problem) == {
            "type",
            "title",
            "status",
            "detail",
            "code",
            "errors",
            "request_id",
        }
        assert problem["status"] == self.status
        assert problem["type"] == f"/docs/errors#{problem['code']}"
        assert problem["request_id"] == self.headers["x-request-id"]
        return problem

    @property
    def fields(self) -> list[str]:
        """The fields that the problem names."""
        return [error["field"] for error in self.problem["errors"]]


class Asker:
    """Sends requests to one server, with the key of one app if it was given one."""

    def __init__(self, port: int, credential: str = "", address: str = "127.0.0.1") -> None:
        self.port = port
        self.address = address  # of this machine, from which the requests come
        self._headers = {"Authorization": f"Bearer {credential}"} if credential else {}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; bytes and streams of bytes go as they are, a dictionary as JSON.

        Every body is said to be JSON, unless the headers say otherwise.
        """
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        as_json = {} if body is None else {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=ANSWER_LIMIT_S, source_address=(self.address, 0)
        )
        try:
            connection.connect()
            with suppress(BrokenPipeError, ConnectionResetError):
                # A server that refuses a body answers and closes while it is still being sent.
                connection.request(
                    method, path, body, {**self._headers, **as_json, **(headers or {})}
                )
            answer = connection.getresponse()
            given = {name.lower(): value for name, value in answer.getheaders()}
            cookies = tuple(answer.headers.get_all("Set-Cookie", ()))
            return Answer(answer.status, given, answer.read(), cookies)
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def delete(self, path: str, **more: Any) -> Answer:
        return self.ask("DELETE", path, **more)

    def send_raw(self, data: bytes, *, ends: bool = True) -> bytes:
        """Send bytes, and return all that comes back until the server closes or falls silent.

        Once our end is closed, the server may drop what it was about to answer.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=SILENCE_S) as connection:
            try:
                connection.sendall(data)
                if ends:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # closed by the server while we were sending
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = b""
    try:
        while part := connection.recv(65_536):
            parts += part
    except OSError:
        pass
    return parts
