"""Contexts for TLS to a provider, with authorities of its own from a file on this server.

The file is an app's choice, so whatever is wrong with it has the same message: it says nothing
of what is on the disk.
"""

from __future__ import annotations

import os
import ssl
import stat

FILE_LIMIT_BYTES = 1 << 20
UNREADABLE = "must be the path of a file with PEM certificates that the server can read"


class UnreadableAuthority(ValueError):
    """The file is missing, not allowed to be read, or holds no certificates."""

    def __init__(self) -> None:
        super().__init__(f"`ca_path` {UNREADABLE}.")


def make_client_context(ca_path: str | None) -> ssl.SSLContext:
    """Return a context that checks certificates and names, for TLS 1.2 or later.

    It trusts the authorities of the system, and those in the file. It reads files: call it in a
    thread. `UnreadableAuthority` if the file is none of certificates.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_path is not None:
        try:
            context.load_verify_locations(cadata=_read(ca_path).decode("ascii"))
        except (OSError, ValueError, ssl.SSLError):
            raise UnreadableAuthority from None
    return context


def can_use(ca_path: str) -> bool:
    """Whether a file holds certificates."""
    try:
        make_client_context(ca_path)
    except UnreadableAuthority:
        return False
    return True


def _read(path: str) -> bytes:
    """Read a regular file: a device or a pipe could be read for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_LIMIT_BYTES:
            raise UnreadableAuthority
        return os.read(descriptor, FILE_LIMIT_BYTES)
    finally:
        os.close(descriptor)
