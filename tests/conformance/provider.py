"""A provider: an app with its key, and the tokens that it signs, valid and invalid ones."""

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

HALF_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Provider:
    """An application server, as the APNs endpoint knows it."""

    app_id: str
    bundle_id: str
    team_id: str
    key_id: str
    api_key: str
    key_pem: str

    @classmethod
    def from_card(cls, card: dict[str, str]) -> "Provider":
        """Read what `clarion init --json` and `clarion app create` print."""
        return cls(
            app_id=card["id"],
            bundle_id=card["bundle_id"],
            team_id=card["team_id"],
            key_id=card["key_id"],
            api_key=card["api_key"],
            key_pem=Path(card["provider_key_path"]).read_text(),
        )

    def token(
        self,
        *,
        header: dict[str, Any] | None = None,
        claims: dict[str, Any] | None = None,
        is_der: bool = False,
    ) -> str:
        """Return a token with these changes; `is_der` signs as `openssl dgst` does."""
        named = {"alg": "ES256", "kid": self.key_id, **(header or {})}
        claimed = {"iss": self.team_id, "iat": int(time.time()), **(claims or {})}
        signed = f"{_encode_json(named)}.{_encode_json(claimed)}"
        return f"{signed}.{encode(self.sign(signed.encode(), is_der=is_der))}"

    def sign(self, data: bytes, *, is_der: bool = False) -> bytes:
        key = load_pem_private_key(self.key_pem.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        signature = key.sign(data, ec.ECDSA(hashes.SHA256()))
        if is_der:
            return signature
        r, s = decode_dss_signature(signature)
        return r.to_bytes(HALF_BYTES, "big") + s.to_bytes(HALF_BYTES, "big")


def encode(data: bytes) -> str:
    """Base64 as tokens use it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode_json(value: dict[str, Any]) -> str:
    return encode(json.dumps(value).encode())
