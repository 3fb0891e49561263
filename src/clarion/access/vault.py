"""Secrets that must be read again, encrypted with AES-256-GCM under a key outside the database."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clarion.errors import InternalError

_VERSION = b"\x01"
_NONCE_BYTES = 12
_DOES_NOT_OPEN = "a sealed secret does not open: is master.key the one it was sealed with?"


class AesVault:
    """The `Vault` port. Sealed is version, nonce and ciphertext; the context is authenticated."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret for one place."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt what was sealed for the same place."""
        if sealed[:1] != _VERSION:
            raise InternalError(_DOES_NOT_OPEN)
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, context.encode())
        except (InvalidTag, ValueError) as error:
            raise InternalError(_DOES_NOT_OPEN) from error
