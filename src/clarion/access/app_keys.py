"""User keys and provider keys: how they are created, refused and rotated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from msgspec import Meta

from clarion.access.keys import random_text
from clarion.access.model import App, ProviderKey, UserKey, UserTokenAlgorithm
from clarion.access.vault import Vault
from clarion.errors import FieldFault, InvalidFields

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
# The key that an app had when it could have one only.
FIRST_KID = "first"
SECRET_BYTES = (32, 1024)
OVERLAP_LIMIT_S = 30 * 24 * 3600
Overlap = Annotated[
    int,
    Meta(
        description="Seconds for which the old key stays valid, at most 30 days.",
        extra_json_schema={"minimum": 0, "maximum": OVERLAP_LIMIT_S},
    ),
]
_SECRET_LENGTH = 43  # 256 bits
_KID_LENGTH = 12
# Apple's key ids have ten characters, and APNs clients expect that.
_KEY_ID_LENGTH = 10
_PEM_LIMIT = 4_096
_KID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_ID = re.compile(rf"[A-Z0-9]{{{_KEY_ID_LENGTH}}}")


@dataclass(frozen=True, slots=True, repr=False)
class IssuedUserKey:
    """A new user key; its secret, if we made one, cannot be shown again."""

    key: UserKey
    secret: str | None


@dataclass(frozen=True, slots=True, repr=False)
class IssuedProviderKey:
    """A new provider key; its private key (PEM), if we made one, cannot be shown again."""

    key: ProviderKey
    private_key: str | None


def user_key_context(app_id: str, kid: str) -> str:
    """Return the context in which a user key is sealed."""
    # The first key was sealed before apps had several.
    return f"apps/{app_id}/" + ("user_token_key" if kid == FIRST_KID else f"user_keys/{kid}")


def issue_user_key(
    *,
    app_id: str,
    algorithm: UserTokenAlgorithm,
    vault: Vault,
    now: int,
    kid: str | None = None,
    secret: str | None = None,
    public_key: str | None = None,
    expires_at: int | None = None,
) -> IssuedUserKey:
    """Return a new key, without storing it.

    HS256 takes a secret, or makes one; ES256 and EdDSA take a public key. `InvalidFields` if one
    of them is missing, too much, too weak, or not of the algorithm.
    """
    if kid is not None and (not _KID.fullmatch(kid) or kid == FIRST_KID):
        reason = f"must have 1 to 64 letters, digits, `.`, `_` or `-`, and not be `{FIRST_KID}`"
        raise InvalidFields(FieldFault("kid", reason))
    kid = kid or random_text(_KID_LENGTH)
    made = None
    if algorithm is UserTokenAlgorithm.HS256:
        _refuse(public_key, "public_key", "must be left out with HS256: it has a shared secret")
        made = None if secret is not None else random_text(_SECRET_LENGTH)
        opened = _check_secret(secret or made or "")
    else:
        _refuse(secret, "secret", f"must be left out with {algorithm.value}: send a public key")
        opened = check_public_key(public_key, algorithm)
    sealed = vault.seal(opened, user_key_context(app_id, kid))
    key = UserKey(
        app_id=app_id,
        kid=kid,
        algorithm=algorithm,
        key=sealed,
        created_at=now,
        expires_at=expires_at,
    )
    return IssuedUserKey(key, made)


def issue_provider_key(
    *,
    app: App,
    now: int,
    key_id: str | None = None,
    public_key: str | None = None,
    expires_at: int | None = None,
) -> IssuedProviderKey:
    """Return a new provider key, without storing it; without a public key a pair is made."""
    if key_id is not None and not _KEY_ID.fullmatch(key_id):
        reason = f"must have {_KEY_ID_LENGTH} capital letters and digits"
        raise InvalidFields(FieldFault("key_id", reason))
    private_key = None
    if public_key is None:
        private_key, public_key = _make_pair()
    checked = check_public_key(public_key, UserTokenAlgorithm.ES256)
    key = ProviderKey(
        app_id=app.id,
        key_id=key_id or random_text(_KEY_ID_LENGTH).upper(),
        team_id=app.team_id,
        public_key=checked.decode(),
        created_at=now,
        expires_at=expires_at,
    )
    return IssuedProviderKey(key, private_key)


def check_overlap(overlap_s: int) -> int:
    """Return an overlap in milliseconds; `InvalidFields` if it is out of range."""
    if not 0 <= overlap_s <= OVERLAP_LIMIT_S:
        reason = f"must be from 0 to {OVERLAP_LIMIT_S} seconds (30 days)"
        raise InvalidFields(FieldFault("overlap_s", reason))
    return overlap_s * 1000


def check_public_key(pem: str | None, algorithm: UserTokenAlgorithm) -> bytes:
    """Return a public key as normalised PEM; `InvalidFields` says what is wrong with it."""
    if pem is None:
        raise InvalidFields(FieldFault("public_key", f"is required with {algorithm.value}"))
    try:
        key = read_public_key(pem.encode(errors="replace")[: _PEM_LIMIT + 1], algorithm)
    except ValueError as error:
        raise InvalidFields(FieldFault("public_key", str(error))) from error
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def read_public_key(pem: bytes, algorithm: UserTokenAlgorithm) -> PublicKey:
    """Return the public key of a PEM; `ValueError` if it is not one for the algorithm."""
    if b"PRIVATE KEY" in pem:
        raise ValueError("is a private key: keep it, and register its public key")
    if len(pem) > _PEM_LIMIT:
        raise ValueError(f"must have at most {_PEM_LIMIT} characters")
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError("must be a public key in PEM (-----BEGIN PUBLIC KEY-----)") from error
    if algorithm is UserTokenAlgorithm.EDDSA:
        if isinstance(key, ed25519.Ed25519PublicKey):
            return key
        raise ValueError("must be an Ed25519 key for EdDSA")
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    curve = f", not on {key.curve.name}" if isinstance(key, ec.EllipticCurvePublicKey) else ""
    raise ValueError(f"must be a key on the curve P-256 for ES256{curve}")


def _refuse(value: str | None, field: str, reason: str) -> None:
    if value is not None:
        raise InvalidFields(FieldFault(field, reason))


def _check_secret(secret: str) -> bytes:
    least, most = SECRET_BYTES
    encoded = secret.encode(errors="replace")
    if not least <= len(encoded) <= most:
        reason = f"must have {least} to {most} bytes: a shorter one can be guessed"
        raise InvalidFields(FieldFault("secret", reason))
    if b"-----BEGIN" in encoded:
        reason = "is a key in PEM: send a public one as `public_key`, with ES256 or EdDSA"
        raise InvalidFields(FieldFault("secret", reason))
    return encoded


def _make_pair() -> tuple[str, str]:
    """Return a private key (PKCS 8) and its public key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()
