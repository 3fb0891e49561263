"""A PostgreSQL as Debian installs it: only its own account needs no password."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.processes import Daemon, unprivileged
from tests.servers import PostgresServer

HBA = """local all postgres peer map=debian
local all all peer
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
"""
# Pages become that account by `sudo -u postgres`.
SUDO = """#!/bin/sh
[ "$1 $2" = "-u postgres" ] || {{ echo "sudo: only as postgres" >&2; exit 97; }}
shift 2
export PGHOST={folder} PGPORT={port}
cd /
exec {become} "$@"
"""
CERTIFICATE, KEY = "server.crt", "server.key"


class DebianPostgres(PostgresServer):
    """As `apt-get install postgresql` leaves it, but for its port and the folder of its socket."""

    def prepare(self, folder: Path) -> Daemon:
        daemon = super().prepare(folder)
        data, account = folder / "data", unprivileged()
        (data / "pg_hba.conf").write_text(HBA)
        # Whichever account runs it here is what Debian calls postgres.
        (data / "pg_ident.conf").write_text("debian /^.*$ postgres\n")
        make_certificate(data)
        account.own(data)
        self.certificate = (data / CERTIFICATE).read_bytes()
        become = ""
        if account.user is not None:
            become = f"setpriv --reuid={account.user} --regid={account.group} --clear-groups"
        self.sudo = SUDO.format(folder=shlex.quote(str(folder)), port=self.port, become=become)
        return daemon


def make_certificate(folder: Path) -> None:
    """Write a certificate for localhost that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path = folder / KEY
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.chmod(0o600)
