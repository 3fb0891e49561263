"""The receiving end of Web Push: keys, and decryption by `http_ece`."""

import json
from typing import Any

import http_ece  # type: ignore[import-untyped]
from cryptography.hazmat.primitives.asymmetric import ec

from clarion.push.model.vapid import CURVE, read_base64url, write_base64url, write_public_key


class Browser:
    """Has a subscription, and decrypts by `http_ece` what was sent to it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(CURVE)
        self.auth = b"sixteen bytes ok"

    def subscription(self, endpoint: str) -> str:
        keys = {
            "p256dh": write_public_key(self.key.public_key()),
            "auth": write_base64url(self.auth),
        }
        return json.dumps({"endpoint": endpoint, "expirationTime": None, "keys": keys})

    def decrypt(self, body: bytes) -> bytes:
        plain: bytes = http_ece.decrypt(
            body, private_key=self.key, auth_secret=self.auth, version="aes128gcm"
        )
        return plain

    def open(self, received: dict[str, Any]) -> bytes:
        """Return the text of a message that a device got from its endpoint."""
        body = read_base64url(received["body"])
        if received["encoding"] == "aes128gcm":
            return self.decrypt(body)
        plain: bytes = http_ece.decrypt(
            body,
            salt=read_base64url(received["encryption"].removeprefix("salt=")),
            private_key=self.key,
            dh=read_base64url(received["crypto_key"].removeprefix("dh=")),
            auth_secret=self.auth,
            version="aesgcm",
        )
        return plain
