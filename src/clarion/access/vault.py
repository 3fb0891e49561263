"""The vault: secrets encrypted with AES-256-GCM; the key is not in the database."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clarion.errors import InternalError

_VERSION = b"\x01"
_NONCE_BYTES = 12
_CANNOT_DECRYPT = "Cannot decrypt a stored secret. Restore the master.key it was encrypted with."


class AesVault:
    """The `Vault` port: version, nonce and ciphertext; the context is authenticated data."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, secret: bytes, context: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        if sealed[:1] != _VERSION:
            raise InternalError(_CANNOT_DECRYPT)
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, context.encode())
        except (InvalidTag, ValueError) as error:
            raise InternalError(_CANNOT_DECRYPT) from error
