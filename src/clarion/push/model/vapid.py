"""What senders and receivers of Web Push share: keys on P-256, and the origin of a URL."""

from __future__ import annotations

import base64
import re
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CURVE = ec.SECP256R1()
POINT_BYTES = 65
SCALAR_BYTES = 32
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")


def write_base64url(data: bytes) -> str:
    """Return the text without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_base64url(text: str) -> bytes:
    """Return the bytes of a text with or without padding; `ValueError` if it is not base64url."""
    if not _BASE64URL.fullmatch(text):
        raise ValueError("must be base64url")
    unpadded = text.rstrip("=")
    try:
        return base64.urlsafe_b64decode(unpadded + "=" * (-len(unpadded) % 4))
    except ValueError as error:
        raise ValueError("must be base64url") from error


def read_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """Return the key of an uncompressed point of 65 bytes; `ValueError` if it is not valid."""
    point = read_base64url(text)
    if len(point) != POINT_BYTES:
        raise ValueError(f"must be {POINT_BYTES} bytes in base64url")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
    except ValueError as error:
        raise ValueError("must be a point on the curve P-256") from error


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the uncompressed point of a key, 65 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def write_public_key(key: ec.EllipticCurvePublicKey) -> str:
    """Return the uncompressed point as text, 87 characters."""
    return write_base64url(point_of(key))


def read_private_key(text: str) -> ec.EllipticCurvePrivateKey:
    """Return the key of a number of 32 bytes; `ValueError` if it is not valid."""
    scalar = read_base64url(text)
    if len(scalar) != SCALAR_BYTES:
        raise ValueError(f"must be {SCALAR_BYTES} bytes in base64url")
    return ec.derive_private_key(int.from_bytes(scalar, "big"), CURVE)


def new_private_key() -> str:
    """Return a new private key as text, 43 characters."""
    number = ec.generate_private_key(CURVE).private_numbers().private_value
    return write_base64url(number.to_bytes(SCALAR_BYTES, "big"))


def origin_of(url: str) -> str:
    """Return scheme, host, and the port if it is not the default one."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    is_default = parts.port in (None, 443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}" + ("" if is_default else f":{parts.port}")
