"""The certificate authorities that a provider trusts beside the usual ones: a PEM file.

An app names the path, and the file is on the machine of the operator. So every fault has the same
text: an app must not learn which files there are, or anything of what is in them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from cryptography.x509 import load_pem_x509_certificates

from clarion.errors import FieldFault

CA_LIMIT_BYTES = 1 << 20
CA_FAULT = "must be the path of a file with PEM certificates that the server can read"


def find_ca_faults(ca_path: str | None) -> Iterator[FieldFault]:
    """Yield a fault if the file cannot be used."""
    if ca_path is not None and not _is_usable(ca_path):
        yield FieldFault("settings.ca_path", CA_FAULT)


def _is_usable(path: str) -> bool:
    try:
        return bool(load_pem_x509_certificates(_read(path)))
    except (OSError, ValueError):
        return False


def _read(path: str) -> bytes:
    # Without waiting: it might be a pipe that nobody writes to.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > CA_LIMIT_BYTES:
            raise ValueError(CA_FAULT)
        return file.read(CA_LIMIT_BYTES)
