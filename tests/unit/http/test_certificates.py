"""The development authority: clients that trust it trust the server, and nobody else."""

import datetime as dt
import ipaddress
import socket
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from clarion.errors import StartError
from clarion.http.certificates import DevelopmentTls, load_context

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture
def tls(tmp_path: Path) -> DevelopmentTls:
    tls = DevelopmentTls(tmp_path)
    tls.ensure(NOW)
    return tls


def certificate_of(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """Return the version of TLS the two agree upon."""
    near, far = socket.socketpair()

    def accept() -> None:
        with far, server.wrap_socket(far, server_side=True) as peer:
            peer.recv(1)

    with ThreadPoolExecutor() as threads:
        accepting = threads.submit(accept)
        with near, client.wrap_socket(near, server_hostname=name) as peer:
            version = peer.version()
            peer.send(b"x")
        accepting.result()
    return version


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_the_authority_trusts_the_server(
    tls: DevelopmentTls, name: str
) -> None:
    client = ssl.create_default_context(cafile=str(tls.ca))
    assert shake_hands(load_context(tls.certificate, tls.key), client, name) == "TLSv1.3"


def test_the_chain_stands_up_to_strict_verification(tls: DevelopmentTls) -> None:
    client = ssl.create_default_context(cafile=str(tls.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shake_hands(load_context(tls.certificate, tls.key), client, "localhost")


def test_the_names_are_those_of_this_machine(tls: DevelopmentTls) -> None:
    names = certificate_of(tls.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.value.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("::1"),
    ]


def test_only_the_authority_can_sign_certificates(tls: DevelopmentTls) -> None:
    is_authority = {
        path: certificate_of(path)
        .extensions.get_extension_for_class(x509.BasicConstraints)
        .value.ca
        for path in (tls.ca, tls.certificate)
    }
    assert is_authority == {tls.ca: True, tls.certificate: False}


def test_the_authority_counts_for_this_machine_alone(tls: DevelopmentTls) -> None:
    """Who has its key can make a certificate for any name: clients must refuse it."""
    authority = x509.load_pem_x509_certificate(tls.ca.read_bytes())
    found = authority.extensions.get_extension_for_class(x509.NameConstraints)
    assert found.critical
    permitted = {str(each.value) for each in found.value.permitted_subtrees or ()}
    assert permitted == {"localhost", "127.0.0.0/8", "::1/128"}
    ca_key = load_pem_private_key(tls.ca_key.read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    forged = (
        x509.CertificateBuilder()
        .issuer_name(authority.subject)
        .subject_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("bank.example")]), critical=True)
        .sign(ca_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    tls.certificate.write_bytes(forged.public_bytes(Encoding.PEM))
    tls.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    server, client = load_context(tls.certificate, tls.key), ssl.create_default_context()
    client.load_verify_locations(tls.ca)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        shake_hands(server, client, "bank.example")


def test_the_certificate_is_signed_by_the_authority(tls: DevelopmentTls) -> None:
    certificate, authority = certificate_of(tls.certificate), certificate_of(tls.ca)
    certificate.verify_directly_issued_by(authority)
    assert certificate.issuer == authority.subject


def test_it_lasts_no_longer_than_clients_accept(tls: DevelopmentTls) -> None:
    certificate = certificate_of(tls.certificate)
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc < 398 * DAY


def test_private_keys_are_for_this_account_alone_and_in_pkcs8(tls: DevelopmentTls) -> None:
    for path in (tls.key, tls.ca_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_second_time_nothing_changes(tls: DevelopmentTls) -> None:
    before = tls.certificate.read_bytes(), tls.ca.read_bytes()
    tls.ensure(NOW + 300 * DAY)
    assert (tls.certificate.read_bytes(), tls.ca.read_bytes()) == before


def test_a_certificate_that_ends_within_30_days_is_renewed_by_the_same_authority(
    tls: DevelopmentTls,
) -> None:
    authority, old = tls.ca.read_bytes(), certificate_of(tls.certificate)
    tls.ensure(old.not_valid_after_utc - 30 * DAY)
    new = certificate_of(tls.certificate)
    assert tls.ca.read_bytes() == authority
    assert new.serial_number != old.serial_number
    new.verify_directly_issued_by(certificate_of(tls.ca))


@pytest.mark.parametrize("lost", ["certificate", "key"])
def test_what_was_lost_is_made_again(tls: DevelopmentTls, lost: str) -> None:
    getattr(tls, lost).unlink()
    tls.ensure(NOW)
    client = ssl.create_default_context(cafile=str(tls.ca))
    assert shake_hands(load_context(tls.certificate, tls.key), client, "localhost")


def test_without_its_key_the_authority_is_made_anew(tls: DevelopmentTls) -> None:
    old = certificate_of(tls.ca)
    tls.ca_key.unlink()
    tls.ensure(NOW)
    new = certificate_of(tls.ca)
    assert new.serial_number != old.serial_number
    certificate_of(tls.certificate).verify_directly_issued_by(new)


def test_an_authority_that_has_ended_is_made_anew(tls: DevelopmentTls) -> None:
    old = certificate_of(tls.ca)
    later = old.not_valid_after_utc + DAY
    tls.ensure(later)
    new = certificate_of(tls.ca)
    assert new.not_valid_after_utc > later
    certificate_of(tls.certificate).verify_directly_issued_by(new)


@pytest.mark.parametrize("name", ["certificate", "ca", "ca_key"])
def test_a_damaged_file_is_reported_with_advice(tls: DevelopmentTls, name: str) -> None:
    renewal = certificate_of(tls.certificate).not_valid_after_utc
    getattr(tls, name).write_bytes(b"nonsense")
    with pytest.raises(StartError, match=r"are damaged\. Delete this directory"):
        tls.ensure(renewal)


def test_tls_below_1_2_is_refused(tls: DevelopmentTls) -> None:
    assert load_context(tls.certificate, tls.key).minimum_version is ssl.TLSVersion.TLSv1_2


def test_files_that_do_not_match_are_reported(tls: DevelopmentTls) -> None:
    with pytest.raises(StartError, match=r"--tls-certificate, --tls-key: cannot use .*server\.pem"):
        load_context(tls.certificate, tls.ca_key)
    with pytest.raises(StartError, match=r"nowhere\.pem"):
        load_context(tls.certificate.with_name("nowhere.pem"), tls.key)
