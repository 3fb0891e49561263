"""A stranger who opens more connections than the process has descriptors."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.e2e.asking import ANSWER_LIMIT_S
from tests.e2e.installation import Installation

DESCRIPTORS, STRANGERS = 256, 400
# As many as can wait to be accepted, eight at a time, would take 16 s.
WAITED_S = 6.0


@pytest.fixture(params=["sqlite", "postgres"])
def installation(
    tmp_path: Path, request: pytest.FixtureRequest, postgres_database: str
) -> Installation:
    flags = {"database": postgres_database} if request.param == "postgres" else {}
    installation = Installation(tmp_path, **flags)
    installation.descriptors = DESCRIPTORS
    return installation


@contextlib.contextmanager
def strangers(ports: list[int]) -> Iterator[None]:
    """Hold connections that say nothing."""
    held = []
    for number in range(STRANGERS):
        each = socket.socket()
        each.setblocking(False)  # noqa: FBT003 - the socket's own signature
        each.connect_ex(("127.0.0.1", ports[number % len(ports)]))
        held.append(each)
    yield
    for each in held:
        each.close()


class Client:
    """An app that has been connected since before the strangers came."""

    def __init__(self, port: int, key: str) -> None:
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_LIMIT_S)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> int:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, self._headers)
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        self._connection.close()


def test_strangers_who_come_first_do_not_end_the_server(installation: Installation) -> None:
    """What it is ready without is built right after, and needs descriptors."""
    first = installation.initialise()
    ports = [installation.port, installation.tls_port, installation.gateway_port]
    with installation, strangers(ports):
        client = Client(installation.port, first["app"]["api_key"])
        with contextlib.closing(client):
            assert client.ask("GET", "/v1/stats") == 200


@pytest.mark.timing
def test_a_request_is_served_although_strangers_are_silent(installation: Installation) -> None:
    """As many as the listener has room for were accepted and held for a second, in turn."""
    first = installation.initialise()
    with installation:
        for _ in range(2):
            client = Client(installation.port, first["app"]["api_key"])
            with contextlib.closing(client):
                assert client.ask("GET", "/v1/stats") == 200
            with strangers([installation.port]):
                began = monotonic()
                client = Client(installation.port, first["app"]["api_key"])
                with contextlib.closing(client):
                    assert client.ask("GET", "/live") == 200
                assert monotonic() - began < WAITED_S


def test_the_store_goes_on_without_a_free_descriptor(installation: Installation) -> None:
    first = installation.initialise()
    client = Client(installation.port, first["app"]["api_key"])
    with installation, contextlib.closing(client):
        # What a first request imports is imported.
        assert client.ask("PUT", "/v1/users/first", {"language": "en"}) == 201
        ports = [installation.port, installation.tls_port, installation.gateway_port]
        with strangers(ports):
            for number in range(3):
                path = f"/v1/users/user-{number}"
                answers = {
                    "write": client.ask("PUT", path, {"language": "en"}),
                    "short read": client.ask("GET", path),
                    "long read": client.ask("GET", "/v1/stats"),
                    "ready": client.ask("GET", "/ready"),
                }
                assert answers == {"write": 201} | dict.fromkeys(list(answers)[1:], 200)
