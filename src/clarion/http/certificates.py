"""A certificate authority and certificate for development, created on the first start."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clarion.errors import StartError
from clarion.system.data_directory import write_private

_CA_DAYS = 3650
# Browsers and Apple's libraries refuse certificates that are valid for longer.
_SERVER_DAYS = 397
_RENEW_DAYS = 30
_CLOCK_SKEW = dt.timedelta(hours=1)


class DevelopmentTls:
    """The files of the development authority in a directory."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.pem"
        self.ca_key = folder / "ca.key"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"

    def ensure(self, now: dt.datetime) -> None:
        """Create missing files, and renew certificates that expire within 30 days."""
        try:
            if not _is_current(self.ca, self.ca_key, now):
                self._make_authority(now)
                self._make_certificate(now)
            elif not _is_current(self.certificate, self.key, now):
                self._make_certificate(now)
        except ValueError as error:
            folder = self.ca.parent
            msg = f"The certificates in {folder} are damaged. Delete this directory to renew them."
            raise StartError(msg) from error

    def _make_authority(self, now: dt.datetime) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Clarion development CA")
        certificate = (
            _builder(name, name, key.public_key(), now, _CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(_constraints(), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_private(self.ca_key, _pem(key))
        write_private(self.ca, certificate.public_bytes(serialization.Encoding.PEM))

    def _make_certificate(self, now: dt.datetime) -> None:
        authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        ca_key = serialization.load_pem_private_key(self.ca_key.read_bytes(), password=None)
        if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
            msg = f"{self.ca_key} was not created by Clarion. Delete its directory to renew it."
            raise StartError(msg)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(authority.subject, _name("localhost"), key.public_key(), now, _SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_names(), critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
            .sign(ca_key, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        write_private(self.key, _pem(key))
        write_private(
            self.certificate, certificate.public_bytes(encoding) + authority.public_bytes(encoding)
        )


def _is_current(certificate: Path, key: Path, now: dt.datetime) -> bool:
    if not (certificate.exists() and key.exists()):
        return False
    end = x509.load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc
    return end > now + dt.timedelta(days=_RENEW_DAYS)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _names() -> x509.SubjectAlternativeName:
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    return x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), *(x509.IPAddress(address) for address in addresses)]
    )


def _constraints() -> x509.NameConstraints:
    """Return for which names certificates count: who steals the key can pass for no other host."""
    networks = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
    permitted = [x509.DNSName("localhost"), *map(x509.IPAddress, networks)]
    return x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None)


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,  # the only format that Granian reads
        serialization.NoEncryption(),
    )


def load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server context for TLS 1.2 or later; a `StartError` names the wrong file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        msg = f"--tls-certificate, --tls-key: cannot use {certificate} with {key}: {error}"
        raise StartError(msg) from error
    return context


def read_expiry(certificate: Path) -> float:
    """Return when a certificate ends, in seconds since 1970; of a chain, the first that does."""
    chain = x509.load_pem_x509_certificates(certificate.read_bytes())
    return min(each.not_valid_after_utc.timestamp() for each in chain)
