"""Contexts for TLS to a provider, with authorities of its own from a file on this server.

The file is an app's choice, so every fault of it has the same message: it says nothing
of what is on the disk.
"""

from __future__ import annotations

import ssl

from cryptography.hazmat.primitives.serialization import Encoding

from clarion.channels.authorities import CA_FAULT, load_authorities

DER = Encoding.DER


class UnreadableAuthority(ValueError):
    """The file is missing, not allowed to be read, or holds no certificates."""

    def __init__(self) -> None:
        super().__init__(f"`ca_path` {CA_FAULT}.")


def make_client_context(ca_path: str | None) -> ssl.SSLContext:
    """Return a context that checks certificates and names, for TLS 1.2 or later.

    It trusts the authorities of the system, and those in the file. It reads files: call it in a
    thread. `UnreadableAuthority` if the file is none of certificates.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_path is not None:
        try:
            known = load_authorities(ca_path)
            context.load_verify_locations(cadata=b"".join(c.public_bytes(DER) for c in known))
        except (OSError, ValueError, ssl.SSLError):
            raise UnreadableAuthority from None
    return context
