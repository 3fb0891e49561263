"""The seal of a backup: an HMAC of its manifest, with a key derived from the master key.

The manifest has the size and the checksum of each member. So nobody can change or create a backup
without the master key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_PURPOSE = b"clarion backup"
_KEY_BYTES = 32


def make_seal(master_key: bytes, manifest: bytes) -> bytes:
    """Return the seal of a manifest."""
    key = HKDF(hashes.SHA256(), _KEY_BYTES, None, _PURPOSE).derive(master_key)
    return hmac.digest(key, manifest, hashlib.sha256).hex().encode()


def is_sealed(master_keys: Iterable[bytes], manifest: bytes, seal: bytes) -> bool:
    """Whether a seal was made with one of the keys, for this manifest."""
    return any(hmac.compare_digest(make_seal(key, manifest), seal) for key in master_keys)
