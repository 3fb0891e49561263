"""The vault: secrets encrypted with AES-256-GCM; the keys are not in the database.

A sealed value is a version, the id of its key, a nonce and the ciphertext.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clarion.errors import InternalError, StartError

KEY_ID_BYTES = 4
_VERSION = b"\x02"
_NONCE_BYTES = 12
_CANNOT_DECRYPT = "Cannot decrypt a stored secret. Restore the master.key it was encrypted with."
_UNKNOWN_KEY = (
    "Cannot decrypt a stored secret: master.key does not have its key {}. Copy master.key from the "
    "node where `clarion vault rotate` ran, or restore it from a backup."
)


def key_id_of(key: bytes) -> bytes:
    """Return the id of a key. It says nothing about the key, which is random."""
    return hashlib.sha256(b"clarion key id" + key).digest()[:KEY_ID_BYTES]


def find_key_id(sealed: bytes) -> bytes:
    """Return the id of the key that a value is sealed with; it is empty if the value is damaged."""
    return sealed[1 : 1 + KEY_ID_BYTES] if sealed[:1] == _VERSION else b""


class Vault:
    """Encrypts secrets that must be read again. The context is authenticated with the secret.

    The first key seals, as long as the process runs; all of them open. `reread` returns the keys
    as they are stored now: another process may have added one since.
    """

    def __init__(
        self, key: bytes, *others: bytes, reread: Callable[[], Sequence[bytes]] | None = None
    ) -> None:
        self.key_id = key_id_of(key)
        self._ciphers: dict[bytes, AESGCM] = {}
        self._add((key, *others))
        self._cipher = self._ciphers[self.key_id]
        self._reread = reread

    def seal(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret; it can be decrypted with the same context only."""
        nonce = os.urandom(_NONCE_BYTES)
        ciphertext = self._cipher.encrypt(nonce, secret, context.encode())
        return b"".join((_VERSION, self.key_id, nonce, ciphertext))

    def open(self, sealed: bytes, context: str) -> bytes:
        if sealed[:1] != _VERSION:
            raise InternalError(_CANNOT_DECRYPT)
        cipher = self._find(find_key_id(sealed))
        encrypted = sealed[1 + KEY_ID_BYTES :]
        try:
            nonce, ciphertext = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
            return cipher.decrypt(nonce, ciphertext, context.encode())
        except (InvalidTag, ValueError) as error:
            raise InternalError(_CANNOT_DECRYPT) from error

    def _find(self, key_id: bytes) -> AESGCM:
        if key_id not in self._ciphers and self._reread is not None:
            with contextlib.suppress(StartError):  # the file cannot be read now
                self._add(self._reread())
        if key_id not in self._ciphers:
            raise InternalError(_UNKNOWN_KEY.format(key_id.hex()))
        return self._ciphers[key_id]

    def _add(self, keys: Sequence[bytes]) -> None:
        # A key that is no longer stored is kept: values that were read before may need it.
        self._ciphers.update((key_id_of(each), AESGCM(each)) for each in keys)
