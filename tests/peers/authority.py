"""A certificate authority for peers on loopback: files for a server, valid or expired."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Authority:
    """An authority whose certificate is in a file, and the server certificates that it signs."""

    folder: Path
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        authority = cls(folder, ec.generate_private_key(ec.SECP256R1()))
        made = (
            authority._builder("Peers", authority.key.public_key(), HOUR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(authority.key, hashes.SHA256())
        )
        authority.ca_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def ca_path(self) -> Path:
        return self.folder / "ca.pem"

    def server_context(self, protocols: list[str], *, expired: bool = False) -> ssl.SSLContext:
        """TLS for 127.0.0.1 with a certificate of this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        made = (
            self._builder("127.0.0.1", key.public_key(), -HOUR if expired else HOUR)
            .add_extension(name, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        path = self.folder / f"server-{made.serial_number}.pem"
        path.write_bytes(_pem(key) + made.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(protocols)
        return context

    def _builder(
        self, name: str, key: ec.EllipticCurvePublicKey, life: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name("Peers"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 48 * HOUR)
            .not_valid_after(now + life)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
