"""Hostile requests are refused, and the server keeps serving."""

import gzip
import socket
import time
from collections.abc import Iterator

import pytest

from tests.e2e.asking import read_all
from tests.e2e.conftest import Server

LIMIT = 1_048_576
HEADER_LIMIT = 8_192


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """After each test the server answers as before."""
    yield
    assert server.anyone.get("/health").json["status"] == "healthy"


def test_a_body_that_announces_too_much_is_413(server: Server) -> None:
    answer = server.app.post("/v1/keys", b"x" * (LIMIT + 1))
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


def test_a_body_of_chunks_that_grows_too_large_is_413(server: Server) -> None:
    answer = server.app.post("/v1/keys", (b"x" * 65_536 for _ in range(17)))
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


def test_a_body_of_the_largest_size_is_read(server: Server) -> None:
    body = b'{"label": "a", "scopes": ["*"]}'
    assert server.app.post("/v1/keys", body + b" " * (LIMIT - len(body))).status == 201


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"label": ' + b"[" * 100_000 + b"]" * 100_000 + b', "scopes": ["*"]}',
        b'{"label": "a", "scopes": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["lists", "objects", "in a text", "in a list", "in a field that is not there"],
)
def test_a_body_nested_without_end_is_refused(server: Server, body: bytes) -> None:
    answer = server.app.post("/v1/keys", body)
    assert answer.status in {400, 422}
    assert answer.problem["code"] in {"malformed_body", "invalid_fields"}


def test_a_body_with_an_endless_number_is_refused(server: Server) -> None:
    body = b'{"label": "a", "scopes": ["*"], "expires_at": ' + b"9" * 500_000 + b"}"
    assert server.app.post("/v1/keys", body).status in {400, 422}


def test_a_token_nested_without_end_is_refused(server: Server) -> None:
    nested = "W1tbW1tbW1tbW1tb" * 400
    headers = {"Authorization": f"Bearer eyJhbGciOiJIUzI1NiJ9.{nested}.x"}
    assert server.anyone.get("/v1/keys", headers=headers).status == 401


@pytest.mark.parametrize("size", [HEADER_LIMIT * 2, 1_000_000])
def test_headers_beyond_the_limit_are_refused(server: Server, size: int) -> None:
    head = b"GET /health HTTP/1.1\r\nhost: x\r\nx-much: " + b"x" * size + b"\r\n\r\n"
    answer = server.anyone.send_raw(head)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"\xff" * 10_000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost x\r\n\r\n",
        b"POST /v1/keys HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/keys HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 5_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\x00\x00\x00\x00\x00",
    ],
)
def test_bytes_that_are_not_http_are_refused(server: Server, data: bytes) -> None:
    answer = server.anyone.send_raw(data)
    assert not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"POST /v1/events", b"403"),
        (b"PUT /v1/types/ORDER", b"403"),
        (b"POST /v1/nothing", b"404"),
        (b"DELETE /v1/events", b"405"),
        (b"POST /v1/matrix/nothing", b"404"),
    ],
    ids=["fast route", "route", "no route", "other method", "no credentials"],
)
def test_whoever_is_refused_can_ask_again_on_the_connection(
    server: Server, request_line: bytes, status: bytes
) -> None:
    """Also if the body comes after the head: the connection was closed if it came after the answer.

    The pause is the fault that is tested.
    """
    made = server.app.post("/v1/keys", {"label": "test", "scopes": ["stats:read"]}).json
    key = str(made["api_key"]).encode()
    head = (
        b"%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n"
    ) % (request_line, key)
    bodies = {
        b"Content-Length: 2\r\n\r\n": b"{}",
        b"Transfer-Encoding: chunked\r\n\r\n": b"2\r\n{}\r\n0\r\n\r\n",
    }
    for length, body in bodies.items():
        with socket.create_connection(
            ("127.0.0.1", server.installation.port), timeout=60
        ) as connection:
            for _ in range(3):
                connection.sendall(head + length)
                time.sleep(0.2)
                connection.sendall(body)
                assert connection.recv(65_536).startswith(b"HTTP/1.1 %s " % status)


def test_two_lengths_of_one_body_do_not_smuggle_a_second_request(server: Server) -> None:
    hidden = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    head = (
        b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" % (len(hidden) + 5)
    )
    assert server.anyone.send_raw(head + hidden).count(b"HTTP/1.1 200") == 0


def test_a_client_that_disconnects_in_the_middle_of_its_body_does_no_harm(server: Server) -> None:
    address = ("127.0.0.1", server.installation.port)
    key = server.first["app"]["api_key"].encode()
    head = b"POST /v1/keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n" % key
    for _ in range(20):
        with socket.create_connection(address, timeout=60) as connection:
            connection.sendall(head + b"content-length: 99\r\n\r\n{")
    assert server.app.post("/v1/keys", {"label": "next", "scopes": ["*"]}).status == 201
    assert "request_failed" not in server.installation.events()


def test_many_silent_connections_keep_no_client_out(server: Server) -> None:
    address = ("127.0.0.1", server.installation.port)
    silent = [socket.create_connection(address, timeout=60) for _ in range(200)]
    try:
        assert server.app.get("/v1/keys").status == 200
    finally:
        for connection in silent:
            connection.close()


def test_plain_http_at_the_tls_port_is_refused(server: Server) -> None:
    address = ("127.0.0.1", server.installation.tls_port)
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200" not in read_all(connection)


@pytest.mark.parametrize("hosts", [b"", b"host: a\r\nhost: b\r\n", b"host: a\r\nhost: a\r\n"])
@pytest.mark.parametrize("path", [b"/health", b"/v1/keys", b"/3/device/00"])
def test_a_request_without_one_host_is_refused(server: Server, path: bytes, hosts: bytes) -> None:
    answer = server.anyone.send_raw(b"GET %s HTTP/1.1\r\n%s\r\n" % (path, hosts), ends=False)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"malformed_request" in answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("length", [b"1\na\n0\n\n", b"1\r\na\n0\r\n\r\n", b"+1\r\na\r\n0\r\n\r\n"])
def test_chunks_with_other_line_ends_or_lengths_are_refused(server: Server, length: bytes) -> None:
    """Their boundaries could be read in two ways."""
    key = server.first["app"]["api_key"].encode()
    head = (
        b"POST /v1/keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n"
        b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" % key
    )
    answer = server.anyone.send_raw(head + length, ends=False)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


def test_a_head_with_bare_line_feeds_is_refused(server: Server) -> None:
    head = b"GET /health HTTP/1.1\nhost: x\nconnection: close\n\n"
    answer = server.anyone.send_raw(head, ends=False)
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("type_", ["", "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("path", ["/v1/keys", "/v1/events", "/v1/events/batch", "/v1/explain"])
def test_a_body_that_is_not_sent_as_json_is_415(server: Server, path: str, type_: str) -> None:
    answer = server.app.post(path, {}, headers={"Content-Type": type_})
    assert (answer.status, answer.problem["code"]) == (415, "not_json")
    assert "Content-Type: application/json" in answer.problem["detail"]


def test_a_compressed_body_is_415(server: Server) -> None:
    bomb = gzip.compress(b" " * 100_000_000)
    answer = server.app.post("/v1/events", bomb, headers={"Content-Encoding": "gzip"})
    assert (answer.status, answer.problem["code"]) == (415, "not_json")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/health", "GET, HEAD"),
        ("GET", "/v1/events/batch", "POST"),
        ("PUT", "/v1/events", "GET, OPTIONS, POST"),
        ("PATCH", "/v1/keys", "GET, OPTIONS, POST"),
        ("GET", "/3/device/00", "POST"),
        ("DELETE", "/4/broadcasts/apps/com.example.demo", "POST"),
    ],
)
def test_a_method_that_is_not_allowed_is_told_which_are(
    server: Server, method: str, path: str, allowed: str
) -> None:
    answer = server.app.ask(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/docs", "/docs/errors", "/openapi.json", "/openapi.json/", "/docs/docs.js"],
)
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
def test_what_comes_through_a_proxy_gets_no_metrics_and_no_docs(
    server: Server, path: str, header: str
) -> None:
    assert server.anyone.get(path).status == 200
    answer = server.anyone.get(path, headers={header: "for=192.0.2.7"})
    assert (answer.status, answer.problem["code"]) == (404, "not_found")


def test_a_stranger_is_not_told_what_the_server_is_made_of(server: Server) -> None:
    through_a_proxy = {"X-Forwarded-For": "192.0.2.7"}
    health = server.anyone.get("/health", headers=through_a_proxy)
    assert set(health.json) == {"status", "timestamp"}
    assert server.anyone.get("/ready", headers=through_a_proxy).json == {"ready": True}
