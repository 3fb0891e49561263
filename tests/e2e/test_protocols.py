"""HTTP/1.1 and HTTP/2, with and without TLS, as clients of all ages speak them."""

import json
import ssl
from pathlib import Path

import pytest
from pyreqwest.client import SyncClientBuilder

from tests.e2e.conftest import Server
from tests.e2e.sockets import ask_by_http_2, open_plain, open_tls


def authority(server: Server) -> Path:
    return Path(server.first["tls"]["ca_path"])


def trusting(server: Server) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority(server)))


def builder(server: Server) -> SyncClientBuilder:
    trusted = authority(server).read_bytes()
    return SyncClientBuilder().http2(enable=True).add_root_certificate_pem(trusted)


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/1.1"])
def test_a_client_that_trusts_the_authority_is_served_over_tls(
    server: Server, version: str
) -> None:
    wanted = builder(server).http1_only() if version == "HTTP/1.1" else builder(server)
    with wanted.build() as client:
        answer = client.get(f"{server.first['urls']['tls']}/health").build().send()
        assert (answer.status, answer.version) == (200, version)
        assert answer.json()["status"] == "healthy"


def test_a_client_that_does_not_trust_it_turns_away(server: Server) -> None:
    with (
        pytest.raises(ssl.SSLCertVerificationError),
        open_tls(server.installation.tls_port, ssl.create_default_context()),
    ):
        pass


def test_a_key_is_made_over_http_2(server: Server) -> None:
    with builder(server).build() as client:
        answer = (
            client.post(f"{server.first['urls']['tls']}/v1/keys")
            .bearer_auth(server.first["app"]["api_key"])
            .body_json({"label": "by HTTP/2", "scopes": ["*"]})
            .build()
            .send()
        )
        assert (answer.status, answer.version) == (201, "HTTP/2.0")


def test_a_body_over_the_limit_is_413_over_http_2_too(server: Server) -> None:
    with builder(server).build() as client:
        answer = (
            client.post(f"{server.first['urls']['tls']}/v1/keys")
            .bearer_auth(server.first["app"]["api_key"])
            .body_bytes(b"x" * 1_048_577)
            .build()
            .send()
        )
        assert answer.status == 413


def test_http_2_is_agreed_upon_by_alpn(server: Server) -> None:
    context = trusting(server)
    for offered, agreed in [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1")]:
        context.set_alpn_protocols(offered)
        with open_tls(server.installation.tls_port, context) as connection:
            assert connection.selected_alpn_protocol() == agreed


def test_http_2_is_served_to_a_client_that_offers_no_alpn(server: Server) -> None:
    with open_tls(server.installation.tls_port, trusting(server)) as connection:
        assert connection.selected_alpn_protocol() is None
        status, body = ask_by_http_2(connection, "/health")
    assert (status, json.loads(body)["status"]) == (200, "healthy")


def test_http_2_is_served_without_tls_to_those_who_know(server: Server) -> None:
    with open_plain(server.installation.port) as connection:
        status, body = ask_by_http_2(connection, "/health")
    assert (status, json.loads(body)["status"]) == (200, "healthy")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_served(server: Server, version: ssl.TLSVersion) -> None:
    context = trusting(server)
    context.minimum_version = context.maximum_version = version
    with open_tls(server.installation.tls_port, context) as connection:
        assert connection.version() == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_1_1_is_refused(server: Server) -> None:
    context = trusting(server)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # or our own side would refuse before
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        pytest.raises((ssl.SSLError, ConnectionResetError)) as raised,
        open_tls(server.installation.tls_port, context),
    ):
        pass
    assert "NO_PROTOCOLS_AVAILABLE" not in str(raised.value)


def test_many_requests_share_one_connection(server: Server) -> None:
    with builder(server).http2_prior_knowledge().build() as client:
        url = f"{server.first['urls']['api']}/health"
        versions = {client.get(url).build().send().version for _ in range(20)}
    assert versions == {"HTTP/2.0"}
