"""The certificate authorities that a provider trusts in addition to the usual ones: a PEM file.

An app names the path, and the file is on the operator's machine. So every fault has the same text:
an app must not learn which files exist, or anything about their content.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates

from clarion.errors import FieldFault

CA_LIMIT_BYTES = 1 << 20
CA_FAULT = "must be the path of a file with PEM certificates that the server can read"


def find_ca_faults(ca_path: str | None) -> Iterator[FieldFault]:
    """Yield a fault if the file cannot be used."""
    try:
        if ca_path is not None:
            load_authorities(ca_path)
    except (OSError, ValueError):
        yield FieldFault("settings.ca_path", CA_FAULT)


def load_authorities(path: str) -> list[bytes]:
    """Return the certificates of a file as DER; `OSError` or `ValueError` if it has none."""
    # Opening a device can have effects. Files of the kernel have no size, and may never end.
    about = Path(path).stat()
    if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= CA_LIMIT_BYTES:
        raise ValueError(CA_FAULT)
    # Without waiting, should it have become a pipe meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = load_pem_x509_certificates(file.read(CA_LIMIT_BYTES))
    return [each.public_bytes(Encoding.DER) for each in found]


class UnreadableAuthority(ValueError):
    """The file is missing, not allowed to be read, or holds no certificates."""

    def __init__(self) -> None:
        super().__init__(f"`ca_path` {CA_FAULT}.")


def make_client_context(ca_path: str | None) -> ssl.SSLContext:
    """Return a context that checks certificates and names, for TLS 1.2 or later.

    It trusts the authorities of the system, and those in the file. It reads files: call it in a
    thread. `UnreadableAuthority` if the file does not contain certificates.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_path is not None:
        try:
            context.load_verify_locations(cadata=b"".join(load_authorities(ca_path)))
        except (OSError, ValueError, ssl.SSLError):
            raise UnreadableAuthority from None
    return context
